"""Test cases for engines: an update to execute, and changes to it between two calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from ludus.nn.engines.choice import Subject
from ludus.nn.learner import Learner

Inputs = Sequence[Tensor | None]


class EngineCase(NamedTuple):
    """An update to execute: its method, example inputs, and the state that it changes."""

    method: Callable[..., Any]
    inputs: Inputs
    """The first is the batch, or begins it: its length is the number of examples."""
    state: Callable[[], Mapping[str, Any]]
    device: torch.device
    owner: object = None
    """Object whose class defines the computation, as in `Subject`."""
    learners: Sequence[Learner] = ()
    """Learners that update the networks' weights."""
    others: Sequence[object] = ()

    @property
    def modules(self) -> list[nn.Module]:
        """The trained networks."""
        return [learner.module for learner in self.learners]

    @property
    def subject(self) -> Subject:
        """The subject from which an engine is chosen."""
        return Subject(
            self.method, self.owner, self.modules, self.device, lambda: self.inputs, self.others
        )


Undo = Callable[[], None]
Change = Callable[[EngineCase], Undo | None]
"""Changes something an update depends on; returns a function that undoes it, None if not applicable."""


def _other_mode(case: EngineCase) -> Undo:
    def toggle() -> None:
        for module in case.modules:
            module.train(not module.training)

    toggle()
    return toggle


def _hook(case: EngineCase) -> Undo:
    def halve(module: object, inputs: object, output: object) -> object:
        return tree_map_only(Tensor, lambda value: 0.5 * value, output)

    handles = [module.register_forward_hook(halve) for module in case.modules]

    def undo() -> None:
        for handle in handles:
            handle.remove()

    return undo


def _freeze(case: EngineCase) -> Undo | None:
    for learner in case.learners:
        for name in learner.flat.frozen:
            learner.set_frozen(name, True)
            return partial(learner.set_frozen, name, False)
    return None


def _load(case: EngineCase) -> Undo:
    kept = [{name: t.clone() for name, t in learner.weights().items()} for learner in case.learners]

    def load(factor: float) -> None:
        for learner, weights in zip(case.learners, kept, strict=True):
            scaled = {n: factor * t if t.is_floating_point() else t for n, t in weights.items()}
            learner.load_weights(scaled)

    load(0.5)
    return partial(load, 1.0)


CHANGES: Mapping[str, Change] = {
    "mode": _other_mode,
    "hook": _hook,
    "frozen group": _freeze,
    "loaded weights": _load,
}
"""Changes that a script may make to networks between two updates."""


def _fewer(inputs: Inputs, index: int) -> Inputs | None:
    """Return a batch with one example less; it concerns all inputs, so only index 0 returns one."""
    count = len(inputs[0]) if inputs[0] is not None and inputs[0].ndim else 0
    if index or count < 2:
        return None
    return [value if value is None else _shortened(value, count) for value in inputs]


def _shortened(value: Tensor, count: int) -> Tensor:
    """Return a tensor without its last example, along its first dimension of length `count`."""
    along = [dim for dim, size in enumerate(value.shape) if size == count]
    return value.narrow(along[0], 0, count - 1) if along else value


def _double(inputs: Inputs, index: int) -> Inputs | None:
    """Return the inputs with one of them in double precision."""
    value = inputs[index]
    if value is None or value.dtype != torch.float32:
        return None
    return [*inputs[:index], value.double(), *inputs[index + 1 :]]


OTHER_INPUTS: Mapping[str, Callable[[Inputs, int], Inputs | None]] = {
    "shape": _fewer,
    "dtype": _double,
}
"""Ways in which a batch may differ from the one before it."""
