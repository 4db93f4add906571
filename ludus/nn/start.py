"""Start training from earlier weights: those of the same name and shape, with parts of them frozen.

Names are those in kept models: of several networks `policy.body.0.weight`, of one `0.weight`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from ludus.config.start import StartConfig
from ludus.core import states
from ludus.core.errors import ConfigError
from ludus.core.starting import Taken
from ludus.nn.base_weights import base_names, without_base
from ludus.nn.groups import Group, is_inside, nearest_part
from ludus.nn.learner import Learner
from ludus.nn.module_state import EXTRA

Named = Callable[[str], str]
"""Returns the name that a weight of a network has in kept models."""
Load = Callable[[Any], object]
"""Loads the saved state of a part."""


def same_name(name: str) -> str:
    """Return the name of a weight unchanged: that of the only network of a run."""
    return name


def named_in(network: str) -> Named:
    """Return the function for one of several networks, whose name precedes those of its weights."""
    return lambda name: f"{network}.{name}"


def start_groups(
    module: nn.Module,
    start: StartConfig | None,
    groups: Sequence[Group] = (),
    *,
    named: Named = same_name,
) -> list[Group]:
    """Return the parameter groups of a network, divided further by what `start` freezes and slows down.

    A parameter that `start` does not name stays in its group, or in none.
    """
    if start is None or not (start.frozen or start.learning_rates):
        return list(groups)
    found: dict[tuple[Group | None, float, bool], list[str]] = {}
    for name, parameter in module.named_parameters():
        if parameter.requires_grad:
            owner = next((group for group in groups if group.holds(name)), None)
            found.setdefault((owner, *_treated(named(name), start)), []).append(name)
    made = []
    for (owner, rate, is_frozen), names in found.items():
        words = ["frozen"] if is_frozen else [f"rate {rate:g}"] if rate != 1.0 else []
        if owner is None and not words:
            continue
        label = ", ".join([*([] if owner is None else [owner.name]), *words])
        made.append(
            Group(
                label,
                tuple(names),
                rate if owner is None else owner.rate * rate,
                is_frozen or (owner is not None and owner.is_frozen),
            )
        )
    return made


def _treated(name: str, start: StartConfig) -> tuple[float, bool]:
    """Return the factor of the learning rate of a parameter, and whether it is frozen."""
    if any(is_inside(name, inside=prefix) for prefix in start.frozen):
        return 1.0, True
    rates = [one for one in start.learning_rates if is_inside(name, inside=one.prefix)]
    return max(rates, key=lambda one: len(one.prefix)).rate if rates else 1.0, False


@dataclass(frozen=True)
class StartTarget:
    """Parts of a run that can start from another: networks, and others by their key in the section."""

    learners: Mapping[str, tuple[Learner, Named]]
    """Each network, and the names of its weights in kept models."""
    reads: Named = same_name
    """Returns the name here for the name of a weight in a model of another run."""
    then: Sequence[Callable[[], object]] = ()
    """Called after new weights: copies them to a target network."""
    parts: Mapping[str, Load] = field(default_factory=dict)
    """Functions that load the normaliser or the replay buffer, by the key in the section `start`."""

    def check(self, start: StartConfig) -> None:
        """Raise ConfigError for a prefix that names nothing, and where nothing would learn."""
        trained = {
            named(name): part.is_frozen
            for learner, named in self.learners.values()
            for part in learner.flat.parts
            for name in part.names
        }
        rates = [one.prefix for one in start.learning_rates]
        for key, prefixes in (("frozen", start.frozen), ("learning_rates", rates)):
            for prefix in prefixes:
                if not any(is_inside(name, inside=prefix) for name in trained):
                    raise ConfigError(
                        f"'start.{key}' names {prefix}, which no trained parameter of this run begins"
                        f" with.{nearest_part(prefix, trained)}"
                    )
        for prefix in rates:
            if all(_treated(name, start)[1] for name in trained if is_inside(name, inside=prefix)):
                raise ConfigError(
                    f"'start.learning_rates' names {prefix}, which 'start.frozen' freezes; name it in one"
                )
        if all(is_frozen is not None and bool(is_frozen) for is_frozen in trained.values()):
            raise ConfigError("'start.frozen' freezes every parameter, so nothing would learn")

    def fitting(self, weights: Mapping[str, Tensor]) -> Taken:
        """Return which of these weights fit this run; nothing is changed."""
        own = self._own()
        for learner, _ in self.learners.values():
            weights = without_base(learner.module, weights)
        given = {self.reads(name): tensor for name, tensor in weights.items()}
        fits = {
            name: one for name, one in given.items() if name in own and _fits(name, one, own[name])
        }
        others = {
            name: (tuple(one.shape), tuple(own[name].shape))
            for name, one in given.items()
            if name in own and name not in fits
        }
        # The frozen weights under an adapter are those of its base, which no run keeps.
        bases = {
            named(name)
            for learner, named in self.learners.values()
            for name in base_names(learner.module)
        }
        return Taken(
            fits,
            others,
            [name for name in given if name not in own],
            [name for name in own if name not in given and name not in bases],
        )

    def take(self, taken: Taken) -> None:
        """Copy these weights in; raises StateError if one is not finite."""
        pairs = []
        for learner, named in self.learners.values():
            own = learner.weights()
            new = {name: taken.weights.get(named(name)) for name in own}
            whole = {
                name: one if (given := new[name]) is None else given.to(one.dtype)
                for name, one in own.items()
            }
            learner.check_weights(whole)
            pairs.append((learner, whole))
        with torch.no_grad():
            for learner, whole in pairs:
                learner.load_weights(whole)
        for follow in self.then:
            follow()

    def take_optimizer(self, saved: Mapping[str, Mapping[str, Any]]) -> None:
        """Load the saved state of each network's optimizer; raises StateError if one does not fit."""
        for name, (learner, _) in self.learners.items():
            with states.within(name) if name else contextlib.nullcontext():
                if name not in saved:
                    raise states.StateError("", "is a network that the other run did not have")
                learner.optimizer.load_state_dict(_regrouped(saved[name], learner))

    def take_part(self, key: str, state: Any) -> None:
        """Load the state of the normaliser or the replay buffer; raises StateError if it does not fit."""
        if state is None:
            raise states.StateError("", "is none, for the other run had none")
        with states.within(key):
            self.parts[key](state)

    def _own(self) -> dict[str, Tensor]:
        return {
            named(name): tensor
            for learner, named in self.learners.values()
            for name, tensor in learner.weights().items()
        }


def _fits(name: str, one: Tensor, own: Tensor) -> bool:
    # The module alone can tell whether its extra state fits.
    is_like = one.shape == own.shape or name.endswith(EXTRA)
    return is_like and one.is_floating_point() == own.is_floating_point()


def _regrouped(saved: Mapping[str, Any], learner: Learner) -> Mapping[str, Any]:
    """Return the state of an optimizer with its counts by the groups that this learner has."""
    groups, found = learner.flat.frozen, dict(saved)
    for key in ("num_steps", "more"):
        count = found.get(key)
        if isinstance(count, Mapping) and {*count} != {*groups} and count:
            count = _most(count.values())
        if isinstance(count, Tensor) and groups:
            count = dict.fromkeys(groups, count)
        if count is not None:
            found[key] = count
    return found


def _most(counts: Iterable[Tensor]) -> Tensor:
    return torch.stack(list(counts)).amax(0)
