"""Two roles that train in turn, each with a learner and a best model of its own, and a scripted opponent."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ludus.config.registry import register_trainer
from ludus.core import Repeat, Run, Stage, Stateful
from ludus.judge.judge import Judge
from ludus.judge.scores import Score
from ludus.nn.learner import Learner
from ludus.nn.optimizer import Sgd
from ludus.seeds import derive, forked, generator
from tests.toy import ToyTrainer, toy_config

ROLES = ("host", "guest")
RATES = {"host": 0.1, "guest": 3.0}


def scripted(state_BD: Tensor) -> Tensor:
    """Return what an opponent does that never learns."""
    return state_BD.sum(1, keepdim=True).sign()


class Targets:
    """What each role believes the other to do: a copy of its weights, taken now and then."""

    def __init__(self, learners: Mapping[str, Learner]) -> None:
        self._learners = learners
        self.weights = {role: copied(learner) for role, learner in learners.items()}

    def sync(self, role: str) -> None:
        self.weights[role] = copied(self._learners[role])

    def state_dict(self) -> dict[str, Any]:
        return {role: dict(weights) for role, weights in self.weights.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.weights = {
            role: {name: tensor.clone() for name, tensor in state[role].items()} for role in ROLES
        }


def copied(learner: Learner) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in learner.weights().items()}


@register_trainer("toy_game")
class ToyGame(ToyTrainer):
    def prepare(self, *, max_steps: int | None) -> None:
        super().prepare(max_steps=max_steps)
        sgd = Sgd(kind="sgd", learning_rate=0.1, momentum=0.9, weight_decay=0.0, nesterov=False)
        self.learners = {}
        for role in ROLES:
            with forked(derive(self.config.seed, role)):
                self.learners[role] = Learner(nn.Linear(3, 1), sgd, max_grad_norm=1.0)
        self.targets = Targets(self.learners)
        self.judge = Judge(
            Score("host", "eval/host_return"),
            Score("guest", "eval/guest_error", patience=2),
        )

    def plan(self) -> Repeat:
        def role(name: str) -> Repeat:
            return Repeat(
                name=name,
                times=1,
                body=(
                    Stage(
                        name="sync_target",
                        work=lambda run: self.targets.sync(name),
                        when=lambda run: run.counters["iteration"] % 2 == 0,
                    ),
                    Stage(name="fit", work=partial(self.fit_role, name)),
                    self.stage("collect", when=lambda run: run.counters["iteration"] % 3 == 2),
                ),
            )

        rounds = Repeat(
            name="round",
            times=self.config.num_rounds,
            counter="iteration",
            body=(
                *map(role, ROLES),
                Stage(
                    name="evaluate",
                    work=self.evaluate,
                    when=lambda run: run.counters["iteration"] % 2 == 1,
                ),
            ),
        )
        return Repeat(name="train", times=1, body=(rounds,))

    def parts(self) -> Mapping[str, Stateful]:
        own = {"targets": self.targets, "judge": self.judge}
        return {**super().parts(), **self.learners, **own}

    def best(self) -> Mapping[str, Any] | None:
        return self.judge.best

    def more_bests(self) -> Mapping[str, Mapping[str, Any]]:
        return self.judge.more_bests

    def forget_models(self, names: Collection[str] | None) -> None:
        self.judge.forget_models(names)

    def states(self, name: str, number: int) -> Tensor:
        return torch.randn(8, 3, generator=generator(self.config.seed, name, number))

    def fit_role(self, role: str, run: Run) -> dict[str, Any]:
        """The host learns to be far from what it believes of the guest, the guest to be near."""
        other = ROLES[1 - ROLES.index(role)]
        state_BD = self.states(role, run.round("round"))
        weights = self.targets.weights[other]
        with torch.no_grad():
            believed = torch.tanh(state_BD @ weights["weight"].T + weights["bias"])
            believed = 0.5 * (believed + scripted(state_BD))
        sign = -1.0 if role == "host" else 1.0

        def loss_fn(network: Callable[[Tensor], Tensor]) -> tuple[Tensor, None]:
            return sign * (torch.tanh(network(state_BD)) - believed).square().mean(), None

        loss, _, _ = self.learners[role].step(loss_fn, torch.tensor(RATES[role]))
        run.counters["opt_steps"] += 1
        return {f"{role}/loss": loss, **self.work.do("fit")}

    def evaluate(self, run: Run) -> dict[str, float]:
        """Let each role play the scripted opponent, and judge each by its own score."""
        metrics = {
            "eval/host_return": self.distance("host"),
            "eval/guest_error": self.distance("guest"),
        }
        self.judge.update(run, metrics, lambda score: copied(self.learners[score.name]))
        return metrics

    def distance(self, role: str) -> float:
        """Return how far this role's moves are from the scripted ones; a guest's are to be half way."""
        state_BD = self.states("evaluation", 0)
        with torch.no_grad():
            moves = torch.tanh(self.learners[role](state_BD))
        far = float((moves - scripted(state_BD)).abs().mean())
        return abs(far - 0.5) if role == "guest" else far


def make() -> ToyGame:
    return ToyGame(toy_config("toy_game", num_rounds=7))
