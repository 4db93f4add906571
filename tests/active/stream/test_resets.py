"""A datacenter that judges hears of each reset, once, before the next window, though it was gone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ludus.active.drift.trigger import TriggerConfig
from ludus.active.stream.judge import StreamJudge
from ludus.active.stream.wire import LinkLost, Message
from ludus.config.sections import validate
from ludus.core.errors import CheckpointError
from tests.active.stream.streams import Recorder, edge, estimation, lines

THERE: dict[str, Any] = {
    "state_estimation_host": "datacenter", "state_estimation": None, "wait_for_update": False,
}  # fmt: skip
ONCE = {**estimation(0.000001), "max_consecutive": 1}


class Gone(Recorder):
    """A datacenter that is gone from the first reset on, for some questions; it may have heard the first."""

    def __init__(self, root: Path, *, questions: int, hears: bool = False) -> None:
        super().__init__(root, state_estimation=ONCE)
        self._questions, self._hears, self._is_gone = questions, hears, False

    def ask(self, kind: str, header: Any, tensors: Any) -> Message:
        is_first = kind == "reset_state" and not self._is_gone
        self._is_gone |= is_first
        if self._is_gone and self._questions:
            self._questions -= 1
            if is_first and self._hears:
                super().ask(kind, header, tensors)
            raise LinkLost("the connection was closed by the other side")
        found = super().ask(kind, header, tensors)
        self.center._update = self.update
        return found

    @property
    def num_retrainings(self) -> int:
        trigger = self.center._edges["edge"].trigger
        assert trigger is not None
        return trigger.num_retrainings

    def order(self) -> list[str]:
        """Return what was heard of windows and resets, in its order."""
        return [one.kind for one in self.told if one.kind in ("check_state", "reset_state")]


@pytest.mark.parametrize("questions", [0, 1, 2])
@pytest.mark.parametrize("hears", [False, True])
def test_a_reset_that_was_lost_is_told_before_the_next_window(
    questions: int, hears: bool, tmp_path: Path
) -> None:
    link = Gone(tmp_path, questions=questions, hears=hears)
    one = edge(tmp_path, link, num_steps=10, **THERE)
    one.run()
    assert one.update == 1
    resets = link.heard("reset_state")
    assert {(each.header["reset"], each.header["is_retrained"]) for each in resets} == {(0, True)}
    assert len(resets) == 1 + (hears and questions > 0)
    assert link.order()[: 1 + len(resets)] == ["check_state"] + ["reset_state"] * len(resets)
    # One retraining counts once, so with max_consecutive 1 there is no other.
    assert link.num_retrainings == 1
    assert [line["retrain"] for line in lines(tmp_path)] == [True] + [False] * 4


def test_a_window_is_not_judged_while_a_reset_is_owed(tmp_path: Path) -> None:
    link = Gone(tmp_path, questions=5)
    edge(tmp_path, link, num_steps=10, **THERE).run()
    judged = ["state/entropy" in line for line in lines(tmp_path)]
    # Gone at the reset, and for both questions of each of the next two checks; then it is told.
    assert judged == [True, False, False, True, True]


def test_an_edge_that_goes_on_still_owes_the_reset(tmp_path: Path) -> None:
    link = Gone(tmp_path, questions=99)
    edge(tmp_path, link, num_steps=4, **THERE).run()
    assert link.order() == ["check_state"]
    link._questions = 0
    edge(tmp_path, link, num_steps=6, **THERE).run()
    assert link.order() == ["check_state", "reset_state", "check_state"]
    assert link.num_retrainings == 1


@pytest.mark.parametrize("owed", [True, False, None])
def test_what_a_judge_owes_is_in_its_state(owed: bool | None) -> None:
    asked: list[Any] = []

    def ask(kind: str, header: Any, tensors: Any) -> Message | None:
        asked.append((kind, dict(header)))
        return None

    one, other = StreamJudge(None, ask, seed=0), StreamJudge(None, ask, seed=0)
    if owed is not None:
        one.reset(is_retrained=owed)
    other.load_state_dict(one.state_dict())
    assert other.state_dict() == one.state_dict()
    assert one.state_dict()["owed"] is owed
    assert asked == ([] if owed is None else [("reset_state", {"reset": 0, "is_retrained": owed})])
    with pytest.raises(CheckpointError, match="'owed' is 1, not true or false"):
        other.load_state_dict({**one.state_dict(), "owed": 1})


@pytest.mark.parametrize("is_retrained", [True, False])
def test_an_edge_that_judges_itself_owes_nothing(is_retrained: bool) -> None:
    def ask(*given: Any) -> None:
        raise AssertionError

    one = StreamJudge(validate(TriggerConfig, ONCE, source="test"), ask, seed=0)
    one.reset(is_retrained=is_retrained)
    assert one.state_dict()["trigger"]["num_retrainings"] == 1
    assert one.state_dict()["owed"] is None


def test_retraining_is_noted_once_where_it_is_asked_for(tmp_path: Path) -> None:
    watched = {**estimation(0.000001), "max_consecutive": 9}
    link = Recorder(tmp_path, lag=3)
    edge(tmp_path, link, num_steps=16, state_estimation=watched, wait_for_update=False).run()
    found = lines(tmp_path)
    assert [line["retrain"] for line in found] == [True, False, False, False] * 2
    assert len(link.heard("prep_retraining")) == 2
    assert [line["update"] for line in found] == [0] * 4 + [1] * 4


def test_retraining_that_nobody_heard_of_is_not_noted(tmp_path: Path) -> None:
    class Deaf(Recorder):
        def ask(self, kind: str, header: Any, tensors: Any) -> Message:
            if kind == "prep_retraining":
                raise LinkLost("the connection was closed by the other side")
            return super().ask(kind, header, tensors)

    edge(
        tmp_path, Deaf(tmp_path), state_estimation=estimation(0.000001), wait_for_update=False
    ).run()
    assert [line["retrain"] for line in lines(tmp_path)] == [False] * 4
