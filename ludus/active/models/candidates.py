"""The candidate models of a run, and the selected one: a part."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ludus.active.config import ActiveConfig, CandidateConfig
from ludus.active.models.beginnings import Beginnings
from ludus.active.models.committee import Committee, check_members, make_committee
from ludus.active.models.heads import Head
from ludus.active.records import RANKING, Candidate, Ranking
from ludus.active.scoring import Scorer
from ludus.active.selection.scores import Selection, score_of
from ludus.core import states
from ludus.core.errors import ConfigError, LudusError, nearest
from ludus.core.services import Files
from ludus.nn.model import CLASS_LOSSES, Inputs, Model
from ludus.nn.swapped_weights import restored
from ludus.seeds import derive, forked
from ludus.show.terminal import warn
from ludus.store.strict_json import dump_json

Make = Callable[[Model | None], Model]


class Candidates:
    """One model or several; `rank` scores them, and `chosen` is the index of the one in use.

    A selected candidate starts from its initial weights: training is lost when another replaces it. The
    initial weights are saved if a later round needs them again.
    """

    def __init__(self) -> None:
        self.given: list[Model] = []
        """The models passed by a script."""
        self.models: list[Model] = []
        self.names: list[str] = []
        self.scores: list[float] = []
        """The score of each, once ranked."""
        self.chosen = 0
        self.wanted: str | int | None = None
        """The one a run starts with; None is the first, until they are ranked."""
        # The scored network: that of the first member, if a model is a committee.
        self._sources: list[Model] = []
        self._heads: dict[int, Head] = {}
        self._are_trained: list[bool] = []
        self._begun = Beginnings()

    def give(self, models: Sequence[object]) -> None:
        """Use the models of a script in place of the config's."""
        if not models:
            raise ConfigError("an empty list of models was given; give one model at least")
        for one in models:
            if isinstance(one, Model | nn.Module):
                continue
            if hasattr(one, "predict_proba"):
                raise ConfigError(
                    f"a {type(one).__name__} is no model yet; give ludus.active.Classifier("
                    "it, classes=...)"
                )
            raise ConfigError(
                f"a {type(one).__name__} is no model; give a torch network, a Model, or a list of them"
            )
        self.given = [Model(one) if isinstance(one, nn.Module) else one for one in models]  # type: ignore[misc]
        self._heads = {}

    def build(
        self, config: ActiveConfig, make: Make, device: torch.device, *, members: int
    ) -> None:
        """Make every model, on the device; `make` builds and checks one, given one or the config's."""
        if self.given and config.candidates:
            raise ConfigError(
                "the script gave models, and the config has 'candidates'; leave one of them empty"
            )
        self.scores, self._begun = [], Beginnings()
        loaded = self.given or [_loaded(one, config) for one in config.candidates]
        found: list[Model | None] = [*loaded] or [None]
        self._sources = [make(one) for one in found]
        named = [one.name for one in config.candidates]
        self.names = named or [f"{i}-{one.architecture}" for i, one in enumerate(self._sources)]
        if config.new_head is not None:
            self._renew_heads(config.new_head, config.seed)
        self.models = list(self._sources)
        has_head = config.new_head is not None
        self._are_trained = [one.is_loaded or has_head for one in self._sources]
        if members > 1:
            for place, is_trained in enumerate(self._are_trained):
                with forked(derive(config.seed, "committee")):
                    made = make_committee(self.models[place], members, is_trained=is_trained)
                made.module.to(device)
                self.models[place] = made
        if config.starting_checkpoint is not None:
            if len(self.models) > 1:
                raise ConfigError(
                    f"'starting_checkpoint' is for one model, and {len(self.models)} were given; load the"
                    " weights of each yourself, and use round_start: cold"
                )
            _load(self.models[0], config.starting_checkpoint, "'starting_checkpoint'")
        self.begin(config)
        self.chosen = self.place_of(self.wanted or 0)

    def begin(self, config: ActiveConfig) -> None:
        """Store the current weights of all models as their initial ones, if a round goes back to them."""
        if len(self.models) > 1 or config.round_start != "warm":
            self._begun.keep(self.models)

    def _renew_heads(self, outputs: int, seed: int) -> None:
        # A script's model that is prepared again already has its new head: the old one is stored.
        if not self.given:
            self._heads = {}
        for place, (model, name) in enumerate(zip(self._sources, self.names, strict=True)):
            if place not in self._heads:
                self._heads[place] = Head(model)
            self._heads[place].renew(outputs, seed=seed, name=name)

    def check_alike(self, inputs: Inputs) -> None:
        """Raise ConfigError unless all models have the same output shape."""
        shapes = []
        for model, is_trained in zip(self.models, self._are_trained, strict=True):
            with torch.no_grad(), model.evaluating(), forked(0):
                shapes.append(tuple(model(inputs).shape[1:]))
                if isinstance(model, Committee):
                    check_members(model, inputs, is_trained=is_trained)
        for place, head in self._heads.items():
            with torch.no_grad(), self._sources[place].evaluating(), forked(0):
                head.check(inputs)
        for name, shape in zip(self.names, shapes, strict=True):
            if shape != shapes[0]:
                raise ConfigError(
                    f"candidate {name} gives {_size(shape)} outputs, and {self.names[0]} gives"
                    f" {_size(shapes[0])}; set 'new_head' to the number of outputs that all are to have"
                )

    def place_of(self, which: str | int) -> int:
        """Return the index of a candidate, by its name or index."""
        if isinstance(which, str) and which in self.names:
            return self.names.index(which)
        if isinstance(which, int) and 0 <= which < len(self.models):
            return which
        known = ", ".join(self.names)
        close = nearest(which, self.names) if isinstance(which, str) else ""
        raise ConfigError(f"no candidate is named {which}; there are {known}.{close}")

    def take(self, place: int) -> Model:
        """Select this candidate and return it; the previous one is reset to its initial weights."""
        self._begun.put_back(self.chosen, self.models[self.chosen])
        self.chosen = place
        return self.models[place]

    def rank(
        self,
        selection: Selection | None,
        scorer: Callable[[Model], Scorer],
        rows: Tensor,
        labels: Tensor,
        loss: str,
    ) -> int:
        """Score every model on labelled rows; return the index of the best; ties go to the first.

        Each is scored with its initial weights: training on these very labels would favour it.
        """
        if selection is None:
            raise ConfigError("'selection' is null, so nothing says which model is best; set it")
        if not len(rows):
            raise LudusError("there are no labels yet to rank the candidates on; label some first")
        is_regression, scores = loss not in CLASS_LOSSES, []
        with self._as_begun():
            for place, model in enumerate(self._sources):
                head = self._heads.get(place)
                with contextlib.nullcontext() if head is None else head.source():
                    scored = scorer(model)
                    score = score_of(selection, scored, rows, labels, is_regression=is_regression)
                    scores.append(score)
        self.scores = scores
        if not is_regression and len(labels.unique()) < 2:
            warn(
                f"the {len(labels)} labels so far are all of one class, which every candidate explains alike:"
                f" {self.names[0]} would be taken whatever it is; raise initial_labels"
            )
        return max(range(len(scores)), key=lambda place: (scores[place], -place))

    @contextlib.contextmanager
    def _as_begun(self) -> Iterator[None]:
        """Give the model in use its initial weights inside the block."""
        model = self.models[self.chosen]
        with restored(model, what=["state"]):
            self._begun.put_back(self.chosen, model)
            yield

    def metrics(self, selection: Selection | None) -> dict[str, float]:
        """Return the scores by name."""
        named = zip(self.names, self.scores, strict=False)
        return {f"selection/{selection}/{name}": score for name, score in named}

    def record(self, files: Files, selection: Selection) -> None:
        """Write the ranking to the run's directory, for the report."""
        candidates = [
            Candidate(
                name=self.names[place],
                score=self.scores[place] if math.isfinite(self.scores[place]) else None,
                parameters=self._parameters_of(place),
                is_taken=place == self.chosen,
            )
            for place in self._ranked()
        ]
        ranking = Ranking(format=1, by=selection, candidates=candidates)
        files.write(RANKING, dump_json(ranking.model_dump(mode="json")))

    def _ranked(self) -> list[int]:
        """Return the indices of the candidates by score, the best first; ties stay in order."""
        return sorted(range(len(self.scores)), key=lambda place: (-self.scores[place], place))

    def _parameters_of(self, place: int) -> int:
        return sum(one.numel() for one in self.models[place].module.parameters())

    def table(self, selection: Selection | None) -> str:
        """Return the candidates by rank, one line each, with score and number of parameters."""
        rows = [("rank", "candidate", str(selection), "parameters")]
        for rank, place in enumerate(self._ranked(), start=1):
            size, score = f"{self._parameters_of(place):,}", f"{self.scores[place]:.6f}"
            rows.append((f"{rank}", self.names[place], score, size))
        widths = [max(len(row[column]) for row in rows) for column in range(4)]
        lines = [
            f"{a:>{widths[0]}}  {b:<{widths[1]}}  {c:>{widths[2]}}  {d:>{widths[3]}}"
            for a, b, c, d in rows
        ]
        return "\n".join(lines)

    def begin_as(self, state: Mapping[str, Any]) -> bool:
        """Load the initial weights of a saved state into every model; return whether any differed."""
        return self._begun.load(state.get("candidates", {}), self.models)

    def saved_choice(self, state: Mapping[str, Any]) -> int:
        """Return the index of the model in a saved state."""
        saved = state.get("candidates", {})
        return states.whole(saved, "chosen", at_most=max(len(self.models) - 1, 0))

    def state_dict(self) -> dict[str, Any]:
        return {
            "chosen": self.chosen, "is_set": self.wanted is not None,
            "scores": list(self.scores), "begun": self._begun.state(),
        }  # fmt: skip

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        states.check_keys(state, "chosen", "is_set", "scores", "begun")
        scores = states.rows(state, "scores")
        self.scores = [states.real(scores, index) for index in range(len(scores))]
        self.chosen = states.whole(state, "chosen", at_most=len(self.models) - 1)
        # A resume need not repeat which model the script had set.
        self.wanted = self.chosen if states.flag(state, "is_set") else None


def _size(shape: tuple[int, ...]) -> str:
    return " x ".join(str(one) for one in shape) or "single"


def _loaded(candidate: CandidateConfig, config: ActiveConfig) -> Model:
    with forked(derive(config.seed, f"candidate/{candidate.name}")):
        model = Model(candidate.model, loss=config.loss)
    if candidate.weights is not None:
        _load(model, candidate.weights, f"the weights of candidate {candidate.name}")
    return model


def _load(model: Model, place: str, what: str) -> None:
    try:
        model.load_model(place)
    except LudusError as error:
        raise ConfigError(f"{what}: {error}") from None
