"""`python -m tests.mutation breaks` tries the list in breaks.py, `... mutants` draws changes at random.

Both print one line a change and write what survived to a JSON file if asked. `mutants` needs the extra
`mutation` (cosmic-ray).
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.mutation.breaks import BREAKS, TESTS, changed, tests_of
from tests.mutation.forked import Outcome, outcome, warm_up
from tests.mutation.mutants import draw


def _tried(what: str, options: argparse.Namespace) -> Iterator[tuple[str, Path, str, str, str]]:
    """Yield folder, file, the line before and after, and the whole changed file."""
    if what == "breaks":
        for folder, path, before, after in BREAKS:
            if options.folder in (None, folder):
                yield folder, Path(path), before, after, changed(path, before, after)
        return
    for folder in TESTS:
        if options.folder in (None, folder):
            chance = random.Random(f"{options.seed} {folder}")
            for mutant in draw(Path(folder), options.count, chance):
                told = f"{mutant.line}: {mutant.before}"
                yield folder, mutant.path, told, mutant.after, mutant.source


def _outcome(folder: str, path: Path, source: str, *, seconds: float) -> Outcome:
    """Return whether any tests notice; the nearest are asked first, for collecting all takes long."""
    found: Outcome = "survived"
    for tests in tests_of(folder, path):
        if found == "survived":
            found = outcome(path, source, tests, seconds=seconds)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("what", choices=["breaks", "mutants"])
    parser.add_argument("--folder", choices=list(TESTS))
    parser.add_argument("--count", type=int, default=25, help="mutants a folder")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=240.0, help="how long the tests may take")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    warm_up()
    for folder, tests in TESTS.items():
        path = next(Path(folder).glob("[a-z]*.py"))
        if options.folder in (None, folder):
            found = outcome(path, path.read_text(), tests, seconds=options.seconds)
            print(f"unchanged, {folder}: {found}", flush=True)
            if found != "survived":
                raise SystemExit(f"the tests of {folder} do not pass as they are; mend them first")
    rows: list[dict[str, Any]] = []
    for folder, path, before, after, source in _tried(options.what, options):
        started = time.monotonic()
        found = _outcome(folder, path, source, seconds=options.seconds)
        rows.append({"file": str(path), "before": before, "after": after, "outcome": found})
        print(
            f"{found:9} {time.monotonic() - started:5.1f}s {path}  {before}  ->  {after}",
            flush=True,
        )
        if options.json:
            options.json.write_text(json.dumps(rows, indent=1))
    survived = sum(row["outcome"] == "survived" for row in rows)
    print(f"{len(rows)} changes, {len(rows) - survived} noticed, {survived} survived")
    sys.exit(bool(survived and options.what == "breaks"))


main()
