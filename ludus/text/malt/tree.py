"""Trees of answers: the expected reward of each node, and pairs of a good and a bad answer of a node.

Shapes: B leaves, T rounds, A agents.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ludus.arena.protocol import ProtocolHandler
from ludus.text.chat import ChatMessage
from ludus.text.expert_iteration.selection import prompt_of
from ludus.text.nested.array_dict import NestedArrayDict

Node = tuple[int, ...]
"""The number of the question in all iterations, then the fork in each round down to the node."""


class Pair(NamedTuple):
    """A better and a worse answer to the same prompt."""

    prompt: tuple[ChatMessage, ...]
    better: str
    worse: str


class TreeAnswer(NamedTuple):
    """An answer in a tree, by the first leaf below it."""

    leaf: int
    value: float
    """The expected reward of the leaves below it."""


def children(
    rollouts: NestedArrayDict, handler: ProtocolHandler, agent: str
) -> Iterator[tuple[int, list[TreeAnswer]]]:
    """Yield, for each node in which the agent has a turn, its round and the answers sampled there.

    A node above the first round is a question, so its first message has alternatives too.
    """
    which = handler.agent_names.index(agent)
    reward_B = rollouts["agents", "reward"][..., which].sum(1)
    active_BT = rollouts["agents", "active"][..., which]
    group_B, path_BT = rollouts["group"][:, 0], rollouts["path"]
    # An episode that ended early is one leaf where others have grown to many.
    weight_B = (1.0 + path_BT.max()) ** -(path_BT >= 0).sum(1).astype(np.float64)
    for t in range(active_BT.shape[1]):
        below: dict[Node, dict[int, list[int]]] = {}
        for leaf in np.flatnonzero(active_BT[:, t]):
            above = (int(group_B[leaf]), *(int(one) for one in path_BT[leaf, :t]))
            below.setdefault(above, {}).setdefault(int(path_BT[leaf, t]), []).append(int(leaf))
        for forks in below.values():
            yield (
                t,
                [
                    TreeAnswer(one[0], float(np.average(reward_B[one], weights=weight_B[one])))
                    for one in forks.values()
                ],
            )


def preference_pairs(
    rollouts: NestedArrayDict, handler: ProtocolHandler, agent: str, random: np.random.Generator
) -> list[Pair]:
    """Return a pair for each node with an answer above the middle of all rewards and one not above it."""
    which = handler.agent_names.index(agent)
    reward_B = rollouts["agents", "reward"][..., which].sum(1)
    middle = (reward_B.max() + reward_B.min()) / 2
    texts_BT = rollouts["agents", "text"][..., which]
    prompts_BT = rollouts["agents", "prompt"][..., which]
    found = []
    for t, forks in children(rollouts, handler, agent):
        good = [one for one in forks if one.value > middle]
        bad = [one for one in forks if one.value <= middle]
        if not good or not bad:
            continue
        better = good[int(random.integers(len(good)))].leaf
        worse = bad[int(random.integers(len(bad)))].leaf
        texts = str(texts_BT[better, t]), str(texts_BT[worse, t])
        if texts[0] != texts[1]:
            found.append(Pair(prompt_of(str(prompts_BT[better, t])), *texts))
    return found
