"""What the libraries of the arena do when they are imported stays with the arena."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import multiprocessing
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
    before: str, expected: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SCRIPT.format(before=before)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split()[-1] == expected


WITHOUT = """
import importlib.machinery as machinery
import sys

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
    package: str, tmp_path: Path
) -> None:
    file = tmp_path / "graphs.yaml"
    file.write_text((Path(__file__).parents[2] / "configs" / "vanilla_ppo.yaml").read_text())
    script = tmp_path / "script.py"
    script.write_text(WITHOUT)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(script), package, str(file)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    sentence = (
        f"the arena needs {package}, which is not installed; install it with: pip install"
        " 'ludus[arena]'"
    )
    lines = done.stdout.splitlines()
    for entry in ("example", "attribute", "import", "settings"):
        assert f"{entry} {sentence}" in lines, done.stdout + done.stderr
    assert done.stderr.splitlines() == [f"ludus: {sentence}"] * 3
    assert [line for line in lines if line.endswith(" 1")] == ["plan 1", "train 1", "explain 1"]
