"""Networks, losses and estimators of a script's own: what they keep is saved or told, and left as it was."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from tensordict import TensorDict, TensorDictBase
from torch import Tensor, nn

import ludus
from ludus.arena.agents.body import Body, BodyFeatures, Rows
from ludus.arena.objectives.reinforce import Reinforce, RewardToGo
from ludus.arena.scenario import ObservationSizes
from ludus.arena.trainers.reinforce import ReinforceTrainer
from ludus.arena.trainers.vanilla_ppo import VanillaPpoTrainer
from ludus.config.base import StrictConfig
from ludus.config.registry import register
from ludus.core.runtime import InMemoryRuntime
from ludus.testing.trainers import check_kill_anywhere
from tests.arena import small
from tests.arena.sections import NEVER, parts
from tests.arena.small import MLP, small_arena
from tests.arena.small_solo import small_solo

Habit = Literal["noise", "item", "mean", "some", "counts"]
TO_GO: dict[str, Any] = {**small.TO_GO, "engine": "eager"}


class HabitParameters(StrictConfig):
    kind: Literal["tests_habit"]
    """A body that does what vmap, engines or evaluations could take amiss."""
    habit: Habit
    """What it does."""


@register("body", "tests_habit")
class HabitBody(Body):
    Config = HabitParameters
    has_symbols = False
    needs = ("bits",)

    def __init__(self, params: HabitParameters, seen: ObservationSizes) -> None:
        super().__init__()
        self.habit, self.width = params.habit, 8
        self.layer = nn.Linear(seen.shapes["bits"][0], 8)
        self.register_buffer("mean", torch.zeros(8))
        self.calls = 0

    def forward(self, rows: Rows) -> BodyFeatures:
        x: Tensor = self.layer(rows["bits"])
        if self.habit == "noise":
            x = x + 0.1 * torch.randn_like(x)
        if self.habit == "item" and x.max().item() > 0:
            x = x + 0.1
        if self.habit == "mean":
            with torch.no_grad():
                self.mean.lerp_(x.mean(0), 0.1)
            x = x - self.mean
        if self.habit == "some":
            x = x + x[x > 0].mean()
        if self.habit == "counts" and self.training:
            self.calls += 1
            x = x * (1 + self.calls % 5)
        return BodyFeatures(torch.tanh(x), None, None)


def both(habit: Habit) -> dict[str, Any]:
    body = {"kind": "tests_habit", "habit": habit}
    return {"agents": {"verifier": parts(body), "prover": parts(body)}}


@pytest.mark.parametrize("habit", ["noise", "item", "mean", "some"])
def test_a_critic_may_do_what_vmap_forbids(habit: Habit, tmp_path: Path) -> None:
    config = small_arena(engine="eager", max_iterations=2, **both(habit))
    assert ludus.build_trainer(config).fit(root=str(tmp_path)).status == "finished"


RARELY = {"evaluate_every_iterations": 0}


def kept(config: Any, root: Path) -> dict[str, Tensor]:
    trainer: Any = ludus.build_trainer(config)
    trainer.fit(root=str(root))
    found: dict[str, Tensor] = trainer.weights()
    return found


@pytest.mark.parametrize("habit", ["noise", "mean"])
@pytest.mark.parametrize("make", [small_arena, small_solo])
def test_evaluations_and_the_test_leave_no_trace_in_a_network(
    habit: Habit, make: Any, tmp_path: Path
) -> None:
    own = {**both(habit), "engine": "eager", "keep_every_iterations": 0}
    never = {} if make is small_solo else {"rl.num_test_iterations": 0}
    often = kept(make(**own, evaluate_every_iterations=1), tmp_path / "often")
    rarely = kept(make(**own, **RARELY, **never), tmp_path / "rarely")
    for name, tensor in often.items():
        assert torch.equal(tensor, rarely[name]), name


class Centred(RewardToGo):
    """Keeps a running mean of the weights, as a buffer."""

    def __init__(self, gamma: float) -> None:
        super().__init__(gamma)
        self.register_buffer("mean", torch.zeros(()))

    def forward(self, rollouts: TensorDictBase) -> TensorDictBase:
        found = super().forward(rollouts)
        weight = found["agents", "advantage"]
        self.mean.lerp_(weight.mean(), 0.3)
        return found.set(("agents", "advantage"), weight - self.mean)


class OwnEstimator(ReinforceTrainer):
    def _get_loss_module_and_gae(self) -> tuple[nn.Module, nn.Module | None]:
        rl, params = self.config.rl, self.config.reinforce
        return Reinforce(self.agents, rl, params), Centred(rl.gamma)


def test_what_an_estimator_of_ones_own_keeps_is_saved(tmp_path: Path) -> None:
    config = small_arena("reinforce", **TO_GO, max_iterations=2, keep_every_iterations=0)
    check_kill_anywhere(lambda: OwnEstimator(config), tmp_path, max_kills=3)


def test_trial_episodes_leave_no_trace_in_an_estimator_or_a_loss() -> None:
    trainer: Any = OwnEstimator(small_arena("reinforce", **TO_GO))
    trainer.prepare(max_steps=None)
    assert float(trainer.gae.mean) == 0.0


class Counting(Reinforce):
    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.calls = 0

    def forward(self, tensordict: TensorDictBase) -> TensorDict:
        self.calls += 1
        found = super().forward(tensordict)
        return found.set("loss_objective", found["loss_objective"] * (1 + self.calls % 5))


class OwnCounting(ReinforceTrainer):
    def _get_loss_module_and_gae(self) -> tuple[nn.Module, nn.Module | None]:
        rl = self.config.rl
        return Counting(self.agents, rl, self.config.reinforce), RewardToGo(rl.gamma)


def test_what_a_loss_counts_in_python_is_said_to_make_a_run_inexact(tmp_path: Path) -> None:
    result = OwnCounting(small_arena("reinforce", **TO_GO)).fit(root=str(tmp_path))
    assert any("Counting changes calls" in reason for reason in result.inexact_because)
    plain = ludus.build_trainer(small_arena("reinforce", **TO_GO))
    assert plain.fit(root=str(tmp_path), name="plain").exact


def test_what_a_body_counts_while_it_is_pretrained_is_said_to_make_a_run_inexact() -> None:
    section = {
        "agents": ["verifier"],
        "iterations": 1,
        "batch_size": 8,
        "optimizer": small_arena().optimizer.model_dump(),
    }
    config = small_arena(engine="eager", pretraining=section, **both("counts"))
    trainer: Any = ludus.build_trainer(config)
    told: list[list[str]] = []

    class Hooks:
        def before_end_pretraining(self) -> None:
            told.append(trainer.inexact_because())

    trainer.add(Hooks())
    trainer.fit(runtime=InMemoryRuntime)
    (reasons,) = told
    assert any("HabitBody changes calls" in reason for reason in reasons)


NORMED = {"kind": "vector", "widths": [8], "activation": "tanh", "normalise_observations": True}


@pytest.mark.parametrize("schedule", [NEVER, {"kind": "constant", "learns": True}])
def test_a_shared_body_takes_in_each_row_once_and_none_while_its_owner_is_frozen(
    schedule: dict[str, Any],
) -> None:
    agents = {
        "verifier": parts(NORMED, update_schedule=schedule),
        "prover": parts(NORMED, shares_body_of="verifier"),
    }
    config = small_arena(agents=agents, max_iterations=2)
    trainer: Any = ludus.build_trainer(config)
    trainer.fit(runtime=InMemoryRuntime)
    rows = config.frames_per_batch
    # The trial episodes come first.
    expected = rows if schedule is NEVER else 3 * rows
    assert float(trainer.agents.member("verifier").body.observed.observed_count) == expected


def test_agents_that_learn_alone_normalise_what_they_see(tmp_path: Path) -> None:
    agents = {name: parts(NORMED) for name in ("verifier", "prover")}
    plain = {name: parts({**NORMED, "normalise_observations": False}) for name in agents}
    own, other = (small_solo(agents=one) for one in (agents, plain))
    weights = kept(own, tmp_path / "own")
    assert float(weights["members.prover.body.observed.observed_count"]) == 20
    assert not torch.equal(
        weights["members.prover.body.layers.0.weight"],
        kept(other, tmp_path / "other")["members.prover.body.layers.0.weight"],
    )


class OwnLoop(VanillaPpoTrainer):
    @ludus.attach_progress_bar(lambda self: self.config.max_iterations)
    def _run_train_loop(self, iteration_context: ludus.IterationContext) -> None:
        super()._run_train_loop(iteration_context)


def test_a_loop_of_ones_own_can_be_interrupted(tmp_path: Path) -> None:
    trainer: Any = OwnLoop(small_arena(max_iterations=100_000, **RARELY))
    threading.Timer(1.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    result = trainer.fit(root=str(tmp_path))
    assert result.status == "interrupted"
    assert trainer.run.counters["iteration"] < 100_000


def test_an_agent_without_a_value_may_have_buffers_where_no_value_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.arena.test_agents_own import Own, own

    def refuse(self: object, rows: Rows) -> Any:
        raise NotImplementedError

    monkeypatch.setattr(Own, "value", refuse)
    monkeypatch.setattr(Own, "policy_and_value", refuse)
    agents = {"verifier": parts(MLP), "prover": own("batch_norm")}
    trainer = ludus.build_trainer(small_arena("reinforce", agents=agents, **TO_GO))
    assert trainer.fit(root=str(tmp_path)).status == "finished"
