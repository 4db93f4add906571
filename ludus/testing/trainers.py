"""Contract of a trainer: killed anywhere and resumed, it ends as if it had never been killed."""

from __future__ import annotations

import functools
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from ludus.core.errors import LudusError
from ludus.core.run import Observer, Run, Stateful
from ludus.core.runtime import Request, Result
from ludus.core.trainer import Trainer
from ludus.session.exactness import DIFFERS
from ludus.session.session import Session
from ludus.store import checkpoint, directory
from ludus.store.overlap import WEIGHTS
from ludus.store.places import below, open_storage
from ludus.testing.differences import Ending, differences, ending_of
from ludus.testing.recorder import listen
from ludus.testing.undeclared import UndeclaredState

Make = Callable[[], Trainer]
Level = Literal["light", "whole"]
# Parts that a session adds, and what the suite itself listens with.
_NOT_THE_TRAINERS = ("run", "logger", "random", "callback.recorder")
_FEWEST_BOUNDARIES = 4


class Killed(BaseException):
    """Stands for SIGKILL inside one process: nothing of ludus may catch it and continue."""


class Watched(Session):
    """A session with more observers, and optionally one part whose saved state is left out.

    `lost` receives, for each load, whether leaving the part out lost anything. If it lost nothing the run
    is killed, because it would continue like any resume.
    """

    def __init__(
        self,
        trainer: Trainer,
        request: Request,
        *,
        watch: Sequence[Observer],
        leave_out: str | None,
        lost: list[bool] | None = None,
    ) -> None:
        self._lost = lost
        super().__init__(trainer, request)
        self._watch = watch
        self._leave_out = leave_out

    def open(self, run: Run, parts: Mapping[str, Stateful]) -> Mapping[str, Any] | None:
        self._fresh = {**parts, "logger": self._logger, "random": self._random}
        return super().open(run, parts)

    def _load(self) -> checkpoint.Saved | None:
        saved = super()._load()
        if saved is not None and self._leave_out is not None:
            fresh = dict(self._fresh[self._leave_out].state_dict())
            kept = saved.state[self._leave_out]
            if self._lost is not None:
                self._lost.append(checkpoint.digest_of(kept) != checkpoint.digest_of(fresh))
                if not self._lost[-1]:
                    raise Killed
            saved.state[self._leave_out] = fresh
        return saved

    def observers(self) -> Sequence[Observer]:
        return [*super().observers(), *self._watch]


def run_trainer(
    make: Make,
    root: str | Path,
    name: str,
    *,
    kill_at: int | None = None,
    leave_out: str | None = None,
    lost: list[bool] | None = None,
    watch: Callable[[Trainer], Observer] | None = None,
) -> Result | None:
    """Run a fresh trainer, or resume its run; None means it was killed at that boundary."""
    trainer = make()
    if trainer.config.settings.checkpoint.every_stages == 0:
        # Without checkpoints a kill would only prove that a run can be started again.
        trainer.config = trainer.config.replace(**{"settings.checkpoint.every_stages": 5})
    listen(trainer)
    watchers: list[Observer] = [watch(trainer)] if watch is not None else []

    def kill(run: Run) -> None:
        if kill_at is not None and run.boundaries >= kill_at:
            raise Killed

    watchers.append(kill)
    runtime = functools.partial(Watched, watch=watchers, leave_out=leave_out, lost=lost)
    try:
        return trainer.fit(root=str(root), name=name, resume=True, runtime=runtime)
    except Killed:
        return None


def count_boundaries(place: str | Path) -> int:
    """Return the number of boundaries that an ended run passed."""
    return checkpoint.numbers(open_storage(place))[-1]


def _run_unbroken(make: Make, root: str | Path) -> Ending:
    """Return the ending of a run without kills; checks with the same root share it."""
    if open_storage(below(root, "unbroken")).names("checkpoints") == []:
        run_trainer(make, root, "unbroken")
    return ending_of(below(root, "unbroken"))


