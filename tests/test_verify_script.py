"""`ludus verify SCRIPT.py` kills and resumes a script with all it has, and answers in one of three words."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from ludus.core.errors import LudusError
from ludus.testing import subjects, verify
from tests.command_line import in_process
from tests.faults.warm import WarmProcess

PAGE = (Path(__file__).parents[1] / "docs" / "reliability.md").read_text()
SHOWN = next(b for b in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if "Teacher" in b)

Verify = Callable[..., tuple[bool, str]]

SMALL = """
import sys
import torch
from torch import nn
import ludus

class Forgetful:
    def __init__(self, network):
        self.network = network
        self.sources = [iter(range(1, 1000))]

    def after_step(self):
        self.network.weight.data += 0.001 * next(self.sources[0])

def train(name, is_sound=True):
    torch.manual_seed(0)
    inputs = torch.randn(40, 4)
    short = {"experiment": name, "results_dir": "runs", "max_epochs": 3, "batch_size": 10,
             "evaluate_every_epochs": 0, "device": "cpu"}
    network = nn.Linear(4, 2)
    data = torch.utils.data.TensorDataset(inputs, (inputs[:, 0] > 0).long())
    trainer = ludus.Trainer(network, short, data)
    if not is_sound:
        trainer.add(Forgetful(network))
    return trainer.fit()
"""


@pytest.fixture
def proving(
    tmp_path: Path,
    warm: WarmProcess,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Verify:
    """Verify a script, with each process forked from one that has torch imported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LUDUS_CACHE", str(tmp_path / "cache"))

    def run_child(
        module: str, words: Sequence[str], *, may_die: bool, seconds: float | None
    ) -> bool:
        assert seconds is None
        given = {"module": module, "words": [*words], "cwd": str(tmp_path)}
        code, said = warm.run("be_module", **given, variables={**os.environ})
        if code and not (may_die and code == -9):
            raise subjects.Failed(subjects._last_words(said))
        return code == 0

    monkeypatch.setattr(subjects, "run_child", run_child)

    def prove(code: str, *arguments: str, num_kills: int = 1) -> tuple[bool, str]:
        (tmp_path / "own.py").write_text(code)
        capsys.readouterr()
        is_proved = verify.verify_script(
            "own.py", arguments, num_kills=num_kills, seed=0, plugins=[]
        )
        return is_proved, capsys.readouterr().out

    return prove


def test_a_teacher_an_optimizer_and_a_generator_of_ones_own_get_three_answers(
    proving: Verify,
) -> None:
    is_proved, told = proving(SHOWN, "teacher")
    assert is_proved
    assert told.endswith("proved: killed once, the same bytes at the end\n")
    is_proved, told = proving(SHOWN, "optimizer")
    assert not is_proved
    assert "\nno: killed once, it ends with other bytes: the state of head" in told
    assert "the trainer changes (head_optimizer), which is not saved" in told
    is_proved, told = proving(SHOWN, "data")
    assert not is_proved
    assert "\nno: killed once, it ends with other bytes: train/loss at opt_steps" in told
    assert "the loader over Examples, asked twice for the same examples" in told


def test_a_later_run_of_a_script_that_was_proved_says_so_until_it_is_disproved(
    proving: Verify, tmp_path: Path, warm: WarmProcess
) -> None:
    """The same script with the same arguments; another argument is another run."""

    def word(argument: str) -> str:
        given = {"path": str(tmp_path / "own.py"), "arguments": [argument]}
        code, said = warm.run("script", **given, variables={**os.environ})
        assert code == 0, said
        events = (tmp_path / "runs" / argument / "events.jsonl").read_text().splitlines()
        exact: str = json.loads(events[-1])["exact"]
        return exact

    assert proving(SMALL + "train(sys.argv[1])\n", "one")[0]
    assert (word("one"), word("two")) == ("proved", "expected")


def test_each_run_of_a_script_is_compared_and_the_one_that_differs_is_named(
    proving: Verify,
) -> None:
    is_proved, told = proving(SMALL + "train('one'); train('two')\n", num_kills=2)
    assert is_proved
    assert "boundaries of 2 runs" in told
    assert told.endswith("proved: killed 2 times, 2 runs, the same bytes at the end\n")
    is_proved, told = proving(SMALL + "train('one'); train('two', is_sound=False)\n", num_kills=2)
    assert not is_proved
    assert "\nno: killed 2 times, it ends with other bytes: " in told
    assert "(run two)" in told


