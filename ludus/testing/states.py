"""Contract of loading a state: a value that no part ever saved is refused by key, and changes nothing."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ludus.core.errors import CheckpointError, LudusError
from ludus.core.run import Stateful
from ludus.core.states import fitting
from ludus.store import codec
from ludus.store.checkpoint import digest_of

Path = tuple[Any, ...]


def places(value: object, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Yield every value inside a state with its path, containers before their content."""
    yield path, value
    items: Any = ()
    if isinstance(value, Mapping):
        items = value.items()
    elif isinstance(value, list | tuple):
        items = enumerate(value)
    for key, item in items:
        yield from places(item, (*path, key))


def spoilt(value: object) -> Iterator[tuple[str, Any]]:
    """Yield replacements for a value, each as text and as a value: none fits, or few do."""
    if value is not None:
        yield "nothing", None
    if not isinstance(value, str):
        yield "a text", "x"
    if not isinstance(value, float):
        yield "a fraction", 0.5
    yield "a list", [value]
    if isinstance(value, bool):
        yield "a number", 2
    elif isinstance(value, int):
        yield "negative", -value - 1
        yield "far too large", 10**30
        yield "a flag", True
    elif isinstance(value, float):
        yield "not a number", float("nan")
        yield "infinite", float("inf")
    elif isinstance(value, Tensor | np.ndarray):
        yield from _spoilt_array(value)
    elif isinstance(value, Mapping):
        yield "a stranger more", {**value, "stranger": 1}
        for key in value:
            yield f"{key} missing", {name: item for name, item in value.items() if name != key}
    elif isinstance(value, list):
        yield "one more", [*value, value[-1] if value else 1]
        if value:
            yield "one less", value[:-1]


def _spoilt_array(value: Tensor | np.ndarray) -> Iterator[tuple[str, Any]]:
    make = torch.from_numpy if isinstance(value, Tensor) else np.asarray
    array = value.detach().cpu().numpy() if isinstance(value, Tensor) else value
    yield "of another dimension", make(array[None].copy())
    yield "longer", make(np.concatenate([array.reshape(-1)] * 2 + [np.ones(1, array.dtype)]))
    with np.errstate(over="ignore"):
        other = array.astype(np.float16 if array.dtype != np.float16 else np.float64)
    yield "of another dtype", make(other)
    yield "of the other library", array if isinstance(value, Tensor) else torch.from_numpy(array)
    if array.dtype.kind == "f" and array.size:
        yield "NaN", make(np.full_like(array, np.nan))
    if array.dtype.kind in "fi" and array.size:
        yield "negative", make(np.asarray(-abs(array) - 1))
    if array.dtype.kind == "i" and array.size:
        yield "far too large", make(np.full_like(array, np.iinfo(array.dtype).max))


def replaced(state: Any, path: Path, value: object) -> Any:
    """Return the state with another value at one path; everything else is shared."""
    if not path:
        return value
    key, *rest = path
    inner = replaced(state[key], tuple(rest), value)
    if isinstance(state, Mapping):
        return {**state, key: inner}
    return type(state)([*state[:key], inner, *state[key + 1 :]])


def from_disk(state: object) -> Any:
    """Return a state as it comes back from a checkpoint."""
    tree, tensors, segments = codec.encode(state, keep=lambda path, tensor: tensor.clone())
    return codec.decode(codec.parse_json(codec.dump_json(tree), source="x"), tensors, segments)


def saved_state(make: Callable[[], Stateful], use: Callable[[Any], object]) -> Any:
    """Return the state of a part after use, as it comes back from a checkpoint."""
    part: Any = make()
    use(part)
    state = from_disk(dict(part.state_dict()))
    if hasattr(part, "close"):
        part.close()
    return state


def check_refused_or_taken(
    make: Callable[[], Stateful],
    use: Callable[[Any], object],
    state: Mapping[str, Any],
    what: str,
    *,
    may_fill: bool = False,
) -> bool:
    """Load a changed state; return whether it was refused.

    A refusal is a CheckpointError that names a key, and leaves the part unchanged. A state that is accepted
    must be loaded unchanged, and the part must work with it; `may_fill` lets it fill in what is missing.
    """
    part = make()
    before = digest_of(copy.deepcopy(dict(part.state_dict())))
    try:
        with fitting("part"):
            part.load_state_dict(from_disk(state))
    except CheckpointError as error:
        cause = error.__cause__
        is_named = isinstance(cause, CheckpointError) and getattr(cause, "key", "-") != ""
        assert is_named, f"{what}: refused without a key, by {cause!r}"
        assert digest_of(dict(part.state_dict())) == before, f"{what}: refused, yet half taken"
        return True
    if getattr(part, "inexact_because", tuple)():
        # It reported that it could not continue from there.
        return True
    is_kept = digest_of(dict(part.state_dict())) == digest_of(state)
    assert is_kept or may_fill, f"{what}: taken as another"
    try:
        use(part)
    except LudusError:
        return True
    return False


def check_every_value(
    make: Callable[[], Stateful],
    use: Callable[[Any], object],
    state: Mapping[str, Any],
    *,
    optional: Sequence[str] = (),
    harmless: Sequence[str] = (),
) -> int:
    """Change every value of a part's state in every way, one at a time; return how many were refused.

    `optional` are paths that older versions did not save; `harmless` are patterns of changes, as in
    "returns negative", that lead to another valid state. All others must be refused.
    """
    num_refused = 0
    for path, value in places(state):
        if path:
            for how, other in spoilt(value):
                place = "/".join(map(str, path))
                # A missing value may be reported by the mapping it is missing from.
                names = {place, f"{place}/{how.removesuffix(' missing')}"}
                may_fill = bool(names & {*optional})
                changed = replaced(state, path, other)
                what = f"{place} {how}"
                is_refused = check_refused_or_taken(make, use, changed, what, may_fill=may_fill)
                is_harmless = may_fill or any(fnmatchcase(what, one) for one in harmless)
                assert is_refused or is_harmless, f"{what}: no run ever saved that, yet it is taken"
                num_refused += is_refused
    for key in state:
        rest = {name: value for name, value in state.items() if name != key}
        if key not in optional:
            what = f"{key} missing"
            assert check_refused_or_taken(make, use, rest, what), f"{key} may be missing"
    assert check_refused_or_taken(make, use, {**state, "stranger": 1}, "a stranger more")
    return num_refused
