"""Named random generators: each is derived from (seed, name, counter) and nothing else."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch

from ludus.core import states
from ludus.core.derived_seed import derive as derive


def generator(seed: int, name: str, counter: int = 0) -> torch.Generator:
    """Return a CPU generator for this component alone."""
    return torch.Generator().manual_seed(derive(seed, name, counter))


def seed_everything(seed: int) -> None:
    """Seed the global generators of torch, CUDA, NumPy and Python."""
    if torch.cuda.is_available() or torch.backends.mps.is_available():
        torch.manual_seed(seed)
    else:
        # torch.manual_seed would record the call stack for a device initialised later, which takes 0.5 ms.
        torch.default_generator.manual_seed(seed)
    np.random.seed(seed % 2**32)
    random.seed(seed)


class GlobalRandom:
    """The global generators of torch, CUDA, NumPy and Python, as a part."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state of all of them; CUDA's only if CUDA is in use."""
        kind, keys, position, has_gauss, cached = np.random.get_state(legacy=True)
        version, internal, gauss = random.getstate()
        return {
            "torch": torch.get_rng_state(),
            "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else [],
            "numpy": [kind, np.asarray(keys).astype(np.int64), position, has_gauss, cached],
            "python": [version, np.asarray(internal, dtype=np.int64), gauss],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore all of them."""
        states.check_keys(state, "torch", "cuda", "numpy", "python")
        own = self.state_dict()
        cpu, cuda = states.like(state, "torch", own["torch"]), states.rows(state, "cuda")
        with states.within("torch"):
            torch.Generator().set_state(cpu)
        for index in range(len(cuda)):
            with states.within("cuda"):
                states.shaped(cuda, index, own["torch"], (None,))
        numpy, python = _numpy_state(state), _python_state(state)
        if cuda:
            with states.within("cuda"):
                torch.cuda.set_rng_state_all(cuda)
        torch.set_rng_state(cpu)
        np.random.set_state(numpy)
        random.setstate(python)


def _numpy_state(state: Mapping[str, Any]) -> tuple[str, Any, int, int, float]:
    """Return the checked state of NumPy's global generator, which itself would accept any position."""
    whole = states.rows(state, "numpy", length=5)
    with states.within("numpy"):
        if states.text(whole, 0) != "MT19937":
            raise states.StateError("0", f"is {whole[0]!r}; it must be MT19937")
        keys = states.like(whole, 1, np.zeros(624, np.int64))
        states.between(1, keys, low=0, high=2**32 - 1)
        position = states.whole(whole, 2, at_most=624)
        has_gauss = states.whole(whole, 3, at_most=1)
        cached = states.number(whole, 4)
        if not isinstance(cached, float):
            raise states.StateError("4", f"is {cached}, not a float")
        return "MT19937", keys.astype(np.uint32), position, has_gauss, cached


def _python_state(state: Mapping[str, Any]) -> tuple[int, tuple[int, ...], float | None]:
    whole = states.rows(state, "python", length=3)
    with states.within("python"):
        version = states.whole(whole, 0, at_least=3, at_most=3)
        internal = states.like(whole, 1, np.zeros(625, np.int64))
        states.between(1, internal, low=0, high=2**32 - 1)
        gauss = None if whole[2] is None else states.number(whole, 2)
        found = version, tuple(internal.tolist()), gauss
        random.Random().setstate(found)
        return found


def read_generator(state: Mapping[str, Any], key: str) -> dict[str, Any]:
    """Return the saved state of a PCG64 generator; raise StateError if it is not one."""
    saved = states.mapping(state, key)
    with states.within(key):
        states.check_keys(saved, "bit_generator", "state", "has_uint32", "uinteger")
        if saved["bit_generator"] != "PCG64":
            raise states.StateError("bit_generator", f"is {saved['bit_generator']!r}, not PCG64")
        inner = states.mapping(saved, "state")
        states.whole(saved, "has_uint32", at_most=1)
        states.whole(saved, "uinteger", at_most=2**32 - 1)
        with states.within("state"):
            states.check_keys(inner, "state", "inc")
            states.whole(inner, "state", at_most=2**128 - 1)
            if states.whole(inner, "inc", at_most=2**128 - 1) % 2 == 0:
                raise states.StateError("inc", "is even; a generator's increment is odd")
        np.random.PCG64().state = saved  # type: ignore[assignment]
    return saved


@contextlib.contextmanager
def forked(seed: int | None = None) -> Iterator[None]:
    """Isolate the block's random draws, from `seed` if given; the generators are restored after it."""
    saved = torch.get_rng_state(), np.random.get_state(), random.getstate()
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
    if seed is not None:
        seed_everything(seed)
    try:
        yield
    finally:
        torch.set_rng_state(saved[0])
        np.random.set_state(saved[1])
        random.setstate(saved[2])
        if cuda:
            torch.cuda.set_rng_state_all(cuda)
