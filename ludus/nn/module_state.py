"""The state of a network other than its trained parameters: frozen parameters, buffers, extra state.

All of it affects the network's output, so all of it is saved, kept with the weights, and copied to a target
network: buffers of any dtype, persistent or not, and the result of `get_extra_state`, which is encoded as
bytes so that everything saved is a tensor.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ludus.core import states
from ludus.nn.engines.unsaved import has_extra_state
from ludus.nn.flat import FlatParameters, Vectors
from ludus.nn.swapped_weights import restored
from ludus.process.messages import pack, unpack

EXTRA = "_extra_state"
"""torch's suffix, after the module's name, of the state that `get_extra_state` returns."""


class ModuleState:
    """Everything in a module's state, by name, except the parameters with these names.

    A module may replace the tensor of a buffer in its forward pass, so buffers are looked up each time;
    loading copies into the current tensors.
    """

    def __init__(self, module: nn.Module, *, without: Collection[str]) -> None:
        self._module = module
        frozen = {name: p for name, p in module.named_parameters() if name not in without}
        self._frozen = frozen
        self._extra = extra_modules(module)
        self.has_buffers = next(module.buffers(), None) is not None
        self.was_lost = False
        """Whether a state of an older version was loaded, which contained none of this."""

    def tensors(self) -> dict[str, Tensor]:
        """Return all of it; buffers and frozen parameters are the module's tensors, not copies."""
        found = {name: parameter.detach() for name, parameter in self._frozen.items()}
        found |= {name: buffer.detach() for name, buffer in self._module.named_buffers()}
        for name, module in self._extra.items():
            found[name] = extra_to_tensor(module.get_extra_state())
        return found

    def check(self, saved: Mapping[str, Tensor]) -> None:
        """Raise StateError unless every name, shape and dtype matches the module."""
        own = self.tensors()
        for name in sorted({*saved, *own}):
            if name in self._extra and name in saved:
                part = self._extra[name]
                # Only the module can tell whether it fits.
                with states.within(name), restored(part, what=["extra_state"]):
                    part.set_extra_state(tensor_to_extra(saved[name]))
            elif _kind(saved.get(name)) != _kind(own.get(name)):
                found, wanted = _kind(saved.get(name)), _kind(own.get(name))
                problem = f"is {found}, in the model {wanted}" if found else "is missing"
                remedy = "build the model as it was when it was saved"
                raise states.StateError(name, f"{problem}; {remedy}")

    def load(self, saved: Mapping[str, Tensor]) -> None:
        """Copy saved tensors in; every name, shape and dtype must match the module."""
        self.check(saved)
        with torch.no_grad():
            for name, tensor in self.tensors().items():
                if name in self._extra:
                    self._extra[name].set_extra_state(tensor_to_extra(saved[name]))
                else:
                    tensor.copy_(saved[name])

    def follow(self, other: ModuleState) -> None:
        """Copy the buffers and the extra state of a module of the same kind."""
        if self.has_buffers:
            theirs = dict(other._module.named_buffers())
            for name, buffer in self._module.named_buffers():
                buffer.copy_(theirs[name])
        for name, module in self._extra.items():
            module.set_extra_state(copy.deepcopy(other._extra[name].get_extra_state()))


def check_named(
    flat: FlatParameters, module_state: ModuleState, saved: Mapping[str, Tensor]
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return saved tensors of trained parameters, and the others; raise StateError unless all fit."""
    states.check_keys(saved, optional=list(saved) if isinstance(saved, Mapping) else ())
    trained = {name: tensor for name, tensor in saved.items() if name in flat.names}
    rest = {name: tensor for name, tensor in saved.items() if name not in trained}
    flat.check(trained)
    if not _lacks(rest):
        module_state.check(rest)
    return trained, rest


def load_named(
    flat: FlatParameters, vectors: Vectors, module_state: ModuleState, saved: Mapping[str, Tensor]
) -> None:
    """Copy saved tensors in: those of trained parameters to the vectors, the others to the module."""
    trained, rest = check_named(flat, module_state, saved)
    if not _lacks(rest):
        module_state.load(rest)
    elif module_state.tensors():
        module_state.was_lost = True
    flat.load(vectors, trained)


def _lacks(rest: Mapping[str, Tensor]) -> bool:
    """Return whether this is a state of format 1, which held trained parameters alone."""
    return not rest and states.is_of_format(1)


def extra_modules(module: nn.Module) -> dict[str, nn.Module]:
    """Return the submodules that have extra state, by torch's name of that state."""
    return {
        f"{name}.{EXTRA}" if name else EXTRA: part
        for name, part in module.named_modules()
        if has_extra_state(type(part))
    }


def extra_to_tensor(state: object) -> Tensor:
    """Encode a `get_extra_state` result (numbers, strings, tensors, in lists and dicts) as bytes."""
    plain, data = pack({"state": state})
    header = json.dumps(plain).encode()
    whole = len(header).to_bytes(8, "little") + header + data
    return torch.from_numpy(np.frombuffer(whole, np.uint8).copy())


def tensor_to_extra(tensor: Tensor) -> Any:
    """Decode the bytes of `extra_to_tensor`."""
    whole = tensor.detach().cpu().numpy().tobytes()
    end = 8 + int.from_bytes(whole[:8], "little")
    return unpack(json.loads(whole[8:end]), whole[end:])["state"]


def _kind(tensor: Tensor | None) -> str | None:
    if tensor is None:
        return None
    return f"{str(tensor.dtype).removeprefix('torch.')} {tuple(tensor.shape)}"
