"""The state of a torch optimizer by parameter name: read, written, and tried out before it is trusted."""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from ludus.core.errors import CheckpointError, ConfigError, LudusError
from ludus.seeds import forked
from ludus.store.codec import encode

Named = Mapping[str, nn.Parameter]
Made = torch.optim.Optimizer
_CODE = (FunctionType, MethodType, BuiltinFunctionType, type, functools.partial)
"""Types of attributes that the class creates again by itself."""


def read_state(made: Made, named: Named) -> dict[str, Any]:
    """Return an optimizer's state of each parameter, the options of its groups, and its attributes.

    Raise ConfigError if it owns parameters or networks that are not trained.
    """
    trained = {id(one) for one in named.values()}
    shared = _shared_names()
    return {
        "state": {name: dict(made.state[one]) for name, one in named.items() if one in made.state},
        "groups": [{k: v for k, v in one.items() if k != "params"} for one in made.param_groups],
        "attributes": {
            name: value
            for name, value in vars(made).items()
            if name not in shared and not _is_made_again(made, name, value, trained)
        },
    }


def write_state(
    made: Made, named: Named, state: Mapping[str, Any], like: Mapping[str, Any]
) -> None:
    """Load a state from `read_state` into an optimizer; tensors go to the devices of those in `like`."""
    made.state.clear()
    for name, kept in state["state"].items():
        own, device = like.get(name, {}), named[name].device
        made.state[named[name]] = {
            key: value.to(own[key].device if isinstance(own.get(key), Tensor) else device)
            if isinstance(value, Tensor)
            else value
            for key, value in kept.items()
        }
    for group, saved in zip(made.param_groups, state["groups"], strict=True):
        group.update(saved)
    for name, value in state["attributes"].items():
        setattr(made, name, value)


def refuse_unsaved(made: Made, state: Mapping[str, Any], error: type[LudusError]) -> None:
    """Raise an error of this type if a checkpoint cannot hold the state."""
    try:
        encode(state)
    except CheckpointError as why:
        raise error(
            f"the optimizer {type(made).__name__} keeps what no checkpoint can hold: {why}; keep numbers,"
            " text, tensors, and lists and dicts of them"
        ) from None


def try_state(make: Callable[[Named], Made], named: Named) -> dict[str, Any]:
    """Return the state after one step on copies of the parameters.

    Raise ConfigError if no step can be taken, if the state cannot be saved, and if an optimizer restored from
    the saved state takes a different second step from the original.
    """
    first = {name: nn.Parameter(one.detach().clone()) for name, one in named.items()}
    made = make(first)
    _step(made, first, 1e-3)
    state = read_state(made, first)
    refuse_unsaved(made, state, ConfigError)
    # Not deepcopy, which would preserve memory shared between tensors, as no file does.
    saved = _copied(state)
    second = {name: nn.Parameter(one.detach().clone()) for name, one in first.items()}
    resumed = make(second)
    write_state(resumed, second, _copied(saved), saved["state"])
    for one, weights in ((made, first), (resumed, second)):
        _step(one, weights, -2e-3)
    for name, weight in first.items():
        if not torch.equal(weight, second[name]):
            raise ConfigError(
                f"the optimizer {type(made).__name__}, saved and loaded, moves {name} otherwise than without:"
                " it keeps state where it is not saved; keep tensors in self.state[parameter], each with its"
                " own memory, and numbers in its groups or attributes"
            )
    return saved


def _copied(state: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = tree_map_only(Tensor, lambda one: one.detach().clone(), dict(state))
    return found


def _step(made: Made, named: Named, gradient: float) -> None:
    for one in named.values():
        one.grad = torch.full_like(one, gradient)
    try:
        with forked(0):
            made.step()
    except Exception as error:
        raise ConfigError(
            f"the optimizer {type(made).__name__} cannot take a step: {type(error).__name__}: {error}"
        ) from error


def _is_made_again(made: Made, name: str, value: object, trained: Collection[int]) -> bool:
    """Return whether an attribute need not be saved to resume: it is code, or trained weights."""
    if isinstance(value, _CODE):
        return True
    leaves = [*_leaves_in(value)]
    owned = [one for one in leaves if isinstance(one, nn.Parameter | nn.Module)]
    others = [one for one in owned if not _is_of(one, trained)]
    if others:
        raise ConfigError(
            f"the optimizer {type(made).__name__} keeps a {type(others[0]).__name__} of its own in '{name}',"
            " which no checkpoint of it would hold; keep plain tensors (tensor.detach().clone()) there"
        )
    return bool(owned) and len(owned) == len(leaves)


def _leaves_in(value: object) -> Iterator[object]:
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple | set | frozenset | deque):
        for one in value:
            yield from _leaves_in(one)
    else:
        yield value


def _is_of(one: nn.Parameter | nn.Module, trained: Collection[int]) -> bool:
    """Return whether this is a trained parameter, or a network of nothing else."""
    weights = [one] if isinstance(one, nn.Parameter) else [*one.parameters(), *one.buffers()]
    return all(id(weight) in trained for weight in weights)


@functools.cache
def _shared_names() -> frozenset[str]:
    """Return the attributes that every torch optimizer has and creates by itself."""
    # Not at import: creating the first optimizer imports all of torch's compiler.
    return frozenset(vars(torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)))
