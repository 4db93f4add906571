"""The models that a run may begin from, and which of them it took: a part."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ludus.active.committee import make_committee
from ludus.active.config import ActiveConfig, CandidateConfig
from ludus.active.scoring import Scorer
from ludus.active.selection.scores import Selection, score_of
from ludus.core import states
from ludus.core.errors import ConfigError, LudusError
from ludus.data.batches.memory import Batches
from ludus.nn.model import Model
from ludus.seeds import derive, forked
from ludus.supervised.preflight import make_model


class Candidates:
    """One model or several; `rank` scores them, and `chosen` is the place of the one in use."""

    def __init__(self) -> None:
        self.given: list[Model] = []
        """What a script gave."""
        self.models: list[Model] = []
        self.names: list[str] = []
        self.scores: list[float] = []
        """The score of each, once they were ranked."""
        self.chosen = 0

    def give(self, models: Sequence[Model]) -> None:
        """Take the models of a script in place of the config's."""
        if not models:
            raise ConfigError("an empty list of models was given; give one model at least")
        self.given = list(models)

    def build(
        self, config: ActiveConfig, data: Batches, device: torch.device, *, members: int
    ) -> None:
        """Make every model, on the device, and see that each can learn from the data."""
        if self.given and config.candidates:
            raise ConfigError(
                "the script gave models, and the config has 'candidates'; leave one of them empty"
            )
        self.chosen, self.scores = 0, []
        loaded = self.given or [_loaded(one, config) for one in config.candidates]
        found: list[Model | None] = [*loaded] or [None]
        self.models = [make_model(config, one, data, device) for one in found]
        if members > 1:
            self.models = [_as_committee(one, members, config) for one in self.models]
            for model in self.models:
                model.module.to(device)
        named = [one.name for one in config.candidates]
        self.names = named or [f"{i}-{one.architecture}" for i, one in enumerate(self.models)]

    def rank(
        self,
        selection: Selection | None,
        scorer: Callable[[Model], Scorer],
        rows: Tensor,
        labels: Tensor,
        loss: str,
    ) -> int:
        """Score every model on labelled rows; return the place of the best, the first of equal ones."""
        if selection is None:
            raise ConfigError("'selection' is null, so nothing says which model is best; set it")
        self.scores = [
            score_of(selection, scorer(model), rows, labels, is_regression=loss not in _CLASSES)
            for model in self.models
        ]
        return max(range(len(self.scores)), key=lambda place: (self.scores[place], -place))

    def metrics(self, selection: Selection | None) -> dict[str, float]:
        """Return the score of each by name."""
        named = zip(self.names, self.scores, strict=False)
        return {f"selection/{selection}/{name}": score for name, score in named}

    def saved_choice(self, state: Mapping[str, Any]) -> int:
        """Return which model a saved state was made with."""
        saved = state.get("candidates", {})
        return states.whole(saved, "chosen", at_most=max(len(self.models) - 1, 0))

    def state_dict(self) -> dict[str, Any]:
        return {"chosen": self.chosen, "scores": list(self.scores)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        states.check_keys(state, "chosen", "scores")
        scores = states.rows(state, "scores")
        self.scores = [states.real(scores, index) for index in range(len(scores))]
        self.chosen = states.whole(state, "chosen", at_most=len(self.models) - 1)


_CLASSES = ("cross_entropy", "binary_cross_entropy")


def _loaded(candidate: CandidateConfig, config: ActiveConfig) -> Model:
    with forked(derive(config.seed, f"candidate/{candidate.name}")):
        model = Model(candidate.model, loss=config.loss)
    if candidate.weights is not None:
        try:
            model.load_model(candidate.weights)
        except LudusError as error:
            raise ConfigError(f"the weights of candidate {candidate.name}: {error}") from None
    return model


def _as_committee(model: Model, members: int, config: ActiveConfig) -> Model:
    with forked(derive(config.seed, "committee")):
        return make_committee(model, members, None)
