"""Selecting the episodes that an agent imitates, and what it said in them.

Shapes: B episodes, T rounds, A agents.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np

from ludus.arena.protocol import ProtocolHandler
from ludus.text.chat import ChatMessage
from ludus.text.expert_iteration.config import (
    GuessReplacement,
    ThresholdSelection,
    WeightedSelection,
)
from ludus.text.model_names import said
from ludus.text.nested.array_dict import NestedArrayDict
from ludus.text.rollouts.episodes import reward_episodes
from ludus.text.rollouts.prompts import PromptBook

Array = np.ndarray


def select(
    rewards_B: Array, section: ThresholdSelection | WeightedSelection, random: np.random.Generator
) -> list[int]:
    """Return the places of the selected episodes; a weighted selection may hold one several times."""
    if isinstance(section, ThresholdSelection):
        return [int(place) for place in np.flatnonzero(rewards_B >= section.reward_threshold)]
    count = round(section.size_factor * len(rewards_B))
    chances_B = selection_weights(rewards_B, section.epsilon)
    return sorted(int(one) for one in random.choice(len(rewards_B), size=count, p=chances_B))


def selection_weights(rewards_B: Array, epsilon: float) -> Array:
    """Return the chance of each episode; equal ones where all rewards are equal."""
    above_B = rewards_B - rewards_B.min()
    total = above_B.sum()
    if total <= 0:
        return np.full(len(rewards_B), 1.0 / len(rewards_B))
    weights_B = above_B / total + epsilon / len(rewards_B)
    found: Array = weights_B / weights_B.sum()
    return found


def conversations(
    rollouts: NestedArrayDict, handler: ProtocolHandler, agent: str, places: Sequence[int]
) -> list[tuple[ChatMessage, ...]]:
    """Return what an agent was asked and answered in these episodes, a conversation for each turn."""
    which = handler.agent_names.index(agent)
    active_BT = rollouts["agents", "active"][..., which]
    prompts_BT = rollouts["agents", "prompt"][..., which]
    texts_BT = rollouts["agents", "text"][..., which]
    return [
        (*prompt_of(str(prompts_BT[place, t])), said(str(texts_BT[place, t])))
        for place in places
        for t in range(active_BT.shape[1])
        if active_BT[place, t]
    ]


def prompt_of(text: str) -> tuple[ChatMessage, ...]:
    """Return the messages of a prompt of rollouts."""
    return tuple(ChatMessage(*pair) for pair in json.loads(text))


def replace_guesses(
    rollouts: NestedArrayDict,
    handler: ProtocolHandler,
    prompts: PromptBook,
    section: GuessReplacement,
    iteration: int,
    random: np.random.Generator,
) -> NestedArrayDict:
    """Return rollouts in which verifiers decide as the label says, in a share of the episodes."""
    share, size = section.share(iteration), rollouts.batch_size[0]
    chosen = random.permutation(size)[: round(share * size)]
    if not len(chosen):
        return rollouts
    found = rollouts.clone()
    texts, decisions = found["agents", "text"], found["agents", "decision"]
    for place in sorted(int(one) for one in chosen):
        label = int(found["y"][place, 0])
        t = int(found["mask"][place].sum()) - 1
        variant = int(found["seed"][place, 0]) % handler.num_variants
        for which, name in enumerate(handler.agent_names):
            if handler.decides(name, t, variant):
                texts[place, t, which] = prompts.decision_words(name)[label]
                decisions[place, t, which] = label
    found["agents", "text"], found["agents", "decision"] = texts, decisions
    reward_episodes(found, handler)
    return found
