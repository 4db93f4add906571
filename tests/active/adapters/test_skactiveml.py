"""Strategies of scikit-activeml, where it is installed."""

import importlib.util
from pathlib import Path

import pytest

from ludus.core.errors import ConfigError
from ludus.core.runtime import InMemoryRuntime
from ludus.testing.trainers import check_kill_anywhere
from tests.active.test_candidates import trainer_of

IS_THERE = importlib.util.find_spec("skactiveml") is not None
NAMES = ["CoreSet", "TypiClust", "ProbCover", "RandomSampling", "GreedySamplingX",
         "UncertaintySampling", "ContrastiveAL", "Falcun"]  # fmt: skip


@pytest.mark.skipif(not IS_THERE, reason="scikit-activeml is not installed")
@pytest.mark.parametrize("name", NAMES)
def test_a_strategy_of_theirs_chooses_the_same_after_a_resume(name: str, tmp_path: Path) -> None:
    section = {"kind": "skactiveml", "name": name}
    check_kill_anywhere(lambda: trainer_of(strategy=section), tmp_path, max_kills=3)


@pytest.mark.skipif(not IS_THERE, reason="scikit-activeml is not installed")
def test_theirs_and_ours_ask_for_the_same_uncertain_examples() -> None:
    ours = {"kind": "uncertainty", "shortlist": None}
    asked = []
    for section in ({"kind": "skactiveml", "name": "UncertaintySampling"}, ours):
        trainer = trainer_of(strategy=section)
        trainer.fit(runtime=InMemoryRuntime)
        asked.append(sorted(trainer.pool.asked.tolist()))
    assert asked[0] == asked[1]


@pytest.mark.skipif(IS_THERE, reason="scikit-activeml is installed")
def test_without_the_library_the_remedy_is_told_before_work_starts() -> None:
    trainer = trainer_of(strategy={"kind": "skactiveml", "name": "CoreSet"})
    with pytest.raises(
        ConfigError, match="pip install scikit-activeml, or use a strategy of ludus"
    ):
        trainer.fit(runtime=InMemoryRuntime)


def test_a_name_that_is_not_on_the_list_is_never_imported() -> None:
    with pytest.raises(ConfigError, match=r"strategy\.name"):
        trainer_of(strategy={"kind": "skactiveml", "name": "os.system"})
