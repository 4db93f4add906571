"""A network is in train mode while its own loss is computed, and in eval mode whenever else it is asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ludus.nn.engines.tape import Taped
from ludus.store.checkpoint import digest_of
from tests.rl.odd_networks import KINDS, batch_for, engine_of, fitted, odd, prepared

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script_method:DeprecationWarning")


def observations(trainer: Any, count: int) -> Any:
    generator = np.random.Generator(np.random.PCG64(0))
    return generator.normal(size=(count, *trainer.agent.spec.obs_shape)).astype(np.float32)


@pytest.mark.parametrize("part", ["dropout", "batch_norm", "all"])
@pytest.mark.parametrize("kind", KINDS)
def test_acting_gives_the_same_answer_each_time_and_for_one_env(
    tmp_path: Path, kind: str, part: str
) -> None:
    alone = {"num_envs": 1, **({"rollout_steps": 24} if kind == "ppo" else {})}
    trainer = fitted(odd(kind, part, **alone), tmp_path)
    agent, obs = trainer.agent, observations(trainer, 5)
    before = digest_of(dict(agent.state_dict()))
    first = agent.act_greedy(obs, None).copy()
    for _ in range(5):
        np.testing.assert_array_equal(agent.act_greedy(obs, None), first)
    # Each observation for itself, and nothing changes by looking.
    each = [agent.act_greedy(obs[i : i + 1], None)[0].copy() for i in range(5)]
    np.testing.assert_allclose(each, first, rtol=1e-5, atol=1e-6)
    assert digest_of(dict(agent.state_dict())) == before


@pytest.mark.parametrize("known", [False, True], ids=["plain", "taped"])
@pytest.mark.parametrize("kind", KINDS)
def test_running_statistics_move_once_for_each_gradient_step_of_their_network(
    kind: str, known: bool
) -> None:
    agent = prepared(odd(kind, "batch_norm", known=known)).agent
    for _ in range(3):
        agent.execute(*batch_for(agent))
    assert isinstance(engine_of(agent), Taped) is known
    for name, part in agent.learned().items():
        counts = [t for n, t in part.state_dict().get("weights", {}).items() if "num_batches" in n]
        assert all(int(count) == 3 for count in counts), name
        assert counts or name in ("target", "temperature")


@pytest.mark.parametrize("kind", ["dqn", "iqn", "sac"])
def test_a_target_answers_in_eval_mode_with_buffers_of_its_own_until_it_follows(kind: str) -> None:
    agent = prepared(odd(kind, "all")).agent
    first = {n: t.clone() for n, t in agent.target.state_dict().items()}
    for _ in range(3):
        agent.execute(*batch_for(agent))
    found = agent.target.state_dict()
    torch.testing.assert_close(found, first, rtol=0, atol=0)
    agent.target.follow(0.5)
    learner = agent.critics if kind == "sac" else agent.learner
    own = dict(learner.module.named_buffers())
    followed = agent.target.state_dict()
    assert own
    for name, buffer in own.items():
        assert torch.equal(followed[name], buffer), name
        assert not torch.equal(followed[name], first[name]), name


@pytest.mark.parametrize("part", ["dropout", "batch_norm", "all"])
def test_the_ratio_of_ppo_begins_at_one(part: str) -> None:
    """In each of some rollouts, while the statistics of batch norm move."""
    trainer = prepared(odd("ppo", part))
    agent, rollout = trainer.agent, trainer.replay_buffer
    with torch.no_grad():
        agent.learner.module.policy.weight.mul_(100)
    for _ in range(3):
        trainer.collect_rollouts()
        rollout.shuffle()
        divergences = []
        while rollout.has_next:
            agent.step(rollout.next(8), 0, 0.01)
            divergences.append(agent.take_metrics()["train/approx_kl"])
        assert abs(divergences[0]) < 1e-7
        assert abs(divergences[-1]) > 1e-7
    trainer.env.close()
