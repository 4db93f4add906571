"""Tag runs, and delete them: what `ludus runs` changes."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from ludus.cli.film import is_film
from ludus.cli.listing import Wanted, chosen_runs
from ludus.core.errors import LudusError, RunError
from ludus.show.report.page import is_report
from ludus.show.terminal import clean, pass_on, say, warn
from ludus.store.deletion import Deletable, check_deletable, delete_run
from ludus.store.places import open_storage
from ludus.store.run_rows import Row
from ludus.store.strict_json import one_line
from ludus.store.tags import change_tags, check_tag


def tag_runs(
    root: str, wanted: Wanted, add: Sequence[str], drop: Sequence[str], *, as_json: bool
) -> None:
    """Add and remove tags of the runs that are meant, and print these."""
    for tag in (*add, *drop):
        check_tag(tag)
    if both := sorted({*add} & {*drop}):
        raise LudusError(f"the tag {both[0]} is to be added and removed; choose one")
    rows = _meant(root, wanted, "tag")
    for row in rows:
        row["tags"] = change_tags(open_storage(row["run_dir"]), add, drop)
    if as_json:
        pass_on(one_line({"root": root, "runs": rows}) + "\n")
        return
    for row in rows:
        say(f"{row['run_dir']}: {', '.join(row['tags']) or 'no tags'}")


def delete_runs(root: str, wanted: Wanted, *, is_sure: bool, as_json: bool) -> None:
    """Delete the runs that are meant, after asking; nothing is deleted if one of them cannot be."""
    rows = _meant(root, wanted, "delete")
    found = [check_deletable(row["run_dir"], is_output) for row in rows]
    if not is_sure:
        if as_json or not (sys.stdin and sys.stdin.isatty()):
            raise LudusError(
                f"deleting {_number(found)} asks first, and nobody can answer here; add --yes"
            )
        for one in found:
            say(_words(one))
        if not _answer(f"delete {_number(found)}? [y/N] "):
            say("nothing was deleted")
            return
    for one in found:
        delete_run(one.place, is_output)
        if not as_json:
            say(f"deleted {_words(one)}")
    if as_json:
        pass_on(one_line({"root": root, "deleted": [one.place for one in found]}) + "\n")


def is_output(path: Path) -> bool:
    """Return whether a command of ludus wrote this file or folder into a run."""
    if path.is_dir():
        from ludus.nn.export.files import is_policy

        inside = [*path.iterdir()]
        return bool(inside) and (is_policy(path) or all(map(_is_program, inside)))
    if path.name == "report.html":
        return is_report(path)
    return is_film(path) if path.name == "play.gif" else _is_program(path)


def _is_program(path: Path) -> bool:
    if path.suffix not in (".pt2", ".onnx") or not path.is_file():
        return False
    from ludus.nn.export.programs import is_program

    return is_program(path)


def _meant(root: str, wanted: Wanted, what: str) -> list[Row]:
    """Return the rows of the runs that words name; raise LudusError if there are no words, or no runs."""
    if not wanted.words:
        raise LudusError(
            f"name the runs to {what}, as in `ludus runs NAME --{what} ...`, or kind=ppo"
        )
    rows = chosen_runs(root, wanted).rows
    if not rows:
        raise RunError(
            f"no run in {root} meets {' '.join(wanted.words)}; `ludus runs` lists the runs there are"
        )
    return rows


def _answer(question: str) -> bool:
    warn(question)
    return (sys.stdin.readline().strip().lower()) in ("y", "yes")


def _number(found: Sequence[Deletable]) -> str:
    return "1 run" if len(found) == 1 else f"{len(found)} runs"


def _words(found: Deletable) -> str:
    size = found.num_bytes / 1e6
    return clean(f"{found.place} ({len(found.files)} files, {size:.1f} MB)")
