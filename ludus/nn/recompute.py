"""Gradient checkpointing: activations of named modules are recomputed in the backward pass, not kept."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ludus.core.errors import ConfigError, nearest
from ludus.nn.groups import is_inside

KEY = "gradient_checkpointing"
WHY_EAGER = (
    f"'{KEY}' computes activations again in the backward pass, which saves memory only where operations are"
    " called one by one"
)
"""Why no engine can replay such an update."""
_EACH = ".*"

Context = contextlib.AbstractContextManager[None]


class Recomputed:
    """Modules of a network whose activations are recomputed, each module as one segment.

    The result equals a plain step bit for bit: the recomputation draws the same random numbers and sees the
    same modes and buffers as the forward pass; its updates of buffers, such as the running statistics of
    batch norm, are dropped, so they change once a step.
    """

    def __init__(self, module: nn.Module, names: Sequence[str]) -> None:
        """`names` are modules; `blocks.*`, or a ModuleList `blocks`, means each module in `blocks`."""
        self._segments = _segments(module, names)

    @contextlib.contextmanager
    def on(self) -> Iterator[None]:
        """Recompute the activations of forward passes in the block when they are differentiated."""
        own = [vars(part).get("forward") for part in self._segments]
        for part in self._segments:
            part.__dict__["forward"] = _recomputing(part, part.forward)
        try:
            yield
        finally:
            for part, forward in zip(self._segments, own, strict=True):
                del part.__dict__["forward"]
                if forward is not None:
                    part.__dict__["forward"] = forward


def _recomputing(part: nn.Module, forward: Callable[..., Any]) -> Callable[..., Any]:
    """Return a forward pass that keeps its inputs for the backward pass, and no activations."""

    @functools.wraps(forward)
    def call(*inputs: object, **named: Any) -> Any:
        if not torch.is_grad_enabled():
            return forward(*inputs, **named)
        return checkpoint(
            forward,
            *inputs,
            use_reentrant=False,
            preserve_rng_state=True,
            context_fn=functools.partial(_contexts, part),
            **named,
        )

    return call


def _contexts(part: nn.Module) -> tuple[Context, Context]:
    """Return the contexts of a forward pass and of its recomputation, which restores modes and buffers."""
    found = [
        (inner, inner.training, {n: b.clone() for n, b in inner._buffers.items() if b is not None})
        for inner in part.modules()
    ]
    return contextlib.nullcontext(), _as_found(found)


@contextlib.contextmanager
def _as_found(found: Sequence[tuple[nn.Module, bool, Mapping[str, Tensor]]]) -> Iterator[None]:
    now = [(inner, inner.training, dict(inner._buffers)) for inner, _, _ in found]
    for inner, mode, buffers in found:
        inner.training = mode
        inner._buffers.update(buffers)
    try:
        yield
    finally:
        for inner, mode, own in now:
            inner.training = mode
            inner._buffers.update(own)


def _segments(module: nn.Module, names: Sequence[str]) -> list[nn.Module]:
    """Return the modules of these names; raise ConfigError if one is unknown or nested in another."""
    known = dict(module.named_modules())
    found: dict[str, str] = {}
    for index, name in enumerate(names):
        path, is_each = name.removesuffix(_EACH), name.endswith(_EACH)
        if not path or path not in known:
            raise ConfigError(
                f"'{KEY}.{index}' is {name}, and the network has no module of that name."
                f"{nearest(path, [one for one in known if one])}"
            )
        is_each = is_each or isinstance(known[path], nn.ModuleList | nn.ModuleDict)
        inside = [f"{path}.{child}" for child, _ in known[path].named_children()]
        if is_each and not inside:
            raise ConfigError(f"'{KEY}.{index}' is {name}, and there is no module in {path}")
        for own in inside if is_each else [path]:
            if isinstance(known[own], torch.jit.ScriptModule):
                raise ConfigError(
                    f"'{KEY}.{index}' names {own}, a TorchScript module, whose forward pass cannot be"
                    " recomputed; name the module it was made of, or leave it out"
                )
            for other, named in found.items():
                if is_inside(own, inside=other) or is_inside(other, inside=own):
                    raise ConfigError(
                        f"'{KEY}' names {own} ({name}) and {other} ({named}), one of which is in the other;"
                        " name one of them"
                    )
            found[own] = name
    return list(dict.fromkeys(known[own] for own in found))
