"""Randomness with a name: every generator is derived from (seed, name, counter) and nothing else."""

from __future__ import annotations

import contextlib
import hashlib
import random
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch


def derive(seed: int, name: str, counter: int = 0) -> int:
    """Return a 63-bit seed for one component; other names and counters are unrelated to it."""
    digest = hashlib.sha256(f"{seed}/{name}/{counter}".encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1


def generator(seed: int, name: str, counter: int = 0) -> torch.Generator:
    """Return a CPU generator of this component's own."""
    return torch.Generator().manual_seed(derive(seed, name, counter))


def seed_everything(seed: int) -> None:
    """Set the global torch, CUDA, NumPy and Python generators."""
    torch.manual_seed(seed)
    np.random.seed(seed % 2**32)
    random.seed(seed)


class GlobalRandom:
    """The global generators of torch, CUDA, NumPy and Python, as a part."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state of all of them; CUDA's only where CUDA is in use."""
        kind, keys, position, has_gauss, cached = np.random.get_state(legacy=True)
        version, internal, gauss = random.getstate()
        return {
            "torch": torch.get_rng_state(),
            "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else [],
            "numpy": [kind, np.asarray(keys).astype(np.int64), position, has_gauss, cached],
            "python": [version, np.asarray(internal, dtype=np.int64), gauss],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Put all of them back."""
        torch.set_rng_state(state["torch"])
        if state["cuda"]:
            torch.cuda.set_rng_state_all(state["cuda"])
        kind, keys, position, has_gauss, cached = state["numpy"]
        np.random.set_state((kind, keys.astype(np.uint32), position, has_gauss, cached))
        version, internal, gauss = state["python"]
        random.setstate((version, tuple(internal.tolist()), gauss))


@contextlib.contextmanager
def forked(seed: int | None = None) -> Iterator[None]:
    """Let the block draw as it likes, from `seed` if given; outside, nothing has been drawn."""
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
