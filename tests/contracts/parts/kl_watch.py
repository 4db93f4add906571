"""What PPO's updates have found of the KL divergence, half way through a pass."""

from __future__ import annotations

import torch

from ludus.rl.rollouts.kl_watch import KlWatch
from tests.rl.small import BY_KL, small

# An update that was not taken may have found anything.
HARMLESS = ("last not a number", "last infinite", "sum NaN", "sum negative")


def make() -> KlWatch:
    config = small("ppo", target_kl=0.01, **BY_KL)
    options = {"minibatches": config.num_minibatches, "target_kl": config.target_kl}
    return KlWatch(config.kl, device=torch.device("cpu"), **options)


def use(watch: KlWatch) -> None:
    for kl in (0.1, 0.2, 0.3):
        watch.note(torch.tensor(kl))
    watch.begin_rollout()
    for kl in (0.1, 0.2, 0.3, 0.4):
        watch.note(torch.tensor(kl))
