"""Two plans that guard the design, each paused by a real signal and resumed: a fused one, a long one."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch

from ludus.core import Interrupted, Repeat, Run, Stage, Trainer
from ludus.core.runtime import InMemoryRuntime
from ludus.nn.engines.compiled import CompiledMethod, compile_method
from ludus.process.signals import Signals, ended_at_once, on_stop
from ludus.testing.differences import ending_of
from tests.conftest import modules_in

TOYS = modules_in("contracts/trainers")


class SignalAt:
    """A callback that sends this process a signal in the middle of its n-th iteration."""

    def __init__(self, iteration: int) -> None:
        self._iteration = iteration

    def before_iteration(self, run: Run) -> None:
        if run.counters["iteration"] == self._iteration:
            os.kill(os.getpid(), signal.SIGTERM)


def test_a_fused_iteration_paused_by_a_signal_goes_on_to_the_same_bytes(tmp_path: Path) -> None:
    toy = TOYS["toy_fused"]
    whole = toy.make()
    whole.add(SignalAt(-1))
    assert whole.fit(root=str(tmp_path), name="whole").status == "finished"
    paused = toy.make()
    paused.add(SignalAt(3))
    result = paused.fit(root=str(tmp_path), name="paused")
    assert result.status == "interrupted"
    assert result.counters["iteration"] == 4, "the stage under way must be finished"
    again = toy.make()
    again.add(SignalAt(-1))
    assert again.fit(root=str(tmp_path), name="paused", resume=True).status == "finished"
    assert ending_of(tmp_path / "paused") == ending_of(tmp_path / "whole")


def done(place: Path) -> list[str]:
    return (place / "journals/jobs.jsonl").read_text().splitlines()


def test_a_long_stage_paused_by_a_signal_does_no_piece_twice(tmp_path: Path) -> None:
    toy = TOYS["toy_long"]
    whole = toy.make()
    assert whole.fit(root=str(tmp_path), name="whole").status == "finished"

    paused = toy.make()
    paused.interrupt_after = 4
    result = paused.fit(root=str(tmp_path), name="paused")
    assert result.status == "interrupted"
    assert len(done(tmp_path / "paused")) == 4, "it must stop between two pieces"

    again = toy.make()
    again.interrupt_after = None
    assert again.fit(root=str(tmp_path), name="paused", resume=True).status == "finished"
    assert done(tmp_path / "paused") == done(tmp_path / "whole"), (
        "a piece was done twice or left out"
    )
    assert ending_of(tmp_path / "paused") == ending_of(tmp_path / "whole")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_while_the_update_is_compiled_ends_the_run_at_once(
    number: signal.Signals,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    request: pytest.FixtureRequest,
) -> None:
    class Doubler:
        def double(self, number: torch.Tensor) -> torch.Tensor:
            return number * 2

    def interrupted(self: CompiledMethod, traced: Any, inputs: Any, **options: Any) -> Any:
        os.kill(os.getpid(), number)
        return traced.forward

    monkeypatch.setattr(CompiledMethod, "_build", interrupted)
    run = Run()
    if number == signal.SIGHUP:
        # Where a terminal's end is ignored, as under nohup, a run leaves it so.
        own = signal.signal(number, signal.SIG_DFL)
        request.addfinalizer(lambda: signal.signal(number, own))
    # Nobody is impatient where the terminal was closed.
    is_patient = number == signal.SIGHUP
    ends = contextlib.nullcontext() if is_patient else pytest.raises(KeyboardInterrupt)
    with Signals(run), ends:
        compile_method(Doubler().double, torch.device("cpu"))(torch.ones(2))
    assert run.interrupted
    told = capfd.readouterr().err.strip()
    assert is_patient != told.endswith(": stopping at once, while the update is compiled")
    # The compiler has been left, so that a later signal waits for the boundary again.
    with Signals(Run()):
        os.kill(os.getpid(), signal.SIGINT)
    assert "when the next boundary is reached" in capfd.readouterr().err


def test_a_display_that_is_drawn_shows_what_a_signal_says_and_nothing_is_written_over_it(
    capfd: pytest.CaptureFixture[str],
) -> None:
    class Drawn:
        def __init__(self, is_open: bool) -> None:
            self.is_open, self.notices = is_open, list[str]()

        def notice(self, text: str) -> bool:
            self.notices.append(text)
            return self.is_open

    for is_open in (True, False):
        run = Run()
        run.display = shown = Drawn(is_open)  # type: ignore[assignment]
        with Signals(run):
            os.kill(os.getpid(), signal.SIGINT)
        assert shown.notices[0].startswith("SIGINT: saving and stopping")
        assert ("SIGINT" in capfd.readouterr().err) != is_open


def test_an_interrupt_that_a_shell_let_a_background_job_ignore_stops_a_search_too() -> None:
    before, stopped = signal.signal(signal.SIGINT, signal.SIG_IGN), list[bool]()
    try:
        with on_stop(lambda: stopped.append(True)) as heard:
            os.kill(os.getpid(), signal.SIGINT)
            assert (heard, stopped) == ([signal.SIGINT], [True])
        assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_handlers_of_the_program_are_put_back_after_a_run(number, tmp_path: Path) -> None:
    before = signal.getsignal(number)
    TOYS["toy_fused"].make().fit(root=str(tmp_path))
    assert signal.getsignal(number) is before


def test_a_run_says_once_that_it_compiles_before_it_does() -> None:
    run, told = Run(), list[str]()
    run.tell = lambda text, **_: told.append(text)
    with Signals(run):
        for _ in range(2):
            with ended_at_once("the update is compiled"):
                assert told == ["the update is compiled: some seconds, fewer once it is cached"]
    with ended_at_once("the network is compiled"):
        assert len(told) == 1


def test_what_a_stage_that_gave_up_has_left_is_saved_as_the_last_checkpoint() -> None:
    saved: list[bool] = []

    class Noting(InMemoryRuntime):
        def checkpoint(self, run: Run, /) -> None:
            saved.append(run.is_pausing)

    class GivesUp(Trainer):
        def prepare(self, *, max_steps: int | None) -> None: ...
        def parts(self) -> dict[str, Any]:
            return {}

        def plan(self) -> Repeat:
            first = Stage(name="first", work=lambda run: None)
            return Repeat(name="train", times=1, body=(first, Stage(name="long", work=self.long)))

        def long(self, run: Run) -> None:
            raise Interrupted

    assert GivesUp(None).fit(runtime=Noting).status == "interrupted"
    assert saved == [False, True]
