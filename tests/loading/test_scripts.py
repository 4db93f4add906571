"""What a script gave a run comes back from the script, which is run up to the fit of that run."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch

import ludus
from ludus.core.errors import LudusError
from tests.command_line import Ludus, in_process

SCRIPT = """
import sys
import torch
import ludus

print("a script may say what it likes")
rows = torch.linspace(-1, 1, 120).reshape(30, 4)
data = torch.utils.data.TensorDataset(rows, (rows[:, 0] > 0).long())
short = {"experiment": "own", "results_dir": "runs", "max_epochs": 1, "batch_size": 10, "device": "cpu",
         "with_validation": True}

class Net(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first, self.second = torch.nn.Linear(4, width), torch.nn.Linear(width, 2)

    def forward(self, x):
        return self.second(torch.relu(self.first(x)))

for name, width in (("narrow", 3), ("wide", int(sys.argv[1]))):
    torch.manual_seed(0)
    trainer = ludus.Trainer(Net(width), short, data, data)
    trainer.config = trainer.config.replace(**{"settings.display": "none", "settings.loggers": []})
    result = trainer.fit(name=name)
    with open(f"{name}.done", "a") as file:
        file.write("x")
"""


@pytest.fixture
def call(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Ludus:
    """The command, called from an empty directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return in_process(monkeypatch, capsys)


@pytest.fixture
def script(call: Ludus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A script that has trained two networks of its own, and its argument."""
    from ludus.session.script import run_as_main

    (tmp_path / "train.py").write_text(SCRIPT)
    run_as_main("train.py", ["5"])
    return "train.py 5"


def test_a_run_of_a_script_is_evaluated_and_exported_with_the_script(
    call: Ludus, script: str, tmp_path: Path
) -> None:
    told = call("eval", "runs/wide").refusal()
    assert told.endswith("was built by a script, which alone knows its model and data; give it: --script"
                         " train.py")  # fmt: skip
    found = call("eval", "runs/wide", "--script", script, "--json").json
    lines = (tmp_path / "runs/wide/metrics.jsonl").read_text().splitlines()
    logged = [json.loads(line) for line in lines]
    assert found["metrics"]["validation/epoch_loss"] == logged[-1]["validation/epoch_loss"]
    assert Path(
        call(
            "export", "runs/wide", "--model", "last", "--format", "torch", "--script", script
        ).out.strip()
    ).is_file()
    # The first fit was left out, and the script ended at the one that was looked for.
    assert (tmp_path / "wide.done").read_text() == "x"
    assert (tmp_path / "narrow.done").read_text() == "xxx"
    assert len(list((tmp_path / "runs").iterdir())) == 2


def test_a_run_of_a_script_is_loaded_with_the_script_and_called_by_another_name(
    call: Ludus, script: str, tmp_path: Path
) -> None:
    (tmp_path / "runs/wide").rename(tmp_path / "runs/renamed")
    network = ludus.load("renamed", "last", script=script)
    assert type(network).__name__ == "Net"
    assert network(torch.zeros(1, 4)).shape == (1, 2)
    with pytest.raises(LudusError, match=r"do not fit the network .*'first.weight'"):
        ludus.load("renamed", "last", script="train.py 7")


MISTAKES = {
    "nowhere.py": (None, "there is no script nowhere.py; give the path of a Python file"),
    "empty.py": ("x = 1", "empty.py makes no trainer: it came to its end without a fit"),
    "broken.py": ("x = 1 / 0", "broken.py failed before the fit of runs/wide: ZeroDivisionError: division"
                  " by zero (line 1)"),
    "asks.py": ("name = input()", "asks.py failed before the fit of runs/wide"),
    "exits.py": ("raise SystemExit(3)", "it ended with exit(3)"),
    "other.py": (
        "import ludus\nludus.build_trainer('dqn.yaml').fit(name='wide')",
        "other.py makes a trainer of kind 'dqn', and runs/wide is a run of kind 'supervised'",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_a_script_that_makes_no_such_trainer_is_told_in_a_sentence(
    call: Ludus, script: str, tmp_path: Path, name: str
) -> None:
    code, told = MISTAKES[name]
    (tmp_path / "dqn.yaml").write_text(ludus.example("dqn").to_yaml())
    if code is not None:
        (tmp_path / name).write_text(code)
    assert told in call("eval", "runs/wide", "--script", name).refusal()


def test_a_script_of_several_runs_of_other_names_says_which(
    call: Ludus, script: str, tmp_path: Path
) -> None:
    code = SCRIPT.replace('"narrow"', '"one"').replace('"wide"', '"two"')
    (tmp_path / "train.py").write_text(code)
    told = call("eval", "runs/wide", "--script", script)
    assert told.code == 1
    assert "ludus: train.py trains one, two, none of which is named wide; give the arg" in told.err
