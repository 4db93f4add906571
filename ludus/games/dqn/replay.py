"""The replay buffer of a role: transitions, one per row, on the device."""

from __future__ import annotations

import torch

from ludus.data.replay.device_ring import Column, DeviceReplay


def make_replay(
    role: str, *, inputs: int, capacity: int, seed: int, device: torch.device
) -> DeviceReplay:
    """Return an empty buffer for the fields of Experiences, for observations of this many features."""
    row = Column((inputs,), torch.float32)
    columns = {
        "obs": row,
        "actions": Column((), torch.int32),
        "rewards": Column((), torch.float32),
        "dones": Column((), torch.bool),
        "next_obs": row,
    }
    return DeviceReplay(columns, capacity, seed=seed, device=device, name=f"{role}/replay")
