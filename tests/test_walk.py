"""The pictures in docs/architecture.md are true: the commands pass through the functions they draw."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from types import FrameType

from typer.testing import CliRunner

import ludus
from ludus.cli.commands import app
from ludus.config.registry import kinds

PACKAGE = Path(ludus.__file__).parent
PAGE = PACKAGE.parent / "docs" / "architecture.md"
CALL = re.compile(r" +\| (?P<file>\S+\.py) +(?P<function>[\w.]+)")
Call = tuple[str, str]

TRAIN = [
    "max_epochs=2",
    "learning_rate_schedule.warmup_steps=5",
    "evaluation.patience=null",
    "settings.display=plain",
]
STEPS = [
    "steps.max_opt_steps=3",
    "steps.evaluate_every_opt_steps=0",
    "steps.log_every_opt_steps=0",
    "steps.keep_every_opt_steps=0",
    "evaluation.target=null",
    "learning_starts=16",
    "batch_size=8",
    "settings.display=none",
]


def drawn(command: str) -> list[Call]:
    """Return the calls that the picture after the mention of this command shows, in order."""
    _, _, rest = PAGE.read_text(encoding="utf-8").partition(f"`ludus {command}`")
    lines = rest.splitlines()[1:]
    start = next(number for number, line in enumerate(lines) if line.startswith("    "))
    found = []
    for line in lines[start:]:
        if line and not line.startswith("    "):
            break
        if match := CALL.match(line):
            found.append((match["file"], match["function"]))
    return found


def room(call: Call) -> str:
    return call[0].split("/")[0]


@contextmanager
def followed() -> Iterator[list[Call]]:
    """Note every function of ludus when it is first called, in this process's threads."""
    calls: dict[Call, None] = {}
    start = f"{PACKAGE}/"

    def look(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        # What a room declares is asked of it by the config, whatever the config is of.
        is_declared = code.co_filename.endswith(("/declared.py", "/migrations.py"))
        if event == "call" and code.co_filename.startswith(start) and not is_declared:
            calls.setdefault((code.co_filename.removeprefix(start), code.co_qualname))

    found: list[Call] = []
    threading.setprofile(look)
    sys.setprofile(look)
    try:
        yield found
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
        found += calls


def follow(*words: str) -> list[Call]:
    # Modules are imported first, so that what they run at import is not taken for a call.
    for category in ("trainer", "env", "wrapper", "logger", "dataset", "model"):
        kinds(category)
    with followed() as calls:
        result = CliRunner().invoke(app, words, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return calls


def mistakes(picture: list[Call], calls: list[Call], *, undrawn: Collection[str] = ()) -> list[str]:
    """Return what a picture draws that was not so, and which rooms were passed that it lacks."""
    found = [f"{call} is drawn, but never called" for call in picture if call not in calls]
    called = [call for call in dict.fromkeys(picture) if call in calls]
    for before, after in pairwise(called):
        if calls.index(before) > calls.index(after):
            found.append(f"{after} is drawn after {before}")
    passed = {room(call) for call in calls} - {room(call) for call in picture} - {*undrawn}
    return found + [f"the room {name} is passed, but not drawn" for name in sorted(passed)]


def write_new(kind: str, path: Path) -> str:
    path.write_text(CliRunner().invoke(app, ["new", kind]).output, encoding="utf-8")
    return str(path)


def test_train_and_resume_pass_the_rooms_that_are_drawn(tmp_path: Path) -> None:
    root, digits = tmp_path / "runs", write_new("supervised", tmp_path / "digits.yaml")
    calls = follow("train", digits, *TRAIN, "--root", str(root))
    assert mistakes(drawn("train digits.yaml"), calls) == []
    calls = follow("resume", str(root / "digits"), "max_epochs=3")
    assert mistakes(drawn("resume runs/digits"), calls) == []


def test_a_transition_becomes_a_gradient_in_the_rooms_that_are_drawn(tmp_path: Path) -> None:
    picture, dqn = drawn("train dqn.yaml"), write_new("dqn", tmp_path / "dqn.yaml")
    calls = follow("train", dqn, *STEPS, "--root", str(tmp_path / "runs"))
    # Building comes before the first transition and saving after the last gradient.
    between = calls[calls.index(picture[0]) : calls.index(picture[-1]) + 1]
    assert mistakes(picture, between, undrawn=("core", "session", "show")) == []


def test_a_picture_that_is_not_true_is_noticed() -> None:
    calls = [("cli/commands.py", "train"), ("core/loop.py", "walk"), ("store/codec.py", "encode")]
    assert mistakes(calls, calls) == []
    assert mistakes([], []) == []
    swapped = mistakes([calls[0], calls[2], calls[1]], calls)
    assert swapped == [f"{calls[1]} is drawn after {calls[2]}"]
    assert mistakes(calls[:2], calls) == ["the room store is passed, but not drawn"]
    more = ("seeds.py", "derive")
    assert mistakes([*calls, more], calls) == [f"{more} is drawn, but never called"]
