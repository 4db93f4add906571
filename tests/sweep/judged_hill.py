"""A climb that is judged: its best height is kept, and one seed may go wrong. A plugin, as the hill is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ludus.config.registry import register_trainer
from ludus.core import Run, Stateful
from ludus.judge.judge import Judge
from ludus.judge.scores import Score
from tests.sweep.hill import HillConfig, HillTrainer, Mood, go_wrong


class JudgedConfig(HillConfig):
    """A hill with a seed of another mood."""

    sour_seed: int | None
    """The seed whose run goes wrong; null: none."""
    sour_mood: Mood
    """What goes wrong there."""


@register_trainer("judged-hill")
class JudgedTrainer(HillTrainer):
    """Climbs, and keeps the best."""

    Config = JudgedConfig

    def prepare(self, *, max_steps: int | None) -> None:
        super().prepare(max_steps=max_steps)
        self.judge = Judge(Score("hill", "hill/score", "max"))

    def parts(self) -> Mapping[str, Stateful]:
        return {**super().parts(), "judge": self.judge}

    def climb(self, run: Run) -> Mapping[str, Any]:
        if self.config.seed == self.config.sour_seed and run.counters["opt_steps"] == 2:
            go_wrong(self.config.sour_mood)
        super().climb(run)
        written = run.log.written  # type: ignore[attr-defined]
        self.judge.update(run, written, lambda score: {"height": self.climber.height})
        return {}
