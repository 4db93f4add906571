"""The replay buffer on the device: its rows and its generator."""

from __future__ import annotations

import torch

from ludus.data.replay.device_ring import Column, DeviceReplay

CPU = torch.device("cpu")
# Numbers of either sign, or none: a log-probability may be infinite.
HARMLESS = ("rows/*/obs negative", "rows/*/obs NaN", "generator/state far too large")


def make() -> DeviceReplay:
    columns = {"obs": Column((3,), torch.float32), "is_open": Column((), torch.bool)}
    return DeviceReplay(columns, 10, seed=5, device=CPU)


def use(buffer: DeviceReplay) -> None:
    for _ in range(3):
        obs = torch.full((4, 3), float(buffer.total_pushed))
        buffer.push({"obs": obs, "is_open": obs[:, 0] % 3 == 0})
    buffer.sample(2)
