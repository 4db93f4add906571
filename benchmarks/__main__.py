"""The command line of the benchmarks: `python -m benchmarks NAME --json FILE`, and `--help`."""

import argparse
import ast
import importlib
import inspect
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks._harness import BenchmarkError, Row, describe_machine

FOLDER = Path(__file__).parent
ROUNDS = 3


def main() -> None:
    """Run the named benchmark, print its table, and write its rows."""
    names = benchmark_names()
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measure ludus against its peers.",
        epilog="names:\n" + "\n".join(f"  {name:12} {_summary(name)}" for name in names),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", metavar="NAME", choices=names, help="which benchmark to run")
    parser.add_argument(
        "--json", metavar="FILE", type=Path, required=True, help="where to write the rows"
    )
    parser.add_argument(
        "--rounds",
        metavar="N",
        type=int,
        help=f"how often to measure each system ({ROUNDS}, or what the benchmark says)",
    )
    parser.add_argument(
        "--device", choices=("cpu", "cuda"), help="where to run, for a benchmark that asks (games)"
    )
    parser.add_argument(
        "--jobs",
        metavar="N",
        type=int,
        help="how many runs at once, for a benchmark that asks (arena_proof)",
    )
    options = parser.parse_args()
    if options.jobs is not None and options.jobs < 1:
        parser.error(f"--jobs is {options.jobs}; it must be 1 or more")
    if options.rounds is not None and options.rounds < 1:
        parser.error(f"--rounds is {options.rounds}; it must be 1 or more")
    if not options.json.absolute().parent.is_dir():
        parser.error(f"--json is {options.json}, whose folder does not exist")
    try:
        benchmark = importlib.import_module(f"benchmarks.{options.name}")
        rounds = options.rounds or getattr(benchmark, "ROUNDS", ROUNDS)
        asked = {"device": options.device, "jobs": options.jobs}
        chosen = {name: value for name, value in asked.items() if value is not None}
        for name in chosen:
            if name not in inspect.signature(benchmark.run).parameters:
                parser.error(f"the benchmark '{options.name}' takes no --{name}")
        rows = benchmark.run(rounds, **chosen)
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
    baseline = next((row.baseline for row in rows if row.baseline), None)
    if baseline is not None:
        table.add_column(f"ratio to {baseline}", justify="right")
    for row in rows:
        cells = [row.work, row.system, _as_value(row.value), row.unit, _as_value(row.spread)]
        cells.append(_as_ratio(row.ratio))
        if baseline is not None:
            cells.append(_as_ratio(row.ratio_to_baseline))
        table.add_row(*cells)
    return table


def _as_value(value: float) -> str:
    return f"{value:,.1f}" if abs(value) >= 10 else f"{value:.2f}"


def _as_ratio(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.2f}"


def _summary(name: str) -> str:
    """Return the first line of a benchmark's docstring without importing what it measures."""
    docstring = ast.get_docstring(ast.parse((FOLDER / f"{name}.py").read_text()))
    return docstring.splitlines()[0] if docstring else ""


if __name__ == "__main__":
    main()
