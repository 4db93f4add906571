"""The global generators of torch, NumPy and Python."""

from __future__ import annotations

import random

import numpy as np
import torch

from ludus.seeds import GlobalRandom, seed_everything

# Nothing is cached.
HARMLESS = ("python/2 nothing",)


class Seeded(GlobalRandom):
    """Starts from one place, and takes its state up before it is used."""

    def __init__(self) -> None:
        seed_everything(4)
        self.state = super().state_dict()

    def state_dict(self):
        return self.state

    def load_state_dict(self, state) -> None:
        super().load_state_dict(state)
        self.state = super().state_dict()

    def draw(self) -> None:
        GlobalRandom.load_state_dict(self, self.state)
        torch.randn(3), np.random.rand(3), random.random()
        random.gauss(0, 1), np.random.randn()
        self.state = GlobalRandom.state_dict(self)


def make() -> Seeded:
    return Seeded()


def use(part: Seeded) -> None:
    part.draw()
