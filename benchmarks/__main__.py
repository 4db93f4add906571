"""The command line of the benchmarks: `python -m benchmarks NAME --json FILE [--rounds N]`."""

import argparse
import ast
import importlib
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks._harness import BenchmarkError, Row, describe_machine

FOLDER = Path(__file__).parent


def main() -> None:
    """Run the named benchmark, print its table, and write its rows."""
    names = benchmark_names()
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measure ludus beside its peers.",
        epilog="names:\n" + "\n".join(f"  {name:12} {_summary(name)}" for name in names),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", metavar="NAME", choices=names, help="which benchmark to run")
    parser.add_argument(
        "--json", metavar="FILE", type=Path, required=True, help="where to write the rows"
    )
    parser.add_argument(
        "--rounds", metavar="N", type=int, default=3, help="how often to measure each system (3)"
    )
    options = parser.parse_args()
    if options.rounds < 1:
        parser.error(f"--rounds is {options.rounds}; it must be 1 or more")
    if not options.json.absolute().parent.is_dir():
        parser.error(f"--json is {options.json}, whose folder does not exist")
    try:
        rows = importlib.import_module(f"benchmarks.{options.name}").run(options.rounds)
    except BenchmarkError as failure:
        sys.exit(str(failure))
    options.json.write_text(json.dumps([asdict(row) for row in rows], indent=2) + "\n")
    console = Console()
    console.print(as_table(options.name, rows))
    console.print(describe_machine(), highlight=False, soft_wrap=True)


def benchmark_names() -> list[str]:
    """Return the name of every benchmark in this folder, in order."""
    return sorted(file.stem for file in FOLDER.glob("*.py") if not file.name.startswith("_"))


def as_table(title: str, rows: Sequence[Row]) -> Table:
    """Return the rows as a table to print."""
    table = Table(title=title)
    for heading in ("work", "system"):
        table.add_column(heading)
    for heading in ("value", "unit", "spread", "ratio"):
        table.add_column(heading, justify="left" if heading == "unit" else "right")
    for row in rows:
        ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
        table.add_row(
            row.work, row.system, f"{row.value:,.1f}", row.unit, f"{row.spread:,.1f}", ratio
        )
    return table


def _summary(name: str) -> str:
    """Return the first line of a benchmark's docstring without importing what it measures."""
    docstring = ast.get_docstring(ast.parse((FOLDER / f"{name}.py").read_text()))
    return docstring.splitlines()[0] if docstring else ""


if __name__ == "__main__":
    main()