def check_kill_anywhere(make: Make, root: str | Path, *, max_kills: int = 12) -> None:
    """Kill at boundaries spread over the whole run, resume each, and compare with an unbroken run."""
    unbroken = _run_unbroken(make, root)
    total = count_boundaries(below(root, "unbroken"))
    instants = sorted({1 + index * total // max_kills for index in range(max_kills)} | {total})
    for instant in instants:
        _check_killed_at(instant, make, root, unbroken=unbroken, total=total)


def _check_killed_at(
    instant: int, make: Make, root: str | Path, *, unbroken: Ending, total: int
) -> None:
    """Kill a run at one boundary, resume it, and compare with the unbroken one."""
    name = f"killed-{instant}"
    assert run_trainer(make, root, name, kill_at=instant) is None, f"{name} was not killed"
    result = run_trainer(make, root, name)
    assert result is not None, f"{name} was killed twice"
    assert result.status in ("finished", "stopped"), result
    found = ending_of(below(root, name))
    assert found.heard == unbroken.heard, f"killed at {instant}: other events were heard"
    if found != unbroken:
        differing = "; ".join(differences(below(root, "unbroken"), below(root, name)))
        raise AssertionError(
            f"killed at boundary {instant} of {total}: other bytes at the end: {differing}"
        )
    _check_witness(below(root, name), below(root, "unbroken"))


def check_effects_once(begin: Callable[[], tuple[Make, Sequence[str]]], root: Path) -> None:
    """Kill at every boundary, resume, and compare the effects outside the run with an unbroken one.

    `begin` returns, for each run, a function that makes its trainer and a list to which each effect outside
    the run adds its key: a job that was paid, a label that was requested.
    """
    make, expected = begin()
    run_trainer(make, root, "unbroken")
    assert expected, "this run does nothing outside itself, so this proves nothing"
    for instant in range(1, count_boundaries(root / "unbroken") + 1):
        make, found = begin()
        run_trainer(make, root, f"killed-{instant}", kill_at=instant)
        run_trainer(make, root, f"killed-{instant}")
        for key in {*expected, *found}:
            count = found.count(key)
            assert count == expected.count(key), (
                f"killed at boundary {instant}: '{key}' was done {count} times; ask run.journal first"
            )


def check_kill_chain(make: Make, root: Path, *, max_kills: int = 10) -> None:
    """Kill one run repeatedly, at equal intervals, until it ends; compare."""
    unbroken = _run_unbroken(make, root)
    total = count_boundaries(root / "unbroken")
    for instant in sorted({total * (1 + index) // (max_kills + 1) for index in range(max_kills)}):
        run_trainer(make, root, "chain", kill_at=instant)
    run_trainer(make, root, "chain")
    assert ending_of(root / "chain") == unbroken, "a chain of kills shows"
    _check_witness(root / "chain", root / "unbroken")


def _check_witness(place: str | Path, unbroken: str | Path) -> None:
    """Check that no resume that ended with the same bytes reported a difference on the way."""
    storage, whole = open_storage(place), open_storage(unbroken)
    reasons = directory.event_reasons(storage, DIFFERS)
    assert not reasons, f"{place}: {reasons[0]}"
    digests = [one.read(WEIGHTS) for one in (storage, whole) if one.exists(WEIGHTS)]
    assert digests in ([], digests[:1] * 2), f"{place}: other digests of the weights"


def check_negative_controls(
    make: Make,
    root: Path,
    *,
    inert: Sequence[str] = (),
    refusals: Mapping[str, str] | None = None,
) -> None:
    """Leave out each part in turn on resume: the end must differ, or the check above proves nothing.

    `inert` names parts that cannot matter in this run, such as generators that are never used;
    `refusals` holds, by part, words of the message with which a run may refuse to continue without it.
    Only a divergence or that refusal counts: a run that crashes for another reason proves nothing.
    """
    unbroken = _run_unbroken(make, root)
    total = count_boundaries(root / "unbroken")
    instants = [total * share // 8 for share in (4, 5, 3, 6, 2, 7, 1)]
    storage = open_storage(root / "unbroken")
    for part in checkpoint.read(storage, checkpoint.numbers(storage)[-1]).state:
        if part in inert:
            continue
        lost: list[bool] = []
        refusal = (refusals or {}).get(part)
        differs = any(
            _differs_without(make, root, part, instant, unbroken, lost, refusal=refusal)
            # Whether the global generators are used shows at any boundary.
            for instant in (instants[:2] if part == "random" else instants)
            if instant
        )
        if part in ("logger", "random", "learning_rate") and not any(lost):
            # Nothing was unwritten, the global generators were not used, no rate was set.
            continue
        assert differs, (
            f"leaving out '{part}' changes nothing: give the run a config in which it matters (a judge does"
            f" if the last model is not the best), name it in inert=['{part}'], or make it no part"
        )


def _differs_without(
    make: Make,
    root: Path,
    part: str,
    instant: int,
    unbroken: Ending,
    lost: list[bool],
    *,
    refusal: str | None,
) -> bool:
    killed, name = f"cut-{instant}", f"without-{part}-{instant}"
    if not (root / killed).exists():
        run_trainer(make, root, killed, kill_at=instant)
    # Each part is left out of a copy of the one run that was killed there.
    shutil.copytree(root / killed, root / name, symlinks=True)
    try:
        result = run_trainer(make, root, name, leave_out=part, lost=lost)
    except LudusError as error:
        if refusal is None or refusal not in str(error):
            raise AssertionError(
                f"without '{part}' the run was refused, which is not the refusal expected: {error}"
            ) from error
        return True
    except Exception as error:
        raise AssertionError(
            f"without '{part}' the run crashed, which shows nothing: {type(error).__name__}: {error}"
        ) from error
    return result is not None and ending_of(root / name) != unbroken


def check_all_state_is_declared(make: Make, root: Path, *, name: str = "watched") -> None:
    """Fail on any attribute of the trainer that changes between boundaries and is in no part.

    `name` is that of the run that is watched, which nobody kills.
    """
    watchers: list[UndeclaredState] = []

    def watch(trainer: Trainer) -> Observer:
        watchers.append(UndeclaredState(trainer))
        return watchers[-1]

    run_trainer(make, root, name, watch=watch)
    found = watchers[0].found()
    assert not found, f"these change during a run but belong to no part: {', '.join(found)}"


def check_trainer(
    make: Make,
    root: Path,
    *,
    inert: Sequence[str] = (),
    refusals: Mapping[str, str] | None = None,
    level: Level = "whole",
) -> None:
    """Check the contract of a trainer: exact after kills, every part needed, no state undeclared.

    The whole contract makes about 45 runs, and up to 7 more for each part:

    kills       13 runs killed at boundaries spread over the run and resumed
    chain       one run killed 10 times
    controls    each part left out on resume, at up to 7 boundaries, until the end differs
    state       one run, watched for attributes that change and are in no part

    So give it a run of about a second: a small network, 30 to 100 boundaries, `every_stages` between 2
    and 5 so that a kill loses something, every periodic stage at least three times.

    A run with an `AsyncEvaluator` starts a process, which takes seconds whatever the config says. For
    such a trainer, and where the suite runs at every change, `level="light"` makes 8 runs: one is killed in
    the middle, one is killed twice, and parts are left out in the middle until one shows.

    `inert` and `refusals` are those of `check_negative_controls`.
    """
    if level == "light":
        _check_lightly(make, root, inert=inert, refusals=refusals or {})
        return
    check_kill_anywhere(make, root)
    check_kill_chain(make, root)
    check_negative_controls(make, root, inert=inert, refusals=refusals)
    check_all_state_is_declared(make, root)


def _check_lightly(
    make: Make, root: Path, *, inert: Sequence[str], refusals: Mapping[str, str]
) -> None:
    """Check one kill, one chain, one negative control and that all state is declared."""
    check_all_state_is_declared(make, root, name="unbroken")
    unbroken, total = ending_of(root / "unbroken"), count_boundaries(root / "unbroken")
    assert total >= _FEWEST_BOUNDARIES, (
        f"the run passes {total} boundaries, too few to be killed between; give it at least"
        f" {_FEWEST_BOUNDARIES}"
    )
    middle = total // 2
    _check_killed_at(middle, make, root, unbroken=unbroken, total=total)
    check_kill_chain(make, root, max_kills=2)
    storage = open_storage(root / "unbroken")
    state = checkpoint.read(storage, checkpoint.numbers(storage)[-1]).state
    parts = [part for part in state if part not in (*_NOT_THE_TRAINERS, *inert)]
    assert any(
        _differs_without(make, root, part, middle, unbroken, [], refusal=refusals.get(part))
        for part in parts
    ), f"leaving out any of {', '.join(parts)} changes nothing: are they parts at all?"
