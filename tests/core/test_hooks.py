"""Hooks fall out of the names in the plan; one that fits nothing is refused before any work."""

from __future__ import annotations

import pytest

from ludus.core import HookError, LudusError, Repeat, Run, Trainer
from tests.core.test_loop import Tiny, simple


def plan(self: Tiny) -> Repeat:
    return simple(self.say("train_step"))


def test_a_misspelt_hook_is_refused_with_the_nearest_right_name() -> None:
    class Misspelt(Tiny):
        def before_trian_step(self) -> None: ...

    with pytest.raises(HookError, match=r"Misspelt.before_trian_step.*'before_train_step'"):
        Misspelt(plan).fit()


def test_a_misspelt_hook_of_a_callback_is_refused_too() -> None:
    class Callback:
        def after_rounds(self) -> None: ...

    trainer = Tiny(plan)
    trainer.add(Callback())
    with pytest.raises(HookError, match="'after_round'"):
        trainer.fit()


def test_a_callback_that_would_never_be_called_is_refused() -> None:
    """Such as one with the hooks of another library; one that has state may do without."""

    class Foreign:
        def on_step(self) -> None: ...

    class Counter:
        def state_dict(self) -> dict[str, int]:
            return {}

        def load_state_dict(self, state: dict[str, int]) -> None: ...

    trainer = Tiny(plan)
    trainer.add(Counter())
    trainer.fit()
    trainer = Tiny(plan)
    trainer.add(Foreign())
    with pytest.raises(HookError, match=r"Foreign has no hook.* as after_"):
        trainer.fit()


def test_a_hook_takes_nothing_or_the_run() -> None:
    class Both(Tiny):
        def before_round(self) -> None:
            self.events.append("nothing")

        def after_round(self, run: Run) -> None:
            assert run is self.run
            self.events.append("run")

    trainer = Both(plan)
    trainer.fit()
    assert trainer.events == ["nothing", "train_step", "run"]


def test_a_hook_that_wants_more_is_refused_before_any_work() -> None:
    class Greedy(Tiny):
        def before_round(self, batch, index) -> None: ...

    trainer = Greedy(plan)
    with pytest.raises(HookError, match=r"before_round\(batch, index\) takes 2 arguments"):
        trainer.fit()
    assert trainer.events == []


def test_super_always_works_even_for_hooks_the_plan_lacks() -> None:
    class Polite(Tiny):
        def before_train(self) -> None:
            super().before_train()
            super().before_epoch()
            self.events.append("polite")

    trainer = Polite(plan)
    trainer.fit()
    assert trainer.events[0] == "polite"


def test_attributes_that_only_look_like_hooks_are_left_alone() -> None:
    class Shy(Tiny):
        after_thought = "not callable"

        @property
        def before_long(self) -> None:
            raise AssertionError("a property must not be evaluated")

    assert Shy(plan).fit().status == "finished"


def test_callbacks_are_called_after_the_trainer_in_the_order_they_were_added() -> None:
    class Named:
        def __init__(self, events: list[str], name: str) -> None:
            self.events, self.name = events, name

        def before_train_step(self) -> None:
            self.events.append(self.name)

    trainer = Tiny(plan)
    trainer.add(Named(trainer.events, "first"), name="one")
    trainer.add(Named(trainer.events, "second"), name="two")
    trainer.fit()
    assert trainer.events == ["first", "second", "train_step"]
    with pytest.raises(LudusError, match="'one' was added already"):
        trainer.add(Named([], "x"), name="one")


def test_open_and_close_come_once_around_the_walk_even_if_it_fails() -> None:
    class Failing(Tiny):
        def open(self) -> None:
            self.events.append("open")

        def close(self) -> None:
            self.events.append("close")

        def after_train_step(self) -> None:
            raise ValueError("broken")

    trainer = Failing(plan)
    with pytest.raises(ValueError, match="broken"):
        trainer.fit()
    assert trainer.events == ["open", "train_step", "close"]


@pytest.mark.covers("000-M3")
def test_the_two_names_of_the_length_must_agree() -> None:
    """The length: max_steps is another name of num_train_steps."""
    with pytest.raises(LudusError, match="they mean the same"):
        Trainer(None).fit(max_steps=3, num_train_steps=4)


def informed(self: Tiny) -> Repeat:
    inner = Repeat(
        name="round",
        times=2,
        info=lambda run: {"round": run.cursor[-1].index},
        body=(self.say("train_step"),),
    )
    return Repeat(name="train", times=1, body=(inner,))


@pytest.mark.covers("000-M8")
def test_a_hook_with_a_parameter_named_info_is_told_what_came_of_the_round() -> None:
    class Informed(Tiny):
        def after_round(self, info: dict[str, int]) -> None:
            self.events.append(f"info {info['round']}")

    class Both:
        def __init__(self, events: list[str]) -> None:
            self.events = events

        def after_round(self, run: Run, more: int = 3, info: dict[str, int] | None = None) -> None:
            assert info is not None
            self.events.append(f"both {run.cursor[-1].index} {info['round']} {more}")

    trainer = Informed(informed)
    trainer.add(Both(trainer.events))
    trainer.fit()
    expected = ["train_step", "info 0", "both 0 0 3", "train_step", "info 1", "both 1 1 3"]
    assert trainer.events == expected


def test_what_came_of_a_round_is_asked_for_only_by_those_who_take_it() -> None:
    def plan(self: Tiny) -> Repeat:
        def asked(run: Run) -> dict[str, int]:
            raise AssertionError("nobody takes it")

        inner = Repeat(name="round", times=2, info=asked, body=(self.say("train_step"),))
        return Repeat(name="train", times=1, body=(inner,))

    class Plain(Tiny):
        def after_round(self, run: Run) -> None:
            self.events.append("run")

    assert Plain(plan).fit().status == "finished"


def test_info_where_there_is_none_is_refused_before_any_work() -> None:
    class Early(Tiny):
        def before_round(self, info: dict[str, int]) -> None: ...

    trainer = Early(informed)
    with pytest.raises(HookError, match=r"before_round\(info\) takes 1 argument; .* the Run$"):
        trainer.fit()
    assert trainer.events == []


@pytest.mark.covers("000-M5")
def test_before_train_may_take_the_state_that_fit_was_given() -> None:
    class Asking(Tiny):
        def before_train(self, trainer_state: object) -> None:
            self.events.append(f"state {trainer_state}")

    trainer = Asking(plan)
    trainer.fit()
    assert trainer.events[0] == "state None"
    state = trainer.state_dict() | {"run": {**Asking(plan).run.state_dict(), "boundaries": 7}}
    other = Asking(plan)
    other.fit(trainer_state=state)
    assert other.events[0] == f"state {state}"
