"""Arrays in anonymous memory that a parent and its workers share; it is freed with the last process.

Shapes: N envs, W workers, A actions.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from typing import Any

import numpy as np

from ludus.envs.spaces import BoxActions, DiscreteActions, EnvSpec, MultiDiscreteActions
from ludus.process.standard_streams import fill_standard_streams

_ALIGNMENT = 64


def open_memory() -> int:
    """Return the descriptor of empty anonymous memory; pass it to children, map it, close it."""
    fill_standard_streams()
    if hasattr(os, "memfd_create"):
        return os.memfd_create("ludus")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def action_shape(spec: EnvSpec, num_envs: int) -> tuple[tuple[int, ...], Any]:
    """Return the shape and dtype of one action for each env."""
    if isinstance(spec.action, DiscreteActions):
        return (num_envs,), np.int64
    if isinstance(spec.action, MultiDiscreteActions):
        return (num_envs, len(spec.action.nvec)), np.int64
    return (num_envs, len(spec.action.low)), np.float32


class SharedArrays:
    """The inputs and outputs of all envs, at the same offsets for all processes that map the memory."""

    def __init__(self, memory: int, spec: EnvSpec, num_envs: int, num_workers: int) -> None:
        assert isinstance(spec.action, DiscreteActions | MultiDiscreteActions | BoxActions)
        n, width = num_envs, spec.action.mask_width if spec.has_masks else 0
        shapes: dict[str, tuple[tuple[int, ...], Any]] = {
            "actions": action_shape(spec, n),
            "obs": ((n, *spec.obs_shape), spec.obs_dtype),
            "next_obs": ((n, *spec.obs_shape), spec.obs_dtype),
            "rewards": ((n,), np.float64),
            "own_rewards": ((n,), np.float64),
            "terminated": ((n,), np.bool_),
            "truncated": ((n,), np.bool_),
            "successes": ((n,), np.float64),
            "cut": ((n,), np.bool_),
            "masks": ((n, width), np.bool_),
            "next_masks": ((n, width), np.bool_),
            "has_ended": ((num_workers,), np.bool_),
        }
        sizes = {k: int(np.prod(s)) * np.dtype(d).itemsize for k, (s, d) in shapes.items()}
        # Each begins on its own cache line.
        room = {name: -(-size // _ALIGNMENT) * _ALIGNMENT for name, size in sizes.items()}
        total = sum(room.values())
        os.ftruncate(memory, total)
        block, place = mmap.mmap(memory, total), 0
        self._arrays: dict[str, np.ndarray] = {}
        for name, (shape, dtype) in shapes.items():
            view = memoryview(block)[place : place + sizes[name]]
            self._arrays[name] = np.frombuffer(view, dtype).reshape(shape)
            place += room[name]

    def __getitem__(self, name: str) -> np.ndarray:
        return self._arrays[name]


SHOWN = ("obs", "next_obs", "rewards", "own_rewards", "terminated", "truncated", "successes")
"""The arrays of a vector env that every step fills."""
MASKS = ("masks", "next_masks")
"""The arrays that only envs with masks have."""
