"""The buffers and the train or eval mode of a network during a step."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_leaves

from ludus.core.errors import LudusError
from ludus.nn.engines.compiled import NOT_FOLLOWED
from ludus.nn.engines.gate import is_plain_kind
from ludus.nn.engines.tape import is_taping
from ludus.nn.engines.unsaved import is_foreign
from ludus.nn.swapped_weights import restored
from ludus.seeds import forked

# A buffer larger than this is copied at every step only if the first batch changed it.
_LARGE = 2**20

Before = list[tuple[nn.Module, str, Tensor]]


class GuardedBuffers:
    """Buffers (the running statistics of batch norm) that are rolled back after a bad batch.

    A module may replace the tensor of a buffer in its forward pass, so buffers are looked up each time.
    """

    def __init__(self, module: nn.Module) -> None:
        found = {
            id(buffer): (part, name)
            for part in module.modules()
            for name, buffer in part._buffers.items()
            if buffer is not None
        }
        self._places = list(found.values())
        self._has_looked = False
        self.may_read = all(buffer.device.type == "cpu" for buffer in module.buffers())
        """Whether reading a scalar is free: true on the CPU, where no device has to be waited for."""

    def before(self) -> Before:
        """Return a copy of each buffer, for `restore_unless`."""
        if not self._places:
            return []
        if is_taping() or self.may_read:
            return [(part, name, self._buffer(part, name).clone()) for part, name in self._places]
        buffers = [self._buffer(part, name) for part, name in self._places]
        copies = [torch.empty_like(buffer) for buffer in buffers]
        for alike in _by_kind(copies, buffers):
            torch._foreach_copy_([copy for copy, _ in alike], [buffer for _, buffer in alike])
        named = zip(self._places, copies, strict=True)
        return [(part, name, copy) for (part, name), copy in named]

    def restore_unless(self, is_good: Tensor, before: Before) -> None:
        """Restore the buffers unless this number is finite, without synchronising with the device."""
        if not before:
            return
        if not self._has_looked:
            self._forget_large(before)
        with torch.no_grad():
            if self.may_read and not is_taping():
                if not math.isfinite(is_good.item()):
                    for part, name, old in before:
                        self._buffer(part, name).copy_(old)
                return
            is_finite = torch.isfinite(is_good)
            buffers = [self._buffer(part, name) for part, name, _ in before]
            if is_taping():
                for buffer, (*_, old) in zip(buffers, before, strict=True):
                    buffer.copy_(torch.where(is_finite, buffer, old))
                return
            # Batch norms have hundreds of small buffers: a few kernel launches copy them all.
            for alike in _by_kind(buffers, [old for *_, old in before]):
                now, olds = zip(*alike, strict=True)
                sizes = [buffer.numel() for buffer in now]
                whole = torch.where(is_finite.to(now[0].device), _joined(now), _joined(olds))
                pieces = zip(whole.split(sizes), now, strict=True)
                torch._foreach_copy_(list(now), [piece.view(one.shape) for piece, one in pieces])

    def _forget_large(self, before: Before) -> None:
        self._has_looked = True
        if is_taping():
            return
        still = {
            (part, name)
            for part, name, old in before
            if old.nbytes > _LARGE and torch.equal(old, self._buffer(part, name))
        }
        self._places = [place for place in self._places if place not in still]

    def _buffer(self, part: nn.Module, name: str) -> Tensor:
        buffer = part._buffers[name]
        assert buffer is not None, f"the buffer {name} of a {type(part).__qualname__} is gone"
        return buffer


def _by_kind(
    tensors: Sequence[Tensor], others: Sequence[Tensor]
) -> list[list[tuple[Tensor, Tensor]]]:
    """Group pairs of tensors by dtype and device."""
    found: dict[tuple[torch.dtype, torch.device], list[tuple[Tensor, Tensor]]] = {}
    for pair in zip(tensors, others, strict=True):
        found.setdefault((pair[0].dtype, pair[0].device), []).append(pair)
    return list(found.values())


def _joined(tensors: Sequence[Tensor]) -> Tensor:
    return torch.cat([tensor.reshape(-1) for tensor in tensors])


class CallWith:
    """Calls a module with other weights and buffers in place of its own.

    A submodule that is reached by two names is swapped once: torch's own search for tied tensors would swap
    it twice, and take the tensors of the first swap for those to restore.
    """

    def __init__(self, module: nn.Module) -> None:
        self._module = module
        self._is_to_check = any(is_foreign(type(part)) for part in module.modules())
        first: dict[int, str] = {}
        self._further: dict[str, list[str]] = {}
        for path, part in module.named_modules():
            for attribute, tensor in [*part._parameters.items(), *part._buffers.items()]:
                name = f"{path}.{attribute}" if path else attribute
                if tensor is not None and first.setdefault(id(tensor), name) != name:
                    self._further.setdefault(first[id(tensor)], []).append(name)

    def __call__(
        self, weights: Mapping[str, Tensor], buffers: dict[str, Tensor], inputs: tuple[Tensor, ...]
    ) -> Any:
        """Return the module's output; `buffers` then holds the buffers as the call left them."""
        own = {**weights, **buffers}
        for name, others in self._further.items():
            if name in own:
                own.update(dict.fromkeys(others, own[name]))
        if self._is_to_check and not torch.compiler.is_compiling():
            self._is_to_check = False
            self._check_followed(own, inputs)
        said = functional_call(self._module, own, inputs, tie_weights=False)
        # The module may have replaced the tensor of a buffer; `own` holds the tensors that are current.
        buffers.update({name: own[name] for name in buffers})
        return said

    def _check_followed(self, own: Mapping[str, Tensor], inputs: tuple[Tensor, ...]) -> None:
        """Raise LudusError if the module computes with its own weights, whatever weights it is given.

        The given tensors require no gradient, so a weight that the output would have a gradient for is the
        module's own. A network may require a gradient of its input: that is not a weight.
        """
        given = {name: tensor.detach().clone() for name, tensor in own.items()}
        asked = tuple([x.detach() for x in inputs])
        with (
            _disable_current_modes(),
            forked(),
            restored(self._module),
            torch.enable_grad(),
        ):
            said = functional_call(self._module, given, asked, tie_weights=False)
        answers = [one for one in tree_leaves(said) if isinstance(one, Tensor)]
        own_weights = {id(weight) for weight in self._module.parameters()}
        if any(
            isinstance(leaf, nn.Parameter) or id(leaf) in own_weights for leaf in _leaves(answers)
        ):
            raise LudusError(NOT_FOLLOWED)


def _leaves(answers: Sequence[Tensor]) -> list[Tensor]:
    """Return the leaf tensors that autograd would differentiate these with respect to."""
    leaves = [one for one in answers if one.is_leaf and one.requires_grad]
    waiting: list[Any] = [one.grad_fn for one in answers]
    seen: set[Any] = set()
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if type(node).__name__ == "AccumulateGrad":
            leaves.append(node.variable)
        waiting += [before for before, _ in node.next_functions]
    return leaves


def parts_with_modes(module: nn.Module) -> list[nn.Module]:
    """Put a module in eval mode; return the submodules that train mode changes."""
    # Called on the root, because a module may override train(): a frozen batch norm never trains.
    module.train()
    trained = [part for part in module.modules() if part.training]
    module.eval()
    return [part for part in trained if not part.training and not is_plain_kind(type(part))]


def set_mode(parts: Sequence[nn.Module], mode: bool) -> None:
    """Set the train or eval mode of these submodules alone."""
    for part in parts:
        part.training = mode
