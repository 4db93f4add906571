"""The models of an active run, rebuilt without its pool: for `ludus.load`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from torch import nn

from ludus.active.adapters.sklearn import Classifier
from ludus.active.models.candidates import Candidates
from ludus.active.strategy import Strategy
from ludus.config.registry import find
from ludus.config.sections import kind_of
from ludus.core.abilities import Kept, Program, Supplied
from ludus.core.errors import ConfigError
from ludus.nn.model import Model
from ludus.session.device import resolve_device
from ludus.session.prepared import prepare
from ludus.supervised.loading import RebuiltModel, WeightsOf, as_model, given_model, on_device

if TYPE_CHECKING:
    from ludus.active.trainers.active import ActiveTrainer


class KeptCandidates:
    """The candidates of a run; the note of saved weights, or the state, says which one they belong to."""

    def __init__(self, trainer: ActiveTrainer, candidates: Candidates) -> None:
        self._config, self._candidates = trainer.config, candidates
        self._whole: WeightsOf = lambda state: prepare(trainer).weights_of(state)
        self._chosen, self._loaders = candidates.chosen, trainer.loaders

    def weights_of(self, state: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the weights in a saved state that would be evaluated; its candidate is selected."""
        self._chosen = self._candidates.saved_choice(state)
        return self._kept().weights_of(state)

    def loaded(self, weights: Mapping[str, Any], about: Mapping[str, Any]) -> nn.Module:
        """Return the network of the candidate named in the note, with these weights, in eval mode."""
        return self._kept(about).loaded(weights, about)

    def programs(
        self, weights: Mapping[str, Any], about: Mapping[str, Any]
    ) -> Mapping[str, Program]:
        """Return the network of the candidate, with the first inputs of the pool."""
        return self._kept(about).programs(weights, about)

    def measure_others(
        self, weights: Mapping[str, Any], about: Mapping[str, Any], changes: Sequence[str]
    ) -> Mapping[str, float]:
        """Return the metrics of these weights on the data of the config with `key=value` changed."""
        return self._kept(about).measure_others(weights, about, changes)

    def _kept(self, about: Mapping[str, Any] = MappingProxyType({})) -> RebuiltModel:
        if isinstance(name := about.get("candidate"), str):
            self._chosen = self._candidates.place_of(name)
        return RebuiltModel(
            self._config, self._candidates.models[self._chosen], self._whole, self._loaders
        )


def kept(trainer: ActiveTrainer, given: Supplied) -> Kept:
    """Return the candidates of a trainer that is not prepared; a method of it."""
    # What they begin with is not read: other weights take its place.
    fresh = [one.model_copy(update={"weights": None}) for one in trainer.config.candidates]
    config = trainer.config.model_copy(update={"starting_checkpoint": None, "candidates": fresh})
    networks = given.network if isinstance(given.network, list | tuple) else None
    if networks is not None:
        models: list[Model] = [as_model(one) for one in networks]
    else:
        own = trainer.candidates.given
        one = given_model(given, own[0] if own else None, config.name)
        models = own if one is not None and one in own else [one] if one is not None else []
    if any(isinstance(one, Classifier) for one in models):
        raise ConfigError(
            "a scikit-learn classifier has no weights, for it is fitted to all labels in each round; fit it"
            " again"
        )
    candidates, device = Candidates(), resolve_device(config.settings.device)
    candidates.given = models

    def make(one: Model | None) -> Model:
        if one is None and config.model is None:
            raise ConfigError("'model' is null and no network was given; give one (network=...)")
        return on_device(config, one or Model(config.model, loss=config.loss))  # type: ignore[arg-type]

    strategy: Strategy = find("strategy", kind_of(config.strategy))(config.strategy)
    candidates.build(config, make, device, members=strategy.members)
    return KeptCandidates(trainer, candidates)
