"""`ludus verify` proves what it says: a sound trainer passes, one that forgets its generator does not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.command_line import in_subprocess
from tests.rl.small import small

TAUGHT = (Path(__file__).parents[1] / "docs" / "add-your-own.md").read_text()


@pytest.mark.parametrize(("is_sound", "verdict"), [(True, "exact: killed"), (False, "not exact")])
def test_verify_tells_a_sound_trainer_from_one_that_forgets(is_sound, verdict, tmp_path) -> None:
    code = re.findall(r"```python\n(.*?)```", TAUGHT, re.DOTALL)[0]
    if not is_sound:
        code = code.replace('        self.generator.set_state(state["generator"])\n', "")
    (tmp_path / "my_walk.py").write_text(code)
    (tmp_path / "walk.yaml").write_text(re.findall(r"```yaml\n(.*?)```", TAUGHT, re.DOTALL)[0])
    words = ["verify", "walk.yaml", "--plugin", "my_walk", "--kills", "2"]
    done = in_subprocess(*words, cwd=tmp_path)
    assert verdict in done.out
    assert done.code == (0 if is_sound else 1)


def test_a_network_with_buffers_dropout_and_batch_norm_verifies_as_exact(tmp_path) -> None:
    """The one that the documentation shows."""
    blocks = re.findall(r"```python\n(.*?)```", TAUGHT, re.DOTALL)
    code = next(block for block in blocks if "class CentredBody" in block)
    (tmp_path / "my_networks.py").write_text(code)
    config = small("dqn", **{"steps.max_opts": 60, "steps.save_interval": 0})
    (tmp_path / "pole.yaml").write_text(config.to_yaml())
    network = "network={kind: centred, width: 8, dropout: 0.2}"
    words = ["verify", "pole.yaml", network, "--plugin", "my_networks", "--kills", "1"]
    done = in_subprocess(*words, cwd=tmp_path)
    assert "exact: killed" in done.out, done
