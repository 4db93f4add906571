"""Statistics of rollouts: the returns and entropies of each agent, and the accuracy of verifiers.

A statistic is a sum and its weight, the divisor, (2,) in float64 on the device of the rollouts: so means of
several rollouts are right, nothing waits for the device, and nothing is divided by zero. A statistic of
weight 0, such as the precision of a verifier that accepted nobody, is left out of a record.

Shapes: B episodes, T steps, A agents, C channels, V symbols, N data.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ludus.arena.libraries import TensorDictBase
from ludus.arena.playing.environment import Environment, MessageEnvironment
from ludus.arena.protocol import ACCEPT, CONTINUE
from ludus.core import states

Statistics = dict[str, Tensor]


def rollout_statistics(rollouts: TensorDictBase, environment: Environment) -> Statistics:
    """Return the statistics of (B, T) steps."""
    rewards_BA = rollouts["next", "agents", "reward"].squeeze(-1).double().sum(1)
    found: Statistics = dict(_of_entropies(rollouts, environment.agent_names))
    found["rounds"] = mean_of(rollouts["mask"].double().sum(1))
    if not isinstance(environment, MessageEnvironment):
        return found | environment.statistics(rollouts)
    index_B, size = rollouts["index"][:, 0], len(environment.dataset)
    all_B = torch.ones_like(index_B, dtype=torch.bool)
    for which, name in enumerate(environment.agent_names):
        found[f"{name}/reward"] = mean_of(rewards_BA[:, which])
        by_datum = _Data(rewards_BA[:, which], all_B, index_B, size)
        found[f"{name}/reward_std"] = by_datum.deviation()
        found[f"{name}/reward_worst"] = by_datum.worst()
    return found | _of_decisions(rollouts, environment)


def critic_statistics(rollouts: TensorDictBase, environment: Environment) -> Statistics:
    """Return, for each agent, the unexplained share of the variance of the value targets.

    Rollouts without estimated values have no such statistics.
    """
    agents = rollouts["agents"]
    if not {"value", "value_target"} <= set(agents.keys()):
        return {}
    target_BTA = agents["value_target"].squeeze(-1).double()
    rest_BTA = target_BTA - agents["value"].squeeze(-1).double()
    (_, open_A), (mean_A, all_A) = (_moments(x, agents["there"]) for x in (rest_BTA, target_BTA))
    # Constant targets still vary by the rounding of float32.
    varies_A = all_A > 1e-10 * (1.0 + mean_A**2)
    share_A = torch.where(varies_A, open_A / all_A.clamp_min(1e-300), 0.0)
    return {
        f"{name}/residual_variance": torch.stack([share_A[which], varies_A[which].double()])
        for which, name in enumerate(environment.agent_names)
    }


def means(statistics: Mapping[str, Tensor]) -> dict[str, float]:
    """Return the mean of each statistic, except those of weight 0; waits for the device."""
    if not statistics:
        return {}
    rows = torch.stack(list(statistics.values())).tolist()
    pairs = zip(statistics, rows, strict=True)
    return {name: total / weight for name, (total, weight) in pairs if weight}


def mean_of(values: Tensor, counts: Tensor | None = None) -> Tensor:
    """Return the statistic that is the mean of these values, or of those that count."""
    values = values.double()
    weights = torch.ones_like(values) if counts is None else counts.double()
    return torch.stack([(values * weights).sum(), weights.sum()])


def verdicts(
    rollouts: TensorDictBase, environment: MessageEnvironment, verifier: str
) -> tuple[Tensor, Tensor]:
    """Return (B,) where a verifier had a turn to decide, and its decision, CONTINUE where it made none."""
    handler = environment.handler
    which, seed_B = handler.agent_names.index(verifier), rollouts["seed"][:, 0]
    verdict_B = torch.full_like(rollouts["y"][:, 0], CONTINUE)
    judged_B = torch.zeros_like(verdict_B, dtype=torch.bool)
    for step in range(rollouts.batch_size[1]):
        own_B = handler.deciders(step, seed_B)[:, which] & rollouts["mask"][:, step]
        verdict_B = torch.where(own_B, rollouts["next", "verdict"][:, step], verdict_B)
        judged_B = judged_B | own_B
    return judged_B, verdict_B


def _of_decisions(rollouts: TensorDictBase, environment: MessageEnvironment) -> Statistics:
    """Return the statistics of the verifiers' decisions, over the episodes in which they may decide."""
    handler = environment.handler
    found: Statistics = {}
    seed_B, y_B, index_B = rollouts["seed"][:, 0], rollouts["y"][:, 0], rollouts["index"][:, 0]
    right, decided_B = [], torch.zeros_like(y_B, dtype=torch.bool)
    for name in handler.verifier_names:
        judged_B, verdict_B = verdicts(rollouts, environment, name)
        decided_B = decided_B | (verdict_B != CONTINUE)
        right.append(mean_of(verdict_B == y_B, judged_B))
        for title, own in _of_verifier(verdict_B, y_B, judged_B).items():
            found[f"{name}/{title}"] = own
        by_datum = _Data((verdict_B == y_B).double(), judged_B, index_B, len(environment.dataset))
        found[f"{name}/accuracy_std"] = by_datum.deviation()
        found[f"{name}/accuracy_worst"] = by_datum.worst()
    found["accuracy"] = torch.stack(right).sum(0)
    found["timed_out"] = mean_of(~decided_B, handler.judged(seed_B))
    return found


