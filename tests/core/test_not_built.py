"""A trainer that is asked for its plan or its parts before it is built answers, or says what to do."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import ludus
from ludus.config.registry import kinds
from ludus.core import Repeat, Stage
from ludus.core.errors import LudusError
from ludus.core.trainer import Trainer
from tests.conftest import modules_in

CONFIGS = Path(__file__).parents[2] / "configs"
SHIPPED = [kind for kind in kinds("trainer") if (CONFIGS / f"{kind}.yaml").exists()]


@pytest.mark.parametrize("asked", ["plan", "parts", "state_dict", "observers"])
@pytest.mark.parametrize("kind", SHIPPED)
def test_before_fit_every_kind_answers_or_says_what_to_do(kind: str, asked: str) -> None:
    trainer: Any = ludus.build_trainer(ludus.example(kind))
    told = r"\w+\.\w+\(\) needs what fit\(\) builds when it begins; .*call prepare\(max_steps=None\) first"
    try:
        answer = getattr(trainer, asked)()
    except LudusError as error:
        answer = re.match(told, str(error))
    assert answer is not None


class Misspelt(Trainer):
    """Its plan has a mistake that has nothing to do with what is built."""

    def plan(self) -> Repeat:
        return Repeat(name="train", times=1, body=(Stage(name="work", work=self.wrok),))  # type: ignore[attr-defined]


def test_a_mistake_in_a_plan_is_told_as_it_is_once_the_trainer_is_built() -> None:
    trainer = Misspelt(object())
    with pytest.raises(LudusError, match=r"Misspelt\.plan\(\) needs what fit\(\) builds"):
        trainer.plan()
    trainer.prepare(max_steps=None)
    with pytest.raises(AttributeError, match="'wrok'"):
        trainer.plan()


def test_a_length_that_prepare_ignores_is_reported_when_the_run_has_passed_it(
    tmp_path: Path,
) -> None:
    make = modules_in("contracts/trainers")["toy_supervised"].make
    for steps, is_passed in ((1, True), (10_000, False)):
        place = Path(str(make().fit(max_steps=steps, root=str(tmp_path), name=str(steps)).run_dir))
        events = (place / "events.jsonl").read_text()
        told = re.search("fit was given max_steps=1, and the run made [0-9]+ optimisation", events)
        assert bool(told) is is_passed
        assert ("prepare ignores max_steps" in events) is is_passed
