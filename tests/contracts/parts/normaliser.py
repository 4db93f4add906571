"""The normaliser: its moments, the returns under way, and the shifts and scales that follow from them."""

from __future__ import annotations

import numpy as np
import torch

from ludus.rl.sampling.normalise import NormaliseConfig, Normaliser

# Means have either sign.
HARMLESS = ("*/mean negative", "returns negative", "published/0 negative")


def make() -> Normaliser:
    config = NormaliseConfig(observations=True, rewards=True, clip=5.0)
    return Normaliser(config, (3,), 2, gamma=0.9, device=torch.device("cpu"))


def use(normaliser: Normaliser) -> None:
    generator = np.random.default_rng(0)
    for _ in range(3):
        normaliser.gather_rewards(generator.normal(size=2), np.array([False, True]))
        normaliser.gather_observations(generator.normal(2, 3, size=(2, 3)).astype(np.float32))
    normaliser.gather_rewards(np.array([10.0, 20.0]), np.array([False, False]))