def _of_verifier(verdict_B: Tensor, y_B: Tensor, judged_B: Tensor) -> Statistics:
    right_B, accepted_B = verdict_B == y_B, verdict_B == ACCEPT
    return {
        "accuracy": mean_of(right_B, judged_B),
        "accuracy_of_0": mean_of(right_B, judged_B & (y_B == 0)),
        "accuracy_of_1": mean_of(right_B, judged_B & (y_B == 1)),
        "precision": mean_of(y_B == 1, judged_B & accepted_B),
        "recall": mean_of(accepted_B, judged_B & (y_B == 1)),
        "decided": mean_of(verdict_B != CONTINUE, judged_B),
        "accepted": mean_of(accepted_B, judged_B),
    }


def _of_entropies(
    rollouts: TensorDictBase, agent_names: tuple[str, ...]
) -> Iterator[tuple[str, Tensor]]:
    """Yield the mean entropy of each agent's decisions, where they are its own, and of its messages."""
    agents = rollouts["agents"]
    decided_BTA = _entropy(agents["decision_logits"])
    said_BTAC = _entropy(agents["message_logits"])
    for which, name in enumerate(agent_names):
        decides_BT, speaks_BTC = (
            agents["decision_mask"][..., which],
            agents["message_mask"][..., which, :],
        )
        yield f"{name}/decision_entropy", mean_of(decided_BTA[..., which], decides_BT)
        yield f"{name}/message_entropy", mean_of(said_BTAC[..., which, :], speaks_BTC)


def _entropy(logits: Tensor) -> Tensor:
    logs = torch.log_softmax(logits, -1)
    return -(logs.exp() * logs).sum(-1)


def _moments(values_BTA: Tensor, counts_BTA: Tensor) -> tuple[Tensor, Tensor]:
    """Return (A,) the mean and (A,) the variance over the steps that count."""
    count_A = counts_BTA.double().sum((0, 1)).clamp_min(1.0)
    mean_A = (values_BTA * counts_BTA).sum((0, 1)) / count_A
    squares_BTA = ((values_BTA - mean_A) * counts_BTA) ** 2
    return mean_A, squares_BTA.sum((0, 1)) / count_A


class _Data:
    """The mean of a value for each datum, over the episodes about it that count."""

    def __init__(self, values_B: Tensor, counts_B: Tensor, index_B: Tensor, size: int) -> None:
        weights_B, none_N = counts_B.double(), values_B.new_zeros(size)
        total_N = none_N.index_add(0, index_B, values_B * weights_B)
        count_N = none_N.index_add(0, index_B, weights_B)
        self._is_seen_N = count_N > 0
        self._mean_N = total_N / count_N.clamp_min(1.0)
        self._count = self._is_seen_N.double().sum()
        self._has_any = (self._count > 0).double()

    def worst(self) -> Tensor:
        """Return the least of the means of the data."""
        least = torch.where(self._is_seen_N, self._mean_N, torch.inf).amin()
        return torch.stack([torch.where(self._count > 0, least, 0.0), self._has_any])

    def deviation(self) -> Tensor:
        """Return the standard deviation over the data."""
        count = self._count.clamp_min(1.0)
        mean = (self._mean_N * self._is_seen_N).sum() / count
        squares_N = ((self._mean_N - mean) * self._is_seen_N) ** 2
        return torch.stack([(squares_N.sum() / count).sqrt(), self._has_any])


class Meter:
    """Accumulates statistics under the same names until the next record; a part."""

    def __init__(self, names: Sequence[str], device: torch.device) -> None:
        self._names = sorted(names)
        self._totals = torch.zeros(len(names), 2, dtype=torch.float64, device=device)

    def update(self, statistics: Mapping[str, Tensor]) -> None:
        """Add one set of them."""
        self._totals.add_(torch.stack([statistics[name] for name in self._names]))

    def take(self) -> dict[str, float]:
        """Return the means, and reset."""
        found = means(dict(zip(self._names, self._totals.clone(), strict=True)))
        self._totals.zero_()
        return found

    def state_dict(self) -> dict[str, Any]:
        """Return the sums so far."""
        return {"totals": self._totals}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load saved sums."""
        states.check_keys(state, "totals")
        self._totals.copy_(states.like(state, "totals", self._totals))
