"""The optimizer of a role, for hand-written training loops."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from ludus.nn.flat import Vectors
from ludus.nn.learner import Learner


class RoleOptimizer:
    """Updates the network of a role: zero_grad(), then loss.backward(), then step().

    The learning rate is that of the role's schedule at this update. The gradient is clipped to the config's
    max_grad_norm; no step is taken if it is not finite. Nothing waits for the device.
    """

    def __init__(self, learner: Learner, begin_step: Callable[[], Tensor]) -> None:
        """`begin_step` counts an update and returns its learning rate."""
        self._learner, self._begin_step = learner, begin_step

    def zero_grad(self, set_to_none: bool = False) -> None:
        """Zero the gradients of the network in place, whatever `set_to_none` says."""
        self._gather()
        for gradient in self._learner.flat.gradients:
            gradient.zero_()

    def step(self) -> Tensor:
        """Take one step, then zero the gradients; return their norm, which is not finite if no step was
        taken."""
        self._gather()
        rate, flat = self._begin_step(), self._learner.flat
        with torch.no_grad():
            return self._learner.gradient_step.take(flat.gradients, rate, None)

    def _gather(self) -> None:
        """Copy gradients that a script replaced or removed into the flat vectors that a step reads."""
        parameters = dict(self._learner.module.named_parameters())
        for part in self._learner.flat.parts:
            for name, place in zip(part.names, part.views(part.gradient), strict=True):
                given = parameters[name].grad
                if given is None:
                    place.zero_()
                elif given.data_ptr() != place.data_ptr():
                    place.copy_(given)
                parameters[name].grad = place

    @property
    def moments(self) -> list[Vectors]:
        """The vectors of each moment."""
        return list(self._learner.optimizer.moments)

    @property
    def num_steps(self) -> Tensor:
        """The number of steps taken."""
        return self._learner.optimizer.num_steps

    def state_dict(self) -> dict[str, Any]:
        """Return the moments by parameter name, and the number of steps."""
        return self._learner.optimizer.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load saved moments."""
        self._learner.optimizer.load_state_dict(state)
