"""The trainer kind `pure_text_ei`: expert iteration, in which agents imitate their best episodes."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from ludus.config.registry import register_trainer
from ludus.seeds import derive
from ludus.text.expert_iteration.config import ExpertIterationHyperParameters
from ludus.text.expert_iteration.selection import conversations, replace_guesses, select
from ludus.text.nested.array_dict import NestedArrayDict
from ludus.text.trainer import PureTextRlTrainer


@register_trainer("pure_text_ei")
class PureTextEiTrainer(PureTextRlTrainer):
    """Tunes each group on what its agents said in the episodes that brought them a high reward."""

    Config: ClassVar[type[ExpertIterationHyperParameters]] = ExpertIterationHyperParameters
    config: ExpertIterationHyperParameters

    def _stage_create_fine_tune_jobs(self, rollouts: NestedArrayDict) -> None:
        section = self.config.expert_iteration
        replaced = self._with_labels(rollouts)
        rewards_BA = replaced["agents", "reward"].sum(1)
        for group in self.groups.values():
            if group.is_frozen:
                continue
            examples = []
            for agent in group.agents:
                which = self.handler.agent_names.index(agent)
                random = self._random(f"selection/{agent}")
                places = select(rewards_BA[:, which], section.selection, random)
                examples += conversations(replaced, self.handler, agent, places)
            group.create_supervised_fine_tune_job(examples)

    def _with_labels(self, rollouts: NestedArrayDict) -> NestedArrayDict:
        section = self.config.expert_iteration.verifier_guess_replacement
        if section is None:
            return rollouts
        iteration = self.run.counters["iteration"]
        random = self._random("guesses")
        return replace_guesses(rollouts, self.handler, self.prompts, section, iteration, random)

    def _random(self, name: str) -> np.random.Generator:
        seed = derive(self.config.seed, f"text/{name}", self.run.counters["iteration"])
        return np.random.default_rng(seed)
