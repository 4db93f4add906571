"""A method that looks like an override and is called by nobody is refused before any work."""

from __future__ import annotations

from typing import Any

import pytest

import ludus
from ludus.core import HookError
from ludus.core.surroundings import Bare
from tests.arena.small import small_arena
from tests.core.test_hooks import plan
from tests.core.test_loop import Tiny
from tests.games.dqn.small import small_dqn
from tests.games.ppo.small import small_ppo
from tests.rl.small import small


def nothing(self: Any, *arguments: Any) -> None:
    """Do nothing."""


def derived(base: type, name: str) -> Any:
    # The name must stand nowhere in this module as an attribute, for that would be a call of it.
    return type("Mine", (base,), {name: nothing, "__module__": "no_module"})


def every_family() -> dict[str, Any]:
    return {
        "fused_dqn": small_dqn(), "fused_ppo": small_ppo(), "dqn": small("dqn"), "ppo": small("ppo"),
        "supervised": ludus.example("supervised").replace(**{"settings.display": "none"}),
        "arena": small_arena(),
    }  # fmt: skip


@pytest.mark.covers("001-M3")
@pytest.mark.parametrize(
    "name",
    ["_train", "train_one_epoch", "training_step", "run_epoch", "compute_loss", "on_epoch_end"],
)
@pytest.mark.parametrize("family", every_family())
def test_a_method_that_nobody_calls_is_refused_in_every_family(family: str, name: str) -> None:
    config = every_family()[family]
    trainer = derived(type(ludus.build_trainer(config)), name)(config)
    with pytest.raises(HookError, match=rf"Mine\.{name} looks like .* nothing calls it"):
        trainer.fit(around=Bare)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("_train", "looks like a method that a run calls, but nothing calls it"),
        ("_round", "has the name of the node 'round' of the plan, but nothing calls it"),
        ("part", "looks like parts, but nothing calls it.*; call it parts, or give it another"),
        ("prepaer", "call it prepare, or give"),
    ],
)
def test_what_it_looks_like_and_the_remedy_are_told(name: str, told: str) -> None:
    with pytest.raises(HookError, match=told):
        derived(Tiny, name)(plan).fit()


@pytest.mark.parametrize("name", ["_train", "train", "train_step"])
def test_a_subclass_of_dqn_is_told_where_a_loop_of_ones_own_belongs(name: str) -> None:
    trainer = derived(ludus.games.DQNTrainer, name)(small_dqn())
    with pytest.raises(HookError, match=r"derives from ludus\.games\.TwoRoleTrainer"):
        trainer.fit(around=Bare)


class Helped(Tiny):
    """Calls its own methods, one of them in a property."""

    def before_round(self) -> None:
        self.compute_loss()
        assert self.loss_now == 3

    def compute_loss(self) -> int:
        return self.training_step()

    def training_step(self) -> int:
        return 3

    @property
    def loss_now(self) -> int:
        return self.compute_loss()

    def report(self) -> None:
        """Called by a script alone, and like nothing that a run calls."""


def test_helpers_that_are_called_and_methods_for_scripts_are_left_alone() -> None:
    Helped(plan).fit()


def test_a_roll_out_or_an_evaluation_of_ones_own_is_called() -> None:
    calls = []

    class Mine(ludus.games.DQNTrainer):
        def collect_rollout(self, role: str, num_games: int | None = None) -> Any:
            calls.append(role)
            return super().collect_rollout(role, num_games)

        def evaluate(self, *arguments: Any) -> Any:
            calls.append("evaluate")
            return super().evaluate(*arguments)

    trainer = Mine(small_dqn())
    trainer.set_logger(ludus.Logger({"backends": []}))
    trainer.fit(around=Bare)
    assert set(calls) == {"host", "agent", "evaluate"}
