"""Parameter groups: each with its own learning rate and a switch that freezes it."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from torch import nn

from ludus.core.errors import LudusError, nearest

REST = "the rest"
"""The name of the group of all parameters that are in no other."""

Named = list[tuple[str, nn.Parameter]]


@dataclass(frozen=True)
class Group:
    """Parameters with their own learning rate, which take no step while frozen."""

    name: str
    parameters: tuple[str, ...]
    """Names of parameters or modules: `body` covers everything in it, the empty name everything."""
    rate: float = 1.0
    """The factor of the learning rate."""
    is_frozen: bool = False
    """Whether it starts frozen; `Learner.set_frozen` switches it between steps."""

    def holds(self, name: str) -> bool:
        """Return whether a parameter of this name is in the group."""
        return any(is_inside(name, inside=given) for given in self.parameters)


def is_inside(name: str, *, inside: str) -> bool:
    """Return whether a parameter has this name, or is in the module of this name."""
    return not inside or name == inside or name.startswith(inside + ".")


def divide(module: nn.Module, groups: Sequence[Group]) -> list[tuple[Group | None, Named]]:
    """Return the trainable parameters by group; all of them under None if there are no groups.

    Raise LudusError unless the groups are disjoint and none is empty.
    """
    named = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
    if not named:
        raise LudusError("the model has no parameter to train; set requires_grad on some")
    if not groups:
        return [(None, named)]
    _check(module, groups)
    found = [(group, [pair for pair in named if group.holds(pair[0])]) for group in groups]
    taken: dict[str, str] = {}
    for group, own in found:
        for name, _ in own:
            if name in taken:
                raise LudusError(
                    f"the parameter '{name}' is in two groups, '{taken[name]}' and '{group.name}';"
                    " name it in one of them"
                )
            taken[name] = group.name
    rest = [pair for pair in named if pair[0] not in taken]
    return [*found, *([(Group(REST, ()), rest)] if rest else [])]


def _check(module: nn.Module, groups: Sequence[Group]) -> None:
    names = [group.name for group in groups]
    for name in names:
        if names.count(name) > 1 or name == REST:
            whose = "all that no group names" if name == REST else "two groups"
            raise LudusError(f"'{name}' is the name of {whose}; call this group something else")
    trained = dict(module.named_parameters())
    for group in groups:
        if not (group.rate > 0 and math.isfinite(group.rate)):
            raise LudusError(
                f"the rate of group '{group.name}' is {group.rate}; it is a factor above 0, and"
                " what should not learn is frozen"
            )
        if not group.parameters:
            raise LudusError(f"group '{group.name}' names no parameter; name one, or leave it out")
        for given in group.parameters:
            inside = [name for name in trained if is_inside(name, inside=given)]
            if not inside:
                raise LudusError(
                    f"group '{group.name}' names '{given}', which no parameter of the model begins"
                    f" with.{nearest_part(given, trained)}"
                )
            if not any(trained[name].requires_grad for name in inside):
                raise LudusError(
                    f"group '{group.name}' names '{given}', which is not trained: its requires_grad"
                    " is false; set it, or leave it out of the group"
                )


def nearest_part(given: str, names: Iterable[str]) -> str:
    """Return a hint with the nearest name of a parameter or module, or else with the outermost ones."""
    split = [name.split(".") for name in names]
    inside = {".".join(parts[:end]) for parts in split for end in range(1, len(parts) + 1)}
    is_near = difflib.get_close_matches(given, inside, n=1)
    return nearest(given, inside if is_near else {parts[0] for parts in split})
