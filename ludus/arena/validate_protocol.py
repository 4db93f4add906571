"""Validation of a protocol: unknown names, contradictory turns, and a length at which nobody
decides.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ludus.core.errors import nearest

if TYPE_CHECKING:
    from ludus.arena.protocol import ProtocolHandler

_LOOKED_AT = 64
"""The number of rounds checked, from the first one on; turns repeat after a few."""


def validate_protocol(handler: ProtocolHandler) -> Iterator[str]:
    """Yield each problem; wrong names are reported before their consequences."""
    wrong = [*_of_names(handler)] or [*_of_turns(handler)] or [*_of_length(handler)]
    yield from wrong


def _of_names(handler: ProtocolHandler) -> Iterator[str]:
    kind = type(handler).__name__
    agents, channels = handler.agent_names, handler.message_channel_names
    for what, names in (("agent", agents), ("channel", channels)):
        if twice := [name for name in names if names.count(name) > 1]:
            yield f"{kind} has two {what}s named '{twice[0]}'; rename one"
    if not handler.verifier_names:
        yield f"{kind} has no verifier, so nobody decides; name one in verifier_names"
    seen, goals = handler.agent_channel_visibility, handler.prover_goals
    moving = [name for group in handler.stackelberg_sequence for name in group]
    named = {
        "verifier_names": handler.verifier_names,
        "prover_names": handler.prover_names,
        "prover_goals": tuple(goals),
        "agent_channel_visibility": tuple(seen),
        "stackelberg_sequence": tuple(moving),
    }
    for what, names in named.items():
        yield from _unknown(f"{kind}.{what}", "agent", names, agents)
    for what, needed in (
        ("agent_channel_visibility", agents),
        ("prover_goals", handler.prover_names),
    ):
        for name in needed:
            if name not in named[what]:
                yield f"{kind}.{what} says nothing of '{name}'; give it a row"
    for name, own in seen.items():
        yield from _unknown(
            f"{kind}.agent_channel_visibility of '{name}'", "channel", own, channels
        )
    if sorted(moving) != sorted(agents):
        yield f"{kind}.stackelberg_sequence must hold each agent once; it holds {', '.join(moving)}"
    if wrong := [name for name, goal in goals.items() if goal not in (0, 1)]:
        yield f"{kind}.prover_goals of '{wrong[0]}' is {goals[wrong[0]]}; give REJECT or ACCEPT"


def _unknown(where: str, what: str, names: Sequence[str], known: Sequence[str]) -> Iterator[str]:
    for name in names:
        if name not in known:
            yield f"{where} names the {what} '{name}', which there is not.{nearest(name, known)}"


def _of_turns(handler: ProtocolHandler) -> Iterator[str]:
    length = handler.max_message_rounds
    rounds = sorted({*range(min(length, _LOOKED_AT)), length - 1})
    for index in rounds:
        for variant in range(handler.num_variants):
            problems = [*_of_turn(handler, index, variant)]
            if problems:
                yield f"{type(handler).__name__}, round {index} of variant {variant}: {problems[0]}"
                return


def _of_turn(handler: ProtocolHandler, index: int, variant: int) -> Iterator[str]:
    turn = handler.turn(index, variant)
    seen = handler.agent_channel_visibility
    if not turn:
        yield "it is nobody's turn; leave the round out"
    yield from _unknown("it", "agent", tuple(turn), handler.agent_names)
    for name, channels in turn.items():
        yield from _unknown(
            f"the turn of '{name}'", "channel", channels, handler.message_channel_names
        )
        for channel in channels:
            if channel not in seen.get(name, ()):
                yield f"'{name}' speaks in '{channel}', which it may not read; let it"
            others = [one for one in turn if one != name and channel in turn[one]]
            if others:
                yield f"'{name}' and '{others[0]}' both speak in '{channel}'; give each a channel"
    judges = [name for name in turn if handler.decides(name, index, variant)]
    if len(judges) > 1:
        yield f"'{judges[0]}' and '{judges[1]}' both decide; let one decide at a time"


def _of_length(handler: ProtocolHandler) -> Iterator[str]:
    length, least = handler.max_message_rounds, handler.min_message_rounds
    if least > length:
        yield (
            f"'min_message_rounds' is {least}, but 'max_message_rounds' is {length}: no verifier could"
            " ever decide; lower it"
        )
        return
    if _is_decided_in(handler, length - 1):
        return
    first = max(1, length - _LOOKED_AT)
    right = [n for n in range(first, length + _LOOKED_AT) if _is_decided_in(handler, n - 1)]
    if not right:
        yield f"in {type(handler).__name__} no verifier ever has a turn, so nobody decides; give it one"
        return
    near = [n for n in right if n < length][-1:] + [n for n in right if n > length][:1]
    yield (
        f"'max_message_rounds' is {length}, but no verifier has a turn in the last of these rounds, so what"
        f" is said in it could decide nothing; set it to {' or '.join(map(str, near))}"
    )


def _is_decided_in(handler: ProtocolHandler, index: int) -> bool:
    """Return whether a verifier may decide in this round, in every variant that has a decision."""
    judged = [one for one in range(handler.num_variants) if handler.is_judged(one)]
    return bool(judged) and all(
        any(handler.decides(name, index, variant) for name in handler.verifier_names)
        for variant in judged
    )
