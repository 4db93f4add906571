"""`ludus verify` proves what it says: a sound trainer passes, one that forgets its generator does not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.command_line import in_subprocess

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
