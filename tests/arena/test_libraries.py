"""What the libraries of the arena do when they are imported stays with the arena.

The scripts are forked from a process that has imported torch, and nothing of the arena.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.warm import WarmProcess

SCRIPT = """
import multiprocessing
import sys
import warnings
warnings.simplefilter("ignore")
assert not any(name in sys.modules for name in ("torchrl", "tensordict", "ludus.arena.libraries"))
import ludus
{before}
ludus.example("vanilla_ppo")
ludus.TensorDictRlTrainer
print(multiprocessing.get_start_method(allow_none=True))
"""


@pytest.mark.parametrize(
    ("before", "expected"),
    [("", "None"), ("multiprocessing.set_start_method('forkserver')", "forkserver")],
)
def test_how_a_script_starts_its_processes_is_left_to_the_script(
    before: str, expected: str, warm: WarmProcess, tmp_path: Path
) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(before=before))
    code, printed = warm.run("script", path=str(script))
    assert code == 0, printed
    assert printed.split()[-1] == expected


WITHOUT = """
import importlib.machinery as machinery
import sys
import warnings

warnings.simplefilter("ignore")
assert not any(name in sys.modules for name in ("torchrl", "tensordict", "ludus.arena.libraries"))
found = machinery.PathFinder.find_spec


missing = sys.argv[1]


def without(cls, name, path=None, target=None):
    return None if name.partition(".")[0] == missing else found(name, path, target)


machinery.PathFinder.find_spec = classmethod(without)
import ludus
from ludus.cli.commands import main

entries = {
    "example": lambda: ludus.example("vanilla_ppo"),
    "attribute": lambda: ludus.TensorDictRlTrainer,
    "import": lambda: __import__("ludus.arena.agents.combined"),
    "settings": lambda: ludus.build_trainer({"version": 4, "kind": "spg"}),
}
for name, entry in entries.items():
    try:
        entry()
    except ludus.LudusError as error:
        print(name, error)
for command in ("plan", "train", "explain"):
    sys.argv[1:] = [command, sys.argv[-1]]
    try:
        main()
    except SystemExit as ended:
        print(command, ended.code)
"""


@pytest.mark.parametrize("package", ["tensordict", "torchrl"])
def test_an_extra_that_is_not_installed_is_one_sentence_at_every_entry(
    package: str, tmp_path: Path, warm: WarmProcess
) -> None:
    file = tmp_path / "graphs.yaml"
    file.write_text((Path(__file__).parents[2] / "configs" / "vanilla_ppo.yaml").read_text())
    script = tmp_path / "script.py"
    script.write_text(WITHOUT)
    done = warm.script(script, package, str(file))
    sentence = (
        f"the arena needs {package}, which is not installed; install it with: pip install"
        " 'ludus[arena]'"
    )
    lines = done.out.splitlines()
    for entry in ("example", "attribute", "import", "settings"):
        assert f"{entry} {sentence}" in lines, done
    assert done.err.splitlines() == [f"ludus: {sentence}"] * 3
    assert [line for line in lines if line.endswith(" 1")] == ["plan 1", "train 1", "explain 1"]
