"""A target network: a copy that follows the learner slowly, for temporal-difference learning."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ludus.nn.learner import Learner
from ludus.nn.module_state import ModuleState, check_named, load_named


class Target:
    """A target network of a learner, for bootstrapped values; in eval mode."""

    def __init__(self, learner: Learner) -> None:
        self._learner = learner
        self.vectors = [vector.clone() for vector in learner.flat.vectors]
        self._module = copy.deepcopy(learner.module).requires_grad_(False)
        views = learner.flat.by_name(self.vectors)
        theirs = dict(learner.module.named_parameters())
        for name, parameter in self._module.named_parameters():
            parameter.grad = None
            # Parameters that are not trained are shared.
            parameter.data = views[name] if name in views else theirs[name].data
        self.module_state = ModuleState(self._module, without=set(theirs))
        self._buffers = dict(self._module.named_buffers())

    def __call__(self, *inputs: Tensor) -> Any:
        """Return the network's output with the weights and buffers of the target."""
        if torch.compiler.is_compiling():
            return self._learner.bound(self.vectors, self._buffers)(*inputs)
        with self._learner.autocast():
            return self._module(*inputs)

    def follow(self, tau: float) -> None:
        """Move the weights this fraction of the way to the learner's (Polyak averaging); copy the buffers."""
        for own, vector in zip(self.vectors, self._learner.flat.vectors, strict=True):
            if tau == 1.0:
                own.copy_(vector)
            else:
                own.lerp_(vector, tau)
        self.module_state.follow(self._learner.module_state)

    def state_dict(self) -> dict[str, Any]:
        """Return weights and buffers by name."""
        return {**self._learner.flat.by_name(self.vectors), **self.module_state.tensors()}

    def check_state(self, state: Mapping[str, Any]) -> None:
        """Raise StateError unless this is the state of such a target."""
        check_named(self._learner.flat, self.module_state, state)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Copy saved weights and buffers in."""
        load_named(self._learner.flat, self.vectors, self.module_state, state)
