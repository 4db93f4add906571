"""Host and agent trained by a `_train` that is written by hand, as seed 001 says it."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

import ludus
from ludus.games import TwoRoleTrainer
from tests.games.dqn.small import small_dqn

# Nobody draws from the global generators.
INERT = ("random",)
EMPTY = "is empty, so nothing can be drawn"
REFUSALS = {"host_replay": EMPTY, "agent_replay": EMPTY}
FALLING = {"kind": "linear", "warmup_steps": 0, "final": 0.001, "total_steps": None}


class ByHand(TwoRoleTrainer):
    """Q-learning, all of it in `_train`."""

    def _train(self) -> dict[str, float]:
        losses = {}
        for role in self.trained_roles:
            net, optimizer = self.get_net(role), self.get_optimizer(role)
            self.collect_rollout(role, 4)
            batch = self.get_replay_buffer(role).sample(8)
            with torch.no_grad():
                values = self.learners[role].target(batch["next_obs"])
                legal = self.fused_game.legal(batch["next_obs"], role)
                if legal is not None:
                    values = values.masked_fill(~legal, -1.0)
                future = values.amax(1) * ~batch["dones"]
            self.set_training(True)
            found = net(batch["obs"]).gather(1, batch["actions"].long().unsqueeze(1)).squeeze(1)
            gamma = self.get_hyperparameter(role, "gamma")
            loss = nn.functional.mse_loss(found, batch["rewards"] + gamma * future)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            self.set_training(False)
            self.learners[role].sync_target()
            losses[f"{role}/my_loss"] = float(loss.detach())
        return losses


def make(**changed: Any) -> ludus.Trainer:
    changes = {"engine": "auto", "host.learning_rate_schedule": FALLING, "host.tau": 0.5, **changed}
    return ByHand(small_dqn(**changes))
