"""The trainer kind `pure_text_malt`: several answers in each turn, and DPO on the better and the worse."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from ludus.config.registry import register_trainer
from ludus.seeds import derive
from ludus.text.malt.config import MaltHyperParameters
from ludus.text.malt.tree import preference_pairs
from ludus.text.nested.array_dict import NestedArrayDict
from ludus.text.rollouts.episodes import TextEpisode, to_arrays
from ludus.text.trainer import PureTextRlTrainer


@register_trainer("pure_text_malt")
class PureTextMaltTrainer(PureTextRlTrainer):
    """Grows a tree of answers for each question, and tunes each group to prefer what led to more reward."""

    Config: ClassVar[type[MaltHyperParameters]] = MaltHyperParameters
    config: MaltHyperParameters

    def _sample_rollouts(
        self, episodes: Sequence[Sequence[TextEpisode]], *, stage: str, key: str
    ) -> NestedArrayDict:
        """Grow a tree from each question; test episodes have one answer in each turn."""
        if stage != "sample_rollouts":
            return super()._sample_rollouts(episodes, stage=stage, key=key)
        roots = [group[:1] for group in episodes]
        forks = self.config.malt.responses_per_turn
        played = self.play(roots, self.speakers(stage, is_test=False), key, forks=forks)
        return to_arrays(played, self.handler)

    def _stage_create_fine_tune_jobs(self, rollouts: NestedArrayDict) -> None:
        iteration = self.run.counters["iteration"]
        for group in self.groups.values():
            if group.is_frozen:
                continue
            pairs = []
            for agent in group.agents:
                seed = derive(self.config.seed, f"text/pairs/{agent}", iteration)
                random = np.random.default_rng(seed)
                pairs += preference_pairs(rollouts, self.handler, agent, random)
            group.create_dpo_fine_tune_job(pairs, **self.config.malt.hyperparameters())
