"""A method that looks like an override and is called by nobody is refused before any work."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import ludus
from ludus.core import HookError, overrides
from ludus.core.runtime import InMemoryRuntime
from tests.arena.small import small_arena
from tests.core.test_hooks import plan
from tests.core.test_loop import Tiny
from tests.games.dqn.small import small_dqn
from tests.games.ppo.small import small_ppo
from tests.rl.small import small


@pytest.fixture(autouse=True)
def no_other_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests call methods of all these names; here a script has no modules but those that it names."""
    monkeypatch.setattr(overrides, "modules_of_user", lambda packages: [])


def nothing(self: Any, *arguments: Any) -> None:
    """Do nothing."""


def derived(base: type, name: str) -> Any:
    # The name must stand nowhere in this module as an attribute, for that would be a call of it.
    return type("Mine", (base,), {name: nothing, "__module__": "no_module"})


MODULES_OF_USER = overrides.modules_of_user


def every_family() -> dict[str, Any]:
    return {
        "fused_dqn": small_dqn(), "fused_ppo": small_ppo(), "dqn": small("dqn"), "ppo": small("ppo"),
        "supervised": ludus.example("supervised").replace(**{"settings.display": "none"}),
        "arena": small_arena(),
    }  # fmt: skip


@pytest.mark.covers("001-M3")
@pytest.mark.parametrize(
    "name",
    [
        "_train",
        "train_one_epoch",
        "training_step",
        "run_epoch",
        "compute_loss",
        "on_epoch_end",
        "setup",
    ],
)
@pytest.mark.parametrize("family", every_family())
def test_a_method_that_nobody_calls_is_refused_in_every_family(family: str, name: str) -> None:
    config = every_family()[family]
    trainer = derived(type(ludus.build_trainer(config)), name)(config)
    with pytest.raises(HookError, match=rf"Mine\.{name} looks like .* nothing calls it"):
        trainer.fit(runtime=InMemoryRuntime)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("_train", "looks like a method that a run calls, but nothing calls it"),
        ("_round", "has the name of the node 'round' of the plan, but nothing calls it"),
        ("part", "looks like parts, but nothing calls it.*; call it parts, or give it another"),
        ("prepaer", "call it prepare, or give"),
        ("on_train_round_end", "hooks are named after the nodes of the plan: call it after_round$"),
        ("on_fit_start", "call it before_"),
        (
            "seed_generators",
            "was a method of trainers in earlier versions, but .*; override seed in a class derived from"
            " .*Services, and set `services`",
        ),
    ],
)
def test_what_it_looks_like_and_the_remedy_are_told(name: str, told: str) -> None:
    with pytest.raises(HookError, match=told):
        derived(Tiny, name)(plan).fit()


@pytest.mark.parametrize("name", ["_train", "train", "train_step"])
def test_a_subclass_of_dqn_is_told_where_a_loop_of_ones_own_belongs(name: str) -> None:
    trainer = derived(ludus.games.DQNTrainer, name)(small_dqn())
    with pytest.raises(HookError, match=r"derives from ludus\.games\.TwoRoleTrainer"):
        trainer.fit(runtime=InMemoryRuntime)


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


LIB = """
import ludus.core
from tests.core.test_loop import Tiny

class Mine(Tiny):
    def train(self):
        super().train
        self.model.train()

    def step(self):
        '''Called .step by nobody.'''

class Rounds(Tiny):
    def before_round(self):
        getattr(self, "evaluation")()

    def evaluation(self):
        pass
"""


def module(name: str, code: str, folder: Path) -> ModuleType:
    """Return a module as it is imported from a file."""
    (folder / f"{name}.py").write_text(code)
    made = ModuleType(name)
    made.__file__ = str(folder / f"{name}.py")
    exec(compile(code, made.__file__, "exec"), vars(made))
    return made


@pytest.mark.parametrize(
    ("main", "refused"),
    [
        ("", "train"),
        ("def train(trainer):\n    trainer.train()\n", "step"),
        ("# trainer.train()\nname = 'train'\n", "train"),
        ("def go(trainer):\n    trainer.train(); trainer.step()\n", None),
        ("def go(t):\n    getattr(t, 'train')()\n    t.step()\n", None),
        ("def go(t):\n    for name in ('train', 'step'):\n        getattr(t, name)()\n", None),
    ],
)
def test_a_method_that_another_file_of_the_script_speaks_of_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, main: str, refused: str | None
) -> None:
    lib = module("overrides_lib", LIB, tmp_path)
    both = [lib, module("overrides_main", main, tmp_path)]
    monkeypatch.setattr(overrides, "modules_of_user", lambda packages: both)
    assert lib.Rounds(plan).fit().status == "finished"
    if refused is None:
        assert lib.Mine(plan).fit().status == "finished"
        return
    with pytest.raises(HookError, match=rf"Mine\.{refused} .* nothing calls it"):
        lib.Mine(plan).fit()


def test_a_method_that_is_under_way_is_called() -> None:
    def train(self: Any) -> Any:
        return self.fit()

    mine = type("Mine", (Tiny,), {"train": train, "__module__": "no_module"})
    trainer: Any = mine(plan)
    assert trainer.train().status == "finished"
    with pytest.raises(HookError, match="nothing calls it"):
        mine(plan).fit()


def test_modules_of_the_user_are_those_of_no_library(no_other_code: None) -> None:
    found = {one.__name__ for one in MODULES_OF_USER({"pluggy"})}
    assert {"tests.core.test_loop", "pluggy"} <= found
    assert not {"torch", "ludus.core", "json", "numpy"} & found


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
    trainer.fit(runtime=InMemoryRuntime)
    assert set(calls) == {"host", "agent", "evaluate"}
