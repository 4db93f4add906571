"""The env that the page teaches is one that can be trained in, and the page names every env there is."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import ludus
from ludus.config.families import listed
from tests.arena.pettingzoo.made import QUIET

PAGE = Path(__file__).parents[3] / "docs" / "arena-pettingzoo.md"


def test_the_env_that_the_page_teaches_is_learned_from(tmp_path: Path) -> None:
    (block,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    path = tmp_path / "taught.py"
    path.write_text(block.replace('"meeting"', '"tests_meeting"'))
    config = runpy.run_path(str(path))["config"].replace(
        **QUIET,
        max_iterations=12,
        log_every_iterations=0,
        evaluate_every_iterations=12,
    )
    trainer = ludus.build_trainer(config)
    assert trainer.fit(root=str(tmp_path)).status == "finished"
    best = trainer.best()
    # Who stays where it is gains a fifth of twelve.
    assert best is not None
    assert best["score"] > 5.0


def test_the_page_has_a_row_for_each_env() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", PAGE.read_text(), re.MULTILINE)
    assert sorted(rows) == sorted(listed("parallel_env"))
