"""Optimizers on flat vectors: a fused kernel when run eagerly, plain arithmetic when compiled."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Any, ClassVar

import torch
from pydantic import AfterValidator, SerializeAsAny
from torch import Tensor

from ludus.config.registry import find
from ludus.config.sections import registered
from ludus.core import states
from ludus.nn.flat import FlatParameters, Vectors
from ludus.nn.optimizers._rule import OptimizerConfig as OptimizerConfig, Rule as Rule
from ludus.nn.optimizers.adam import Adam as Adam
from ludus.nn.optimizers.sgd import Sgd as Sgd

_MORE = "more"
"""The key of further numbers in a state, for optimizers that have any."""


def _for_all(config: OptimizerConfig) -> OptimizerConfig:
    kind = find("optimizer", config.kind)
    if not issubclass(kind, Rule) or kind.averages:
        raise ValueError(
            f"is an optimizer of kind {config.kind}, which only supervised and active runs can have; choose"
            " another, such as adamw"
        )
    return config


AnyOptimizerSection = Annotated[SerializeAsAny[OptimizerConfig], registered("optimizer")]
"""For trainers that evaluate averaged weights and accept optimizers of torch."""
OptimizerSection = Annotated[AnyOptimizerSection, AfterValidator(_for_all)]


class Optimizer:
    """Updates flat vectors; its moments are vectors of the same layout, saved by parameter name.

    Steps are counted per group: one that was frozen has taken fewer.
    """

    is_unbounded: ClassVar[bool] = False
    """Whether a step may be large at any learning rate, so that each is checked and undone if need be."""

    def __init__(
        self, config: OptimizerConfig, flat: FlatParameters, *, undecayed: Collection[str] = ()
    ) -> None:
        """Weight decay skips the parameters named in `undecayed`."""
        self.config = config
        self._flat = flat
        self._rule: type[Rule] = find("optimizer", config.kind)
        self._rule.check(config, flat)
        self.parts = [
            self._rule(config, part, frozenset(undecayed), flat.device) for part in flat.parts
        ]
        self.moments = [list(alike) for alike in zip(*[p.moments for p in self.parts], strict=True)]
        """The vectors of each moment."""

    @property
    def evaluated(self) -> Vectors | None:
        """The weights to evaluate, if they differ from those of the network."""
        return [part.evaluated() for part in self.parts] if self._rule.averages else None

    def begin_mean(self) -> None:
        """Restart the average of the weights at the current weights, if this optimizer keeps one."""
        if self._rule.averages:
            for part in self.parts:
                part.moments[0].zero_()

    def keep_if(self, is_finite: Tensor) -> None:
        """If a weight is not finite, undo the part of a step that `changed` does not return."""

    def changed(self) -> list[Tensor]:
        """Return everything that a step changes besides the weights."""
        counts = [part.num_steps for part in self.parts]
        return (
            [moment for part in self.parts for moment in part.moments]
            + counts
            + [number for part in self.parts for number in part.more]
        )

    @property
    def num_steps(self) -> Tensor:
        """The number of steps taken; the largest, if groups were frozen for a while."""
        first: Tensor
        first, *others = [part.num_steps for part in self.parts]
        for count in others:
            first = torch.maximum(first, count.to(first.device))
        return first

    def step(
        self,
        learning_rate: float | Tensor,
        *,
        stays: Sequence[Tensor | None],
        grad_divisor: Tensor | None = None,
        released: Sequence[Sequence[Tensor]] | None = None,
    ) -> None:
        """Take one step along the gradients divided by grad_divisor; none where `stays` holds 1.

        `released` holds the gradients of all parameters of each part, if they are not kept in vectors.
        """
        for index, (part, stay) in enumerate(zip(self.parts, stays, strict=True)):
            part.step(
                learning_rate, stay, grad_divisor, None if released is None else released[index]
            )

    def step_traced(
        self,
        gradients: Vectors,
        learning_rate: Tensor,
        *,
        stays: Vectors,
        grad_divisor: Tensor | None,
    ) -> None:
        """Take the same step along these gradients, as arithmetic that a compiler can fuse."""
        for part, gradient, stay in zip(self.parts, gradients, stays, strict=True):
            part.step_traced(gradient, learning_rate, stay, grad_divisor)

    def state_dict(self) -> dict[str, Any]:
        """Return the moments by parameter name, and the number of steps: per group, if there are groups."""
        moments = [self._flat.by_name(moment) for moment in self.moments]
        more = {_MORE: self._of_groups(self._numbers())} if self.parts[0].more else {}
        return {"num_steps": self._counts(), "moments": moments, **more}

    def _counts(self) -> Tensor | dict[str, Tensor]:
        return self._of_groups([part.num_steps for part in self.parts])

    def _numbers(self) -> list[Tensor]:
        return [torch.stack(part.more) for part in self.parts]

    def _of_groups(self, numbers: Sequence[Tensor]) -> Tensor | dict[str, Tensor]:
        """Return the one number that all parts share, or one per group: parts of a group step together."""
        if not self._flat.frozen:
            return numbers[0]
        return {
            flat.group.name: number
            for flat, number in zip(self._flat.parts, numbers, strict=True)
            if flat.group is not None
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Copy saved moments in."""
        self.check_state(state)
        saved, more = state["num_steps"], state.get(_MORE)
        for flat, part in zip(self._flat.parts, self.parts, strict=True):
            part.num_steps.copy_(saved if flat.group is None else saved[flat.group.name])
            if more is not None:
                numbers = more if flat.group is None else more[flat.group.name]
                for own, number in zip(part.more, numbers, strict=True):
                    own.copy_(number)
        for moment, named in zip(self.moments, state["moments"], strict=True):
            self._flat.load(moment, named, finite=False)

    def check_state(self, state: Mapping[str, Any]) -> None:
        """Raise StateError unless this is the state of such an optimizer."""
        own = {"num_steps": self._counts()}
        if self.parts[0].more:
            own[_MORE] = self._of_groups(self._numbers())
        states.check_keys(state, *own, "moments")
        for key, numbers in own.items():
            if isinstance(numbers, Tensor):
                _check_count(state, key, numbers)
                continue
            with states.within(key):
                states.check_keys(state[key], *numbers)
                for name, count in numbers.items():
                    _check_count(state[key], name, count)
        moments = states.rows(state, "moments", length=len(self.moments))
        with states.within("moments"):
            for index, saved in enumerate(moments):
                with states.within(str(index)):
                    self._flat.check(saved, finite=False)
                    for name, moment in saved.items():
                        # The second moment is 0 or more, and infinite after a very large gradient.
                        low = 0.0 if index in self._rule.squares else -math.inf
                        states.between(name, moment, low=low)


def _check_count(state: Mapping[str, Any], key: str, own: Tensor) -> None:
    states.between(key, states.like(state, key, own, finite=True), low=0)