def test_a_script_that_does_not_repeat_itself_is_told_from_one_that_forgets(
    proving: Verify,
) -> None:
    code = SMALL.replace("network = nn", "torch.seed()\n    network = nn") + "train('one')\n"
    is_proved, told = proving(code)
    assert not is_proved
    assert "\nno: two unbroken runs differ already (train/" in told


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("import ludus\n", r"own\.py came to its end without a fit that keeps a run"),
        ("x = 1\nprint(x / 0)\n", r"failed before any kill: ZeroDivisionError: .* \(line 2\)"),
        ("import sys\nsys.exit(3)\n", r"failed before any kill: it ended with exit\(3\)"),
        (
            "name = input('name? ')\n",
            r"LudusError: it reads standard input, .*arguments, after -- \(line 1\)",
        ),
        ("import sys\nfor line in sys.stdin: pass\n", "it reads standard input"),
        ("import sys\nsys.stdin.read()\n", "it reads standard input"),
        (
            f"{SMALL}place = train('one').run_dir\nopen(place + '/events.jsonl', 'w').close()\n",
            "the run one did not say how it ended: its events.jsonl was changed",
        ),
    ],
    ids=["no fit", "fails", "exits", "asks", "reads lines", "reads all", "tampers"],
)
def test_a_script_that_cannot_be_verified_gets_one_sentence(
    code: str, told: str, proving: Verify
) -> None:
    with pytest.raises(LudusError, match=told):
        proving(code)


def test_a_script_that_interrupts_itself_proves_nothing(proving: Verify) -> None:
    signals = "import os, signal\nForgetful.after_step = lambda self: os.kill(os.getpid(), 15)\n"
    is_proved, told = proving(f"{SMALL}{signals}train('one', False)\n")
    assert not is_proved
    assert "does not end by itself (it was interrupted by a signal)" in told


def test_a_process_that_a_script_leaves_behind_is_not_waited_for(tmp_path: Path) -> None:
    """It holds standard error for as long as the pipe to this test is open."""
    (tmp_path / "gate").mkdir()
    os.mkfifo(tmp_path / "gate/fifo")
    (tmp_path / "leaves.py").write_text(
        "import subprocess, sys\n"
        f"subprocess.Popen(['cat', {str(tmp_path / 'gate/fifo')!r}])\n"
        "sys.exit(int(sys.argv[1]))\n"
    )
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    # Opened for both, so that neither side waits for the other to come.
    gate = os.open(tmp_path / "gate/fifo", os.O_RDWR)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PYTHONPATH", env["PYTHONPATH"])
            assert subjects.run_child("leaves", ["0"], may_die=False, seconds=None)
            with pytest.raises(subjects.Failed, match="exit 3"):
                subjects.run_child("leaves", ["3"], may_die=False, seconds=None)
    finally:
        os.close(gate)


def test_a_script_that_fails_once_it_was_killed_is_not_exact(proving: Verify) -> None:
    once = "import pathlib\nif pathlib.Path('begun').exists(): raise ValueError('begun twice')\n"
    code = SMALL + "train('one')\n" + once.replace("raise", "pass; raise")
    is_proved, told = proving(code + "pathlib.Path('begun').touch()\n")
    assert not is_proved
    assert "\nno: killed and started again, it fails: ValueError: begun twice (line" in told


def test_the_command_gives_a_script_its_arguments_and_leaves_nothing_behind(
    proving: Verify,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "own.py").write_text(SMALL + "train(sys.argv[2])\n")
    call = in_process(monkeypatch, capsys)
    done = call("verify", "own.py", "--kills", "1", "--", "--name", "one")
    assert done.code == 0, done
    assert "proved: killed once, the same bytes at the end" in done.out
    assert {path.name for path in tmp_path.iterdir()} == {"own.py", "cache"}
    assert "there is no script nowhere.py" in call("verify", "nowhere.py").refusal()


def test_a_script_runs_in_a_process_of_its_own_as_python_would_run_it(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("ANSWER = 42\n")
    told = "raise SystemExit([__name__, beside.ANSWER, sys.argv[1:]])"
    (tmp_path / "own.py").write_text(f"import sys, beside\n{told}\n")
    words = [
        str(tmp_path),
        "--every-stages=3",
        "--",
        str(tmp_path / "own.py"),
        "--plugin",
        "--",
        "1",
    ]
    with pytest.raises(subjects.Failed, match=r"\['__main__', 42, \['--plugin', '--', '1'\]\]"):
        subjects.run_child("ludus.testing.script_victim", words, may_die=False, seconds=None)


def test_a_second_fit_of_one_run_says_itself_whether_it_goes_on(proving: Verify) -> None:
    with pytest.raises(LudusError, match="failed before any kill: RunError"):
        proving(SMALL + "train('one'); train('one')\n")
