"""RoleLearner: double DQN for one role, with its network, target network, replay buffer and two schedules.

Shapes: B games or transitions, O features of an observation, A actions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ludus.core import Stateful, states
from ludus.games.choose import best
from ludus.games.dqn.acting import Acting
from ludus.games.dqn.config import RoleConfig
from ludus.games.dqn.inference import Precision, matmuls_in
from ludus.games.dqn.optimizer import RoleOptimizer
from ludus.games.dqn.replay import make_replay
from ludus.games.game import FusedGame
from ludus.games.networks import check_net, make_net
from ludus.games.player import num_moves
from ludus.games.roll_out import Experiences
from ludus.losses.dqn import td_errors, td_loss, td_targets
from ludus.nn.engines.choice import Executor, Subject
from ludus.nn.engines.unsaved import PlainState, unsaved
from ludus.nn.learner import Learner, LossFn
from ludus.nn.schedules import Scheduler, highest
from ludus.nn.target import Target
from ludus.seeds import derive, forked

METRICS = ("loss", "grad_norm", "q_mean")
_COUNTS = ("num_counted", "num_updates", "first_update", "first_row")


class RoleLearner:
    """A role that learns by double DQN. It is a Player; it and its replay are parts."""

    def __init__(
        self,
        role: str,
        config: RoleConfig,
        game: FusedGame,
        *,
        net: nn.Module | None,
        seed: int,
        device: torch.device,
        run_rounds: int,
        huber: float | None,
        max_grad_norm: float | None,
        precision: Precision,
    ) -> None:
        """`net` is a script's own network; without one it is built from the config's net_arch."""
        self.role, self.config, self.game, self.device = role, config, game, device
        self.huber = huber
        self.num_updates = 0
        """The number of updates of the role, in this run and before it."""
        self.first_update = self.first_row = 0
        """The numbers of updates and transitions when the run began: it counts from here."""
        self.is_trained = True
        """Whether `fit` and `collect` do anything; `set_trainable` changes it."""
        self._numbers = torch.zeros(1, device=device)
        """The learning rate of the next update, on the device."""
        self._precision: Precision = precision
        self._options: dict[str, Any] = {
            "max_grad_norm": max_grad_norm,
            "precision": "float32" if precision == "tf32" else precision,
        }
        inputs = game.observation_size(role)
        self.num_actions = num_moves(game, role, who="a network of values")
        if net is None:
            with forked(derive(seed, f"{role}/net")):
                net = make_net(config.net_arch, inputs, self.num_actions)
        self.take_net(net)
        capacity = config.replay_capacity
        self.replay = make_replay(role, inputs=inputs, capacity=capacity, seed=seed, device=device)
        self.lr_scheduler, self.er_scheduler = self._schedulers(run_rounds)
        self.totals = torch.zeros(len(METRICS), dtype=torch.float64, device=device)
        """The sum of each metric since the last record."""
        self.num_counted = 0

    def _schedulers(self, run_rounds: int) -> tuple[Scheduler, Scheduler]:
        config, explore = self.config, self.config.exploration
        rate = config.optimizer.learning_rate
        return (
            Scheduler(config.learning_rate_schedule, initial=rate, run_steps=run_rounds),
            Scheduler(explore.schedule, initial=explore.initial, run_steps=run_rounds),
        )

    def begin_run(self, run_rounds: int) -> None:
        """Count from here, with schedules over this many rounds; a script's own schedules are kept."""
        self.first_update, self.first_row = self.num_updates, int(self.replay.total_pushed)
        before = self.lr_scheduler.data, self.er_scheduler.data
        self.lr_scheduler, self.er_scheduler = self._schedulers(run_rounds)
        self.lr_scheduler.data, self.er_scheduler.data = before

    def take_net(self, net: nn.Module) -> None:
        """Train this network from now on: the optimizer's moments are reset, and the target is a copy."""
        config, inputs = self.config, self.game.observation_size(self.role)
        check_net(net, role=self.role, inputs=inputs, outputs=self.num_actions, learns=True)
        self.net = net.to(self.device).eval()
        self.learner = Learner(
            self.net,
            config.optimizer,
            highest_rate=highest(config.learning_rate_schedule, config.optimizer.learning_rate),
            **self._options,
        )
        self.optimizer = RoleOptimizer(self.learner, self._begin_step)
        self.target = Target(self.learner)
        self.acting = Acting(self.learner, inputs=inputs, precision=self._precision)
        self.plain_state = PlainState(self.net)
        self.update: Callable[..., None] = self._update
        self._draw_and_update: Callable[[], None] = self._drawn_then_updated
        self.is_captured = False
        """Whether updates are captured as a CUDA graph."""

    def execute(self, by: Executor, *, is_graph: bool) -> None:
        """Execute the updates by this engine from now on; a CUDA graph samples their batches as well."""
        self.is_captured = is_graph
        self.update, self._draw_and_update = self._update, self._drawn_then_updated
        if is_graph:
            self._draw_and_update = by(self._drawn_then_updated)
        else:
            self.update = by(self._update)

    def subject(self) -> Subject:
        """Return the update, and the properties that decide which engines can execute it."""
        return Subject(
            self._update, self, [self.net], self.device, self.example_inputs,
            generators=[self.replay.generator],
        )  # fmt: skip

    def example_inputs(self) -> tuple[Tensor, ...]:
        """Return inputs of `_update` of the right shapes, holding zeros."""
        size, inputs = self.config.batch_size, self.game.observation_size(self.role)
        rows = torch.zeros(size, inputs, device=self.device)
        actions = torch.zeros(size, dtype=torch.int32, device=self.device)
        dones = torch.zeros(size, dtype=torch.bool, device=self.device)
        return rows, actions, rows[:, 0].clone(), dones, rows.clone(), rows.new_zeros(1)

    @property
    def exploration_rate(self) -> float:
        """The current exploration rate."""
        return self.er_scheduler(self._step)

    @property
    def learning_rate(self) -> float:
        """The learning rate of the next update."""
        return self.lr_scheduler(self._step)

    @property
    def _step(self) -> int:
        return self.num_updates - self.first_update

    @property
    def num_rows(self) -> int:
        """The number of transitions collected in the run; waits for the device."""
        return int(self.replay.total_pushed) - self.first_row

    def act(self, obs_BO: Tensor, legal_BA: Tensor | None, generator: torch.Generator) -> Tensor:
        """Return the best legal actions; exploration is added where games are collected."""
        return best(self.values(obs_BO), legal_BA)

    def values(self, obs_BO: Tensor) -> Tensor:
        """Return (B, A) the value of each action, by the current network."""
        return self.acting.values(obs_BO)

    def remember(self, found: Experiences, keep: Tensor) -> None:
        """Store the transitions of games that were not over; does not wait for the device."""
        self.replay.push_where(keep, found._asdict())

    def _begin_step(self) -> Tensor:
        """Count an update that a script makes itself; return its learning rate, on the device."""
        self._numbers.fill_(self.learning_rate)
        self.num_updates += 1
        return self._numbers[0]

    def learn(self) -> None:
        """Make one update from uniformly sampled transitions, at the learning rate of this step."""
        self._numbers.fill_(self.learning_rate)
        with matmuls_in(self._precision):
            self._draw_and_update()
        self.num_updates += 1
        self.num_counted += 1

    def _drawn_then_updated(self) -> None:
        drawn = self.replay.sample(self.config.batch_size)
        self.update(*(drawn[name] for name in Experiences._fields), self._numbers)

    def _update(
        self,
        obs_BO: Tensor,
        actions_B: Tensor,
        rewards_B: Tensor,
        dones_B: Tensor,
        next_obs_BO: Tensor,
        numbers: Tensor,
    ) -> None:
        """Take one gradient step on the loss of a batch, at the learning rate in `numbers`."""
        loss_fn = self.loss_fn(obs_BO, actions_B, rewards_B, dones_B, next_obs_BO)
        loss, norm, q_mean = self.learner.step(loss_fn, numbers[0])
        self.totals.add_(torch.stack([loss, norm, q_mean]))

    def loss_fn(
        self,
        obs_BO: Tensor,
        actions_B: Tensor,
        rewards_B: Tensor,
        dones_B: Tensor,
        next_obs_BO: Tensor,
    ) -> LossFn[Tensor]:
        """Return the double DQN loss: the network selects the next legal action, the target values it."""
        with torch.no_grad():
            discounts_B = self.config.gamma * (1.0 - dones_B.float())
            targets_B = td_targets(
                rewards_B,
                discounts_B,
                self.target(next_obs_BO).float(),
                self.learner(next_obs_BO).float(),
                self.game.legal(next_obs_BO, self.role),
            )

        def loss_fn(network: Callable[..., Tensor]) -> tuple[Tensor, Tensor]:
            q_BA = network(obs_BO).float()
            errors_B = td_errors(q_BA, actions_B.long(), targets_B)
            return td_loss(errors_B, huber=self.huber), q_BA.detach().mean()

        return loss_fn

    def sync_target(self) -> None:
        """Update the target network towards the network."""
        self.target.follow(self.config.tau)

    def metrics(self) -> dict[str, float]:
        """Return the means since the last record, and the current values of the schedules."""
        found = {
            f"{self.role}/learning_rate": self.learning_rate,
            f"{self.role}/exploration_rate": self.exploration_rate,
        }
        if self.num_counted:
            means = [total / self.num_counted for total in self.totals.tolist()]
            names = [f"{self.role}/{name}" for name in METRICS]
            found |= dict(zip(names, means, strict=True))
        return found

    def take_metrics(self) -> dict[str, float]:
        """Return the metrics, and reset their accumulation."""
        found = self.metrics()
        self.totals.zero_()
        self.num_counted = 0
        return found

    def inexact_because(self) -> list[str]:
        """Return the state that a script's own network changes without saving it."""
        return unsaved(self.plain_state)

    def weights(self) -> dict[str, Tensor]:
        """Return a copy, on the CPU, of the weights that playing needs."""
        found = self.learner.weights().items()
        return {f"{self.role}.{name}": t.detach().to("cpu", copy=True) for name, t in found}

    def state_dict(self) -> dict[str, Any]:
        """Return all but the buffer, which is a separate part."""
        return {
            "learner": self.learner.state_dict(),
            "target": self.target.state_dict(),
            "lr_scheduler": self.lr_scheduler.state_dict(),
            "er_scheduler": self.er_scheduler.state_dict(),
            "totals": self.totals,
            "is_trained": self.is_trained,
            **{name: getattr(self, name) for name in _COUNTS},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load a saved state."""
        names = ("learner", "target", "lr_scheduler", "er_scheduler")
        states.check_keys(state, *names, *_COUNTS, "totals", "is_trained")
        totals, is_trained = (
            states.like(state, "totals", self.totals),
            states.flag(state, "is_trained"),
        )
        counts = {name: states.whole(state, name) for name in _COUNTS}
        with states.within("learner"):
            self.learner.check_state(state["learner"])
        with states.within("target"):
            self.target.check_state(state["target"])
        parts: dict[str, Stateful] = {
            "lr_scheduler": self.lr_scheduler,
            "er_scheduler": self.er_scheduler,
            "learner": self.learner,
            "target": self.target,
        }
        for name, part in parts.items():
            with states.within(name):
                part.load_state_dict(state[name])
        self.totals.copy_(totals)
        self.is_trained = is_trained
        for name, count in counts.items():
            setattr(self, name, count)
