"""Layer-wise logging of a role's network: the norms of its weights and of their gradients."""

from __future__ import annotations

import torch

from ludus.games.dqn.role import RoleLearner
from ludus.games.roll_out import Experiences
from ludus.nn.swapped_weights import restored
from ludus.seeds import derive


def layer_norms(learner: RoleLearner, seed: int) -> dict[str, float]:
    """Return the norm of every layer's weights, and of their gradient for one batch of the replay buffer.

    The batch is sampled by the seed and the number of updates, and the network is in eval mode, so that the
    run is not affected. This waits for the device.
    """
    draws = torch.Generator(learner.device)
    draws.manual_seed(derive(seed, f"{learner.role}/layers", learner.num_updates))
    held = learner.replay.size.clamp(min=1)
    places_B = torch.empty(learner.config.batch_size, dtype=torch.int64, device=learner.device)
    batch = learner.replay.at(places_B.random_(generator=draws).remainder_(held))
    flat = learner.learner.flat
    named = flat.by_name(flat.vectors)
    weights = dict(learner.net.named_parameters())
    with restored(learner.net), torch.enable_grad():
        loss, _ = learner.loss_fn(*(batch[name] for name in Experiences._fields))(learner.learner)
        found = torch.autograd.grad(loss, [weights[name] for name in named], allow_unused=True)
    norms = {f"layers/{learner.role}/{name}": float(t.norm()) for name, t in named.items()}
    for name, gradient in zip(named, found, strict=True):
        norm = 0.0 if gradient is None else float(gradient.norm())
        norms[f"layers/{learner.role}/{name}/gradient"] = norm
    return norms
