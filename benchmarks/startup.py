"""Time how long it takes to import ludus and to ask its command line for help.

Every time is the wall time of one whole interpreter, which the measuring process starts and waits
for. A bare interpreter is the reference, and a row of its own gives the import without it.
"""

import subprocess
import sys
import time

from benchmarks._harness import Case, Role, Row, measure

BARE = ("-c", "pass")
IMPORT = ("-c", "import ludus")
# This is what the console script runs, and it works from a checkout as well as installed.
HELP = ("-c", "from ludus.cli.commands import main; main()", "--help")
HAS_TORCH = ("-c", "import sys, ludus; print(int('torch' in sys.modules))")


def run(rounds: int) -> list[Row]:
    """Return the start-up times, and 1 or 0 for whether importing ludus brings torch with it."""
    return measure(
        [
            _case("import", "python", "_bare", role="reference"),
            _case("import", "ludus", "_import"),
            _case("import less bare python", "ludus", "_import_less_bare"),
            _case("ludus --help", "ludus", "_help"),
            _case("import brings torch", "ludus", "_brings_torch", unit="1 is yes"),
        ],
        rounds,
    )


def _case(work: str, system: str, function: str, *, role: Role = "ludus", unit: str = "ms") -> Case:
    """Return the case of one function of this module."""
    return Case(work, system, unit, role, module=__name__, function=function)


def _milliseconds(arguments: tuple[str, ...]) -> float:
    """Return the wall time of one interpreter with these arguments, which must succeed."""
    start = time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
    return (time.perf_counter() - start) * 1e3


def _bare() -> float:
    """Time an interpreter that does nothing."""
    return _milliseconds(BARE)


def _import() -> float:
    """Time an interpreter that imports ludus."""
    return _milliseconds(IMPORT)


def _import_less_bare() -> float:
    """Time the import alone, as the difference of two interpreters run one after the other."""
    return _milliseconds(IMPORT) - _milliseconds(BARE)


def _help() -> float:
    """Time the command line's help."""
    return _milliseconds(HELP)


def _brings_torch() -> float:
    """Say whether torch is loaded after `import ludus`, as 1.0 or 0.0."""
    answer = subprocess.run([sys.executable, *HAS_TORCH], check=True, capture_output=True)
    return float(answer.stdout)
