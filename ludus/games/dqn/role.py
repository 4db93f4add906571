"""RoleLearner: double DQN for one role, with its network, target network, replay buffer and two schedules.

Shapes: B games or transitions, O features of an observation, A actions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ludus.core import states
from ludus.data.replay.device_ring import Column, DeviceReplay
from ludus.games.choose import best
from ludus.games.dqn.config import FusedDqnConfig
from ludus.games.dqn.inference import Acting, Precision, matmuls_in
from ludus.games.dqn.optimizer import RoleOptimizer
from ludus.games.game import FusedGame
from ludus.games.networks import check_net, make_net
from ludus.games.player import num_moves
from ludus.games.roll_out import Experiences
from ludus.losses.dqn import td_errors, td_loss, td_targets
from ludus.nn.engines.choice import Chosen, Subject
from ludus.nn.learner import Learner, LossFn
from ludus.nn.schedules import Scheduler, highest
from ludus.nn.start import named_in, start_groups
from ludus.nn.swapped_weights import restored
from ludus.nn.target import Target
from ludus.nn.update import Update
from ludus.seeds import derive, forked

METRICS = ("loss", "grad_norm", "q_mean")
_COUNTS = ("num_updates", "first_update", "first_row")
_COMPONENTS = ("lr_scheduler", "er_scheduler", "learner", "target")


class RoleLearner(Update):
    """A role that learns by double DQN. It is a Player; it and its replay are parts."""

    worth_compiling = 150_000

    def __init__(
        self,
        role: str,
        run_config: FusedDqnConfig,
        game: FusedGame,
        device: torch.device,
        net: nn.Module | None,
    ) -> None:
        """`net` is a script's own network; without one it is built from the config's net_arch."""
        config, seed = run_config.role(role), run_config.seed
        assert config is not None
        self.role, self.config, self.game, self.device = role, config, game, device
        self.prefix, self.huber = role, run_config.huber
        self.num_updates = 0
        """The number of updates of the role, in this run and before it."""
        self.first_update = self.first_row = 0
        """The numbers of updates and transitions when the run began: it counts from here."""
        self.is_trained = True
        """Whether `fit` and `collect` do anything; `set_trainable` changes it."""
        self._rate = torch.zeros(1, device=device)
        """The learning rate of the next update, in a tensor of fixed address, as a CUDA graph reads it."""
        self._precision: Precision = run_config.precision
        self._max_grad_norm, self._start = run_config.max_grad_norm, run_config.start
        inputs = game.observation_size(role)
        self.num_actions = num_moves(game, role, who="a network of values")
        if net is None:
            with forked(derive(seed, f"{role}/net")):
                net = make_net(config.net_arch, inputs, self.num_actions)
        super().__init__(self._make_learner(net), METRICS)
        self._use_learner()
        row, move = Column((inputs,), torch.float32), Column((), torch.int32)
        reward, done = Column((), torch.float32), Column((), torch.bool)
        columns = dict(zip(Experiences._fields, (row, move, reward, done, row), strict=True))
        self.replay = DeviceReplay(
            columns, config.replay_capacity, seed=seed, device=device, name=f"{role}/replay"
        )
        self.lr_scheduler, self.er_scheduler = self._schedulers(run_config.max_rounds)

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
        self.learner = self._make_learner(net)
        self._use_learner()

    def _make_learner(self, net: nn.Module) -> Learner:
        config, inputs = self.config, self.game.observation_size(self.role)
        check_net(net, role=self.role, inputs=inputs, outputs=self.num_actions, learns=True)
        return Learner(
            net.to(self.device).eval(),
            config.optimizer,
            highest_rate=highest(config.learning_rate_schedule, config.optimizer.learning_rate),
            max_grad_norm=self._max_grad_norm,
            precision="float32" if self._precision == "tf32" else self._precision,
            groups=start_groups(net, self._start, named=named_in(self.role)),
        )

    def _use_learner(self) -> None:
        learner, inputs = self.learner, self.game.observation_size(self.role)
        self.net, self.flat, self.optimizer = learner.module, learner.flat, learner.optimizer
        self.script_optimizer = RoleOptimizer(learner, self.begin_step)
        self.target = Target(learner)
        self.acting = Acting(learner, inputs=inputs, precision=self._precision)
        self.note_plain_state()
        self.is_captured = False
        """Whether updates are captured as a CUDA graph."""
        self.execute = self.update

    def execute_by(self, chosen: Chosen) -> None:
        """Execute the updates by this engine from now on; a CUDA graph samples their batches as well."""
        self.is_captured = chosen.used == "graph"
        self.execute = chosen.by(self._sample_and_update if self.is_captured else self.update)

    def subject(self) -> Subject:
        """Return the update, and the properties that decide which engines can execute it."""
        return super().subject()._replace(generators=[self.replay.generator])

    def example_inputs(self) -> tuple[Tensor, ...]:
        """Return inputs of `update` of the right shapes, holding zeros."""
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

    def begin_step(self) -> Tensor:
        """Count an update that a script makes itself; return its learning rate, on the device."""
        self._rate.fill_(self.learning_rate)
        self.num_updates += 1
        return self._rate[0]

    def step(self) -> None:
        """Make one update from uniformly sampled transitions, at the learning rate of this step."""
        self._rate.fill_(self.learning_rate)
        with matmuls_in(self._precision):
            self.execute(*(() if self.is_captured else self._sampled()))
        self.num_updates += 1
        self.num_counted += 1

    def _sampled(self) -> tuple[Tensor, ...]:
        drawn = self.replay.sample(self.config.batch_size)
        return *(drawn[name] for name in Experiences._fields), self._rate

    def _sample_and_update(self) -> None:
        self.update(*self._sampled())

    def update(
        self,
        obs_BO: Tensor,
        actions_B: Tensor,
        rewards_B: Tensor,
        dones_B: Tensor,
        next_obs_BO: Tensor,
        numbers: Tensor,
    ) -> Tensor:
        """Take one gradient step on the loss of a batch, at the learning rate in `numbers`."""
        loss_fn = self.loss_fn(obs_BO, actions_B, rewards_B, dones_B, next_obs_BO)
        loss, norm, q_mean = self.learner.step(loss_fn, numbers[0])
        self.count(loss, norm, q_mean)
        return loss

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
        rates = {"learning_rate": self.learning_rate, "exploration_rate": self.exploration_rate}
        return {f"{self.role}/{name}": rate for name, rate in rates.items()} | super().metrics()

    def weights(self) -> dict[str, Tensor]:
        """Return a copy, on the CPU, of the weights that playing needs."""
        found = self.learner.weights().items()
        return {f"{self.role}.{name}": t.detach().to("cpu", copy=True) for name, t in found}

    def layer_norms(self, seed: int) -> dict[str, float]:
        """Return the norm of every layer's weights, and of their gradient for one batch of the replay buffer.

        The batch is sampled by the seed and the number of updates, and the network is in eval mode, so that
        the run is not affected. This waits for the device.
        """
        draws = torch.Generator(self.device)
        draws.manual_seed(derive(seed, f"{self.role}/layers", self.num_updates))
        held = self.replay.size.clamp(min=1)
        places_B = torch.empty(self.config.batch_size, dtype=torch.int64, device=self.device)
        batch = self.replay.at(places_B.random_(generator=draws).remainder_(held))
        named = self.flat.by_name(self.flat.vectors)
        weights = dict(self.net.named_parameters())
        with restored(self.net), torch.enable_grad():
            loss, _ = self.loss_fn(*(batch[name] for name in Experiences._fields))(self.learner)
            found = torch.autograd.grad(loss, [weights[name] for name in named], allow_unused=True)
        norms = {f"layers/{self.role}/{name}": float(t.norm()) for name, t in named.items()}
        for name, gradient in zip(named, found, strict=True):
            norm = 0.0 if gradient is None else float(gradient.norm())
            norms[f"layers/{self.role}/{name}/gradient"] = norm
        return norms

    def state_dict(self) -> dict[str, Any]:
        """Return all but the buffer, which is a separate part."""
        return {
            "learner": self.learner.state_dict(),
            "target": self.target.state_dict(),
            "lr_scheduler": self.lr_scheduler.state_dict(),
            "er_scheduler": self.er_scheduler.state_dict(),
            "totals": self.totals,
            "is_trained": self.is_trained,
            "num_counted": self.num_counted,
            **{name: getattr(self, name) for name in _COUNTS},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load a saved state."""
        states.check_keys(state, *_COMPONENTS, *_COUNTS, "num_counted", "totals", "is_trained")
        self.check_metric_state(state)
        is_trained = states.flag(state, "is_trained")
        counts = {name: states.whole(state, name) for name in _COUNTS}
        for checked in ("learner", "target"):
            with states.within(checked):
                getattr(self, checked).check_state(state[checked])
        for name in _COMPONENTS:
            with states.within(name):
                getattr(self, name).load_state_dict(state[name])
        self.load_metric_state(state)
        self.is_trained = is_trained
        for name, count in counts.items():
            setattr(self, name, count)
