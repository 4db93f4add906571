"""`ludus verify` proves what it says: a sound trainer passes, one that forgets its generator does not."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import ludus
from ludus.testing import subjects
from ludus.testing.subjects import Config
from ludus.testing.victim import RUN
from tests.faults.warm import WarmProcess
from tests.rl.small import small
from tests.supervised.conftest import MLP, WINE

TAUGHT = (Path(__file__).parents[1] / "docs" / "add-your-own.md").read_text()


@pytest.mark.parametrize(
    ("is_sound", "verdict"), [(True, "proved: killed"), (False, "\nno: killed once")]
)
def test_verify_tells_a_sound_trainer_from_one_that_forgets(
    is_sound: bool, verdict: str, tmp_path: Path, warm: WarmProcess
) -> None:
    code = re.findall(r"```python\n(.*?)```", TAUGHT, re.DOTALL)[0]
    if not is_sound:
        code = code.replace('        self.generator.set_state(state["generator"])\n', "")
    (tmp_path / "my_walk.py").write_text(code)
    (tmp_path / "walk.yaml").write_text(re.findall(r"```yaml\n(.*?)```", TAUGHT, re.DOTALL)[0])
    # The second kill falls inside the writer; one that forgets is found out by the first.
    words = ["verify", "walk.yaml", "--plugin", "my_walk", "--kills", "2" if is_sound else "1"]
    # One of the two kills processes that were started as a user's are.
    real = {} if is_sound else {"REAL_VICTIMS": "1"}
    done = warm.command(*words, cwd=tmp_path, environment=real)
    assert verdict in done.out
    assert done.code == (0 if is_sound else 1)


# The same as a model of supervised training.
MODEL = '''

@register("model", "centred")
class CentredModel(nn.Module):
    class Config(StrictConfig):
        kind: Literal["centred"]
        """That body with a head."""
        width: int
        """How wide it is."""
        dropout: float
        """How much is dropped while it learns."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        body = CentredBody.Config(kind="centred", width=config.width, dropout=config.dropout)
        self.layers = nn.Sequential(CentredBody(body, (13,)), nn.Linear(config.width, 3))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)
'''
LENGTHS = {
    "ppo": {"max_env_steps": 480},
    "supervised": {"max_epochs": 8, "data": WINE, "batch_size": 16, "engine": "tape"},
}


@pytest.mark.parametrize(
    ("kind", "kills"),
    [
        ("dqn", 1),
        ("supervised", 1),
        *(pytest.param(kind, 3, marks=pytest.mark.slow) for kind in ("iqn", "sac", "ppo")),
    ],
)
def test_a_network_with_buffers_dropout_and_batch_norm_verifies_as_exact(
    kind: str, kills: int, tmp_path: Path, warm: WarmProcess
) -> None:
    """The one that the documentation shows."""
    blocks = re.findall(r"```python\n(.*?)```", TAUGHT, re.DOTALL)
    code = next(block for block in blocks if "class CentredBody" in block)
    # What it counts must matter, or a run that forgets it would end alike.
    counts = code.replace("return self.norm(x)", "return self.norm(x) / (1 + self.num_batches)")
    assert counts != code
    (tmp_path / "my_networks.py").write_text(counts + MODEL)
    length = LENGTHS.get(kind, {"steps.max_opt_steps": 60, "steps.keep_every_opt_steps": 0})
    if kind == "supervised":
        config = ludus.example(kind).replace(**length)
    else:
        config = small(kind, **length)
    (tmp_path / "run.yaml").write_text(config.to_yaml())
    section = "model" if kind == "supervised" else "network"
    network = f"{section}={{kind: centred, width: 8, dropout: 0.2}}"
    words = ["verify", "run.yaml", network, "--plugin", "my_networks", "--kills", str(kills)]
    done = warm.command(*words, cwd=tmp_path)
    print(done.out)
    assert "proved: killed" in done.out, done


def test_the_killed_run_decides_what_is_auto_as_the_unbroken_one_did(
    tmp_path: Path, warm: WarmProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a machine that was slower for a second would end with other bytes."""

    def forked(module: str, words: Sequence[str], **_: Any) -> bool:
        at = {"cwd": str(tmp_path), "variables": dict(os.environ)}
        code, printed = warm.run("be_module", module=module, words=[*words], **at)
        assert code == 0, printed
        return True

    monkeypatch.setattr(subjects, "run_child", forked)
    config = ludus.example("supervised").replace(
        data=WINE, model=MLP, engine="auto", max_epochs=1, evaluation__patience=None,
        learning_rate_schedule={"kind": "constant", "warmup_steps": 0},
    )  # fmt: skip
    (tmp_path / "auto.yaml").write_text(config.to_yaml())
    subject = Config(str(tmp_path / "auto.yaml"), [])
    (tmp_path / "unbroken" / RUN).mkdir(parents=True)
    decided = config.replace(engine="eager", memory_format="channels_last")
    (tmp_path / "unbroken" / RUN / "config.yaml").write_text(decided.to_yaml())
    subject.run(tmp_path / "killed", [f"--like={tmp_path / 'unbroken'}"])
    found = (tmp_path / "killed" / RUN / "config.yaml").read_text()
    assert "\nengine: eager" in found
    assert "\nmemory_format: channels_last" in found
