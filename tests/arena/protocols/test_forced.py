"""A forced guess is followed by all that comes of an episode; so is the verdict of a free one.

Shapes: B episodes, T steps, A agents.
"""

from __future__ import annotations

import pytest
import torch
from tensordict import TensorDict
from torch import Tensor

from ludus.arena.playing.distribution import TurnDistribution
from ludus.arena.playing.environment import MessageEnvironment
from ludus.arena.playing.rollout import roll_out
from ludus.arena.protocol import CONTINUE, ProtocolHandler
from ludus.arena.statistics import means, rollout_statistics
from tests.arena.protocols.made import environment, mute_agents, protocol


def played(handler: ProtocolHandler, decision: int | None) -> tuple[TensorDict, MessageEnvironment]:
    """Return episodes in which all agents decide so; None: as they are drawn."""
    source = torch.Generator().manual_seed(0)

    def choose(distribution: TurnDistribution) -> Tensor:
        action = distribution.drawn(source)
        if decision is not None:
            action[..., 0] = decision
        return action

    envs = environment(handler)
    moment, agents = envs.begin(0), mute_agents(handler, "x")
    return roll_out(agents, envs, moment, choose, num_steps=envs.num_steps), envs


@pytest.mark.covers("002-D11")
@pytest.mark.parametrize(("guess", "accuracy"), [("y", 1.0), ("zero", 0.5), ("one", 0.5)])
def test_rewards_ends_statistics_and_log_probabilities_follow_the_forced_guess(
    guess: str, accuracy: float
) -> None:
    rollouts, envs = played(protocol("nip", force_guess=guess), CONTINUE)
    found = means(rollout_statistics(rollouts, envs))
    assert found["accuracy"] == accuracy
    assert found["timed_out"] == 0.0
    assert found["rounds"] == 2.0
    assert found["verifier/reward"] == accuracy * 2.0 + (1 - accuracy) * -3.0
    agents = rollouts["agents"]
    assert not agents["decision_mask"].any()
    # Of three symbols, and no decision: what a verifier says counts, what it decided does not.
    log_prob = agents["action_log_prob"][:, 1, 0]
    torch.testing.assert_close(log_prob, torch.full_like(log_prob, 1 / 3).log())
    torch.testing.assert_close(agents["entropy"][:, 1, 0], torch.full((24,), 3.0).log())


def test_a_decision_of_ones_own_is_part_of_the_log_probability() -> None:
    rollouts, _ = played(protocol("nip"), CONTINUE)
    log_prob = rollouts["agents", "action_log_prob"][:, 1, 0]
    torch.testing.assert_close(log_prob, torch.full_like(log_prob, 1 / 9).log())


def test_after_the_end_nothing_is_said_decided_or_gained() -> None:
    rollouts, _ = played(protocol("nip", max_message_rounds=6), None)
    after_BT = ~rollouts["mask"]
    assert after_BT.any()
    assert rollouts["mask"].any(1).all()
    agents = rollouts["agents"]
    for name in ("decision_mask", "message_mask", "action_log_prob", "entropy"):
        assert not agents[name][after_BT].any()
    assert not rollouts["next", "agents", "reward"][after_BT].any()
    assert (rollouts["next", "verdict"][after_BT] == CONTINUE).all()
    assert rollouts["next", "agents", "done"][after_BT].all()
    last_BRC = rollouts["next", "message_history"][:, -1]
    assert (last_BRC[after_BT] == -1).all()


def test_accuracy_is_of_the_episodes_that_a_verifier_is_to_decide() -> None:
    handler = protocol("zero_knowledge")
    rollouts, envs = played(handler, 1)
    judged_B = handler.judged(rollouts["seed"][:, 0])
    assert 0 < int(judged_B.sum()) < 24
    right_B = rollouts["y"][:, 0] == 1
    wanted = float(right_B[judged_B].double().mean())
    found = means(rollout_statistics(rollouts, envs))
    assert found["accuracy"] == pytest.approx(wanted)
    assert found["timed_out"] == 0.0
