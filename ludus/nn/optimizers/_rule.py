"""The base class of optimizer kinds: the update rule of one flat vector, and its moments."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from ludus.config.base import PositiveFloat, StrictConfig
from ludus.nn.flat import FlatParameters, FlatPart, Vectors, fused_pieces

Decay = Annotated[float, Field(ge=0, le=1e30)]
"""Within the range of float32, since there may be one value per weight."""
Rate = float | Tensor
"""A number, one for all weights or one per weight; as a tensor it may change when an update is replayed."""


class OptimizerConfig(StrictConfig):
    """The config of an optimizer; the Config of every registered optimizer derives from it."""

    may_change: ClassVar[tuple[str, ...]] = ("learning_rate", "weight_decay")

    kind: str
    """The kind of optimizer."""
    learning_rate: PositiveFloat
    """The step size; the learning-rate schedule starts from it."""


class Slices:
    """Slices of one vector, with their gradients and moments, that share one weight decay."""

    def __init__(
        self, part: FlatPart, moments: Vectors, decay: float, names: Collection[str] | None
    ) -> None:
        """The slices of the parameters of these names; None means the whole vector."""
        pieces = None if names is None else part.slices(names)
        self.places = [i for i, name in enumerate(part.names) if names is None or name in names]
        """The indices of the parameters within the part."""
        if not part.keeps_gradients:
            # Autograd allocates a gradient for each parameter.
            pieces = part.slices(part.names if names is None else names)
        elif part.vector.is_cuda:
            pieces = fused_pieces([slice(0, len(part.vector))] if pieces is None else pieces)

        def cut(vector: Tensor) -> list[Tensor]:
            return [vector] if pieces is None else [vector[piece] for piece in pieces]

        self.decay = decay
        self.vectors = cut(part.vector)
        self._gradients = cut(part.gradient) if part.keeps_gradients else []
        self.moments = [cut(moment) for moment in moments]

    def gradients(self, released: Sequence[Tensor] | None) -> list[Tensor]:
        """Return the gradients of the slices: kept ones, or those out of the gradients of all parameters."""
        return self._gradients if released is None else [released[place] for place in self.places]


class Rule:
    """Updates one vector; each kind defines its rule in `moved`, as arithmetic that a compiler can fuse.

    If torch has a fused kernel, a kind calls it in `step`; otherwise `step` does the same arithmetic.
    """

    Config: ClassVar[type[OptimizerConfig]] = OptimizerConfig
    squares: ClassVar[tuple[int, ...]] = ()
    """The indices of moments that are means of squares, so never below 0."""
    is_fused: ClassVar[bool] = False
    """Whether `step` calls a fused kernel of torch, which takes the gradient of each parameter as it is."""
    averages: ClassVar[bool] = False
    """Whether the weights to evaluate differ from those at which gradients are computed."""

    def __init__(
        self, config: OptimizerConfig, part: FlatPart, undecayed: frozenset[str], home: torch.device
    ) -> None:
        """Scalars that all vectors share are on the device `home`."""
        self.config = config
        self._is_away = part.vector.device != home
        self.vector, self.gradient, self.rate = part.vector, part.gradient, part.rate
        self.moments = [torch.zeros_like(part.vector) for _ in range(self.count_moments())]
        self.num_steps = torch.zeros((), device=part.vector.device)
        self.more: list[Tensor] = self.first_numbers()
        """Further scalars in its state."""
        self._corrections = torch.zeros_like(self.corrections(self.num_steps + 1, self.more))
        decay: float = getattr(config, "weight_decay", 0.0)
        self._decay: Rate = decay
        """One value for all weights, or one per weight."""
        self._slices = [Slices(part, self.moments, decay, None)]
        if decay and not undecayed.isdisjoint(part.names):
            self._decay = torch.full_like(part.vector, decay)
            for piece in part.slices(undecayed):
                self._decay[piece] = 0.0
            others = undecayed & {*part.names}
            both = ((decay, {*part.names} - undecayed), (0.0, others))
            self._slices = [Slices(part, self.moments, own, found) for own, found in both if found]

    @classmethod
    def check(cls, config: OptimizerConfig, flat: FlatParameters) -> None:
        """Raise LudusError if the config names parameters that do not exist."""

    def count_moments(self) -> int:
        """Return the number of moment vectors; they begin at 0."""
        return 1

    def first_numbers(self) -> list[Tensor]:
        """Return the initial values of the further scalars."""
        return []

    def step(
        self,
        learning_rate: Rate,
        found_inf: Tensor | None,
        grad_divisor: Tensor | None,
        released: Sequence[Tensor] | None = None,
    ) -> None:
        """Take one step along the gradient divided by grad_divisor, unless found_inf holds 1.

        `released` holds the gradients of all parameters, if they are not kept in a vector.
        """
        gradient = self.gradient if released is None else torch.cat([*released])
        self.step_traced(gradient, learning_rate, found_inf, grad_divisor)

    def step_traced(
        self,
        gradient: Tensor,
        learning_rate: Rate,
        found_inf: Tensor | None,
        grad_divisor: Tensor | None,
    ) -> None:
        """Take the same step along this gradient, as arithmetic that a compiler can fuse."""
        rate, grad_divisor = self._own(learning_rate, grad_divisor)
        if grad_divisor is not None:
            gradient = gradient / grad_divisor
        num_steps = self.num_steps + 1
        more = self.advanced(num_steps, rate)
        # Stored, or a fused kernel would compute the powers again for every weight.
        self._corrections.copy_(self.corrections(num_steps, more))
        vector, moments = self.moved(self.vector, gradient, self.moments, self._corrections, rate)
        owned = [self.vector, self.num_steps, *self.moments, *self.more]
        for own, new in zip(owned, [vector, num_steps, *moments, *more], strict=True):
            own.copy_(new if found_inf is None else torch.where(found_inf == 0, new, own))

    def _own(self, learning_rate: Rate, grad_divisor: Tensor | None) -> tuple[Rate, Tensor | None]:
        """Return the learning rate of this group and the scale, on the device of the vector."""
        if self._is_away:
            device = self.vector.device
            learning_rate = torch.as_tensor(learning_rate, device=device)
            grad_divisor = None if grad_divisor is None else grad_divisor.to(device)
        return learning_rate if self.rate == 1.0 else learning_rate * self.rate, grad_divisor

    def advanced(self, num_steps: Tensor, lr: Rate) -> list[Tensor]:
        """Return the further scalars after this step."""
        return []

    def corrections(self, num_steps: Tensor, more: Sequence[Tensor] = ()) -> Tensor:
        """Return the scalars that one step uses for all weights, such as bias corrections."""
        return torch.zeros(1, device=num_steps.device)

    def moved(
        self, vector: Tensor, gradient: Tensor, moments: Vectors, corrections: Tensor, lr: Rate
    ) -> tuple[Tensor, list[Tensor]]:
        """Return the vector and moments after one step, as arithmetic that a compiler can fuse."""
        raise NotImplementedError

    def evaluated(self) -> Tensor:
        """Return the weights to evaluate."""
        return self.vector

    def _exact(self, number: Rate) -> Tensor:
        """Return a number in the most precise dtype of the device."""
        device = self.vector.device
        dtype = torch.float32 if device.type == "mps" else torch.float64
        return torch.as_tensor(number, dtype=dtype, device=device)
