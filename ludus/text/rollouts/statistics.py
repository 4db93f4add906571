"""Statistics of text rollouts: returns, accuracy of verifiers, lengths, and what could not be read.

A mean over nothing, such as the precision of a verifier that accepted nobody, is left out.

Shapes: B episodes, T rounds, A agents.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ludus.arena.protocol import ACCEPT, CONTINUE, ProtocolHandler
from ludus.text.nested.array_dict import NestedArrayDict

Array = np.ndarray


def rollout_statistics(rollouts: NestedArrayDict, handler: ProtocolHandler) -> dict[str, float]:
    """Return the statistics of (B, T) rounds, by name."""
    return {name: float(value) for name, value in _all(rollouts, handler) if not np.isnan(value)}


def _all(rollouts: NestedArrayDict, handler: ProtocolHandler) -> Iterator[tuple[str, float]]:
    mask_BT, index_B = rollouts["mask"], rollouts["index"][:, 0]
    yield "rounds", _mean(mask_BT.sum(1))
    rewards_BA = rollouts["agents", "reward"].sum(1)
    for which, name in enumerate(handler.agent_names):
        reward_B = rewards_BA[:, which]
        by_question = _by_question(reward_B, index_B)
        yield f"{name}/reward", _mean(reward_B)
        yield f"{name}/reward_std", float(by_question.std()) if len(by_question) else np.nan
        yield f"{name}/reward_worst", float(by_question.min()) if len(by_question) else np.nan
        yield from _of_turns(rollouts, which, name)
    yield from _of_decisions(rollouts, handler, index_B)


def _of_turns(rollouts: NestedArrayDict, which: int, name: str) -> Iterator[tuple[str, float]]:
    active_BT = rollouts["agents", "active"][..., which]
    for key in ("tokens", "prompt_tokens", "retries", "truncated", "malformed"):
        values_BT = rollouts["agents", key][..., which]
        yield f"{name}/{key}", _mean(values_BT[active_BT].astype(np.float64))


def _of_decisions(
    rollouts: NestedArrayDict, handler: ProtocolHandler, index_B: Array
) -> Iterator[tuple[str, float]]:
    y_B = rollouts["y"][:, 0]
    decided_B = np.zeros(len(y_B), dtype=bool)
    right, judged_anywhere = np.zeros(len(y_B), dtype=bool), np.zeros(len(y_B), dtype=bool)
    for name in handler.verifier_names:
        judged_B, verdict_B = _verdicts(rollouts, handler, name)
        right_B, accepted_B = verdict_B == y_B, verdict_B == ACCEPT
        right |= right_B & judged_B
        judged_anywhere |= judged_B
        decided_B |= verdict_B != CONTINUE
        yield f"{name}/accuracy", _mean(right_B[judged_B])
        for label in (0, 1):
            yield f"{name}/accuracy_of_{label}", _mean(right_B[judged_B & (y_B == label)])
        yield f"{name}/precision", _mean((y_B == 1)[judged_B & accepted_B])
        yield f"{name}/recall", _mean(accepted_B[judged_B & (y_B == 1)])
        yield f"{name}/accepted", _mean(accepted_B[judged_B])
        yield f"{name}/decided", _mean((verdict_B != CONTINUE)[judged_B])
        by_question = _by_question(right_B[judged_B].astype(np.float64), index_B[judged_B])
        yield f"{name}/accuracy_std", float(by_question.std()) if len(by_question) else np.nan
        yield f"{name}/accuracy_worst", float(by_question.min()) if len(by_question) else np.nan
    yield "accuracy", _mean(right[judged_anywhere])
    yield "timed_out", _mean(~decided_B[judged_anywhere])


def _verdicts(
    rollouts: NestedArrayDict, handler: ProtocolHandler, verifier: str
) -> tuple[Array, Array]:
    """Return (B,) where a verifier had a turn to decide, and its last decision, CONTINUE for none."""
    seed_B, mask_BT = rollouts["seed"][:, 0], rollouts["mask"]
    variants = seed_B % handler.num_variants
    judged_B = np.zeros(len(seed_B), dtype=bool)
    verdict_B = np.full(len(seed_B), CONTINUE, dtype=np.int64)
    for t in range(mask_BT.shape[1]):
        decides = np.array(
            [handler.decides(verifier, t, variant) for variant in range(handler.num_variants)]
        )
        own_B = decides[variants] & mask_BT[:, t]
        judged_B |= own_B
        verdict_B = np.where(own_B, rollouts["verdict"][:, t], verdict_B)
    return judged_B, verdict_B


def _mean(values: Array) -> float:
    return float(values.mean()) if values.size else float("nan")


def _by_question(values_B: Array, index_B: Array) -> Array:
    """Return the mean of each question that occurs."""
    if not len(values_B):
        return values_B
    _, places_B = np.unique(index_B, return_inverse=True)
    return np.bincount(places_B, weights=values_B) / np.bincount(places_B)
