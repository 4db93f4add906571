"""Run a user's script as `python SCRIPT` would, and catch the trainer that it makes for a run."""

from __future__ import annotations

import contextlib
import io
import runpy
import shlex
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from ludus.core import trainer as core
from ludus.core.errors import LudusError
from ludus.core.runtime import Result


class ScriptFailed(LudusError):
    """A script ended with an error; its cause is the error itself."""


def run_as_main(script: str, arguments: Sequence[str]) -> None:
    """Run a script as `python SCRIPT ARGUMENTS` would, without standard input; raise ScriptFailed."""
    with _as_main(script, arguments):
        try:
            runpy.run_path(script, run_name="__main__")
        except SystemExit as ended:
            if ended.code not in (None, 0):
                raise ScriptFailed(f"it ended with exit({ended.code!r})") from None
        except Exception as error:
            problem = str(error).partition("\n")[0]
            raise ScriptFailed(
                f"{type(error).__name__}: {problem}{_line_of(error, script)}"
            ) from error


def _line_of(error: Exception, script: str) -> str:
    """Return the innermost line of the script itself, where the mistake probably is."""
    lines = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if Path(frame.filename).absolute() == Path(script).absolute()
    ]
    return f" (line {lines[-1]})" if lines else ""


@contextlib.contextmanager
def _as_main(script: str, arguments: Sequence[str]) -> Iterator[None]:
    """Set what Python sets for a script; its directory stays in the import path, for later imports."""
    before = sys.argv, sys.stdin
    sys.argv, sys.stdin = [script, *arguments], NoInput()
    folder = str(Path(script).absolute().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.argv, sys.stdin = before


class NoInput(io.StringIO):
    """Standard input that refuses to be read, because no user is there to answer."""

    def _refuse(self) -> NoReturn:
        raise LudusError(
            "it reads standard input, which nobody answers here; give what it asks for as arguments,"
            " after --"
        )

    def read(self, size: int | None = -1, /) -> str:
        """Raise LudusError: there is no input."""
        self._refuse()

    def readline(self, size: int = -1, /) -> str:  # type: ignore[override]
        """Raise LudusError: there is no input."""
        self._refuse()

    def __next__(self) -> str:  # type: ignore[override]
        self._refuse()


class _Caught(BaseException):
    """Ends a script at the fit that was looked for; not an Exception, which a script may handle."""


def trainer_of_script(words: str, note: Mapping[str, Any], *, place: str) -> core.Trainer:
    """Return the trainer whose `fit` in a script would begin or resume the run with this note.

    `words` are the script and its arguments, as in a shell. The script is run up to that `fit`; those of
    other runs train nothing.
    """
    script, *arguments = [words] if Path(words).is_file() else shlex.split(words) or [""]
    if not Path(script).is_file():
        raise LudusError(f"there is no script {script}; give the path of a Python file")
    fits = _Fits(str(note.get("name")))
    failed: ScriptFailed | None = None
    # Standard output is for the result of the command alone.
    with contextlib.redirect_stdout(sys.stderr), fits.caught():
        try:
            run_as_main(script, arguments)
        except _Caught:
            return _of_kind([fits.found[-1][1]], note, script, place)
        except ScriptFailed as error:
            failed = error
    kind = note.get("kind")
    same = [(name, one) for name, one in fits.found if one.config.kind == kind]
    if len(same) > 1:
        names = ", ".join(name for name, _ in same)
        raise LudusError(
            f"{script} trains {names}, none of which is named {note.get('name')}; give the arguments that it"
            f" was run with, as in --script '{script} ...'"
        )
    if failed is not None and not same:
        raise LudusError(f"{script} failed before the fit of {place}: {failed}") from failed
    if not fits.found:
        raise LudusError(
            f"{script} makes no trainer: it came to its end without a fit; give the script that began {place}"
        )
    return _of_kind([one for _, one in same or fits.found], note, script, place)


def _of_kind(
    found: Sequence[core.Trainer], note: Mapping[str, Any], script: str, place: str
) -> core.Trainer:
    """Return the first trainer; raise LudusError unless it is of the kind of the run."""
    own, kind = found[0].config.kind, note.get("kind")
    if own != kind:
        raise LudusError(
            f"{script} makes a trainer of kind '{own}', and {place} is a run of kind '{kind}'; give the"
            " script that began it"
        )
    return found[0]


class _Fits:
    """The trainers on which a script called `fit`, by the name of the run that each would be."""

    def __init__(self, wanted: str) -> None:
        self._wanted = wanted
        self.found: list[tuple[str, core.Trainer]] = []

    @contextlib.contextmanager
    def caught(self) -> Iterator[None]:
        """Replace `fit` of all trainers inside the block."""
        own = core.Trainer.fit

        def fit(trainer: core.Trainer, *given: object, **options: Any) -> Result:
            return self._note(trainer, options.get("name"))

        core.Trainer.fit = fit  # type: ignore[method-assign, assignment]
        try:
            yield
        finally:
            core.Trainer.fit = own  # type: ignore[method-assign]

    def _note(self, trainer: core.Trainer, name: object) -> Result:
        """Note the trainer; end the script if its run is the one looked for, else return an empty result."""
        storage = trainer.storage
        name = name or getattr(storage, "name", None) or getattr(trainer.config, "name", "")
        self.found.append((str(name), trainer))
        if name == self._wanted:
            raise _Caught
        reason = f"not run, for the run {self._wanted} is looked for"
        return Result("interrupted", reason, dict(trainer.run.counters))
