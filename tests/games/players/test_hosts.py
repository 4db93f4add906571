"""Zeillinger's and Spivakovsky's hosts by their published rules, by hand and against obvious versions."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations
from typing import Any

import pytest
import torch

from ludus.games.game import FusedGame
from ludus.games.hironaka.host_actions import decode_host_action, encode_host_action
from ludus.games.hironaka.polyhedra import rescale
from ludus.games.player import Player, ask
from ludus.games.rules.hironaka import Hironaka
from ludus.seeds import generator
from tests.games.sections import hironaka, player_of

Point = tuple[int, ...]


def game_from(points: list[list[int]], **changes: Any) -> tuple[Hironaka, dict[str, torch.Tensor]]:
    """Return a game, and the state that starts from these points."""
    game = hironaka(dimension=len(points[0]), max_num_points=len(points), **changes)
    assert isinstance(game, Hironaka)
    return game, game.start(torch.tensor([points]).float())


def named(player: dict[str, Any], points: list[list[int]]) -> list[int]:
    """Return the coordinates that a host names, which must not depend on the scale."""
    answers = []
    for scaled in (False, True):
        game, state = game_from(points, scale_observation=scaled)
        host = player_of(game, "host", **player)
        action = ask(host, game, state, "host", generator(0, "moves"))
        answers.append(decode_host_action(int(action), game.dimension))
    assert answers[0] == answers[1]
    return answers[0]


ZEILLINGER = {"kind": "zeillinger", "lexicographic": False}
SPIVAKOVSKY = {"kind": "spivakovsky", "variant": "full"}


@pytest.mark.covers("001-S9")
def test_zeillinger_takes_the_pair_of_the_least_width_then_of_the_least_count() -> None:
    # Differences (5, -4, -2), (4, -1, -5) and (-1, 3, -3) of widths 9, 9 and 6.
    assert named(ZEILLINGER, [[5, 0, 1], [0, 4, 3], [1, 1, 6]]) == [1, 2]
    # (1, -2, -2, 1) and (2, 0, -1, 1) are both 3 wide; the first reaches its ends in 4 places.
    assert named(ZEILLINGER, [[3, 0, 0, 3], [2, 2, 2, 2], [0, 2, 3, 1]]) == [0, 2]


def test_zeillinger_lexicographic_takes_the_first_coordinates_of_equally_good_pairs() -> None:
    # Sorted, the pairs differ by (1, -1, 0, 0) x 3 in coordinates 2 and 3 first, then in 0 and 1.
    points = [[9, 0, 3, 0], [9, 0, 0, 3], [0, 9, 9, 9]]
    assert named(ZEILLINGER, points) == [2, 3]
    more = [[9, 0, 3, 0], [9, 0, 0, 3], [3, 3, 3, 0], [0, 6, 3, 0]]
    assert named(ZEILLINGER, more) == [2, 3]
    assert named({**ZEILLINGER, "lexicographic": True}, more) == [0, 1]


@pytest.mark.covers("001-S9")
def test_spivakovsky_worked_by_hand() -> None:
    # The least sum is 2, of (2, 0, 0), so 0 is named. Divided by 2, all others have 0 < 1 there and are
    # projected to (3, 1) and (1, 2); at the planes (2, 0) and (0, 1); the least sum names 2 as well.
    # (2, 0) has 0 < 1 in 2, and is projected alone: it lies below all others, so the coordinate
    # 1 is added, in which it has 2, at least 1.
    assert named(SPIVAKOVSKY, [[2, 0, 0], [0, 6, 2], [0, 2, 4]]) == [0, 1, 2]
    # The least sum is 2, of (1, 1, 0): 0 and 1. Divided by 2, (0, 0, 3) is projected to 3/2, alone.
    assert named(SPIVAKOVSKY, [[1, 1, 0], [0, 0, 3]]) == [0, 1, 2]
    # Here the points of least sum are (2, 0, 0) and (0, 2, 0), and no other has less than 1 there.
    assert named(SPIVAKOVSKY, [[2, 0, 0], [0, 2, 0], [1, 1, 1]]) == [0, 1]


def test_the_weak_hosts_hit_every_point_with_as_few_as_they_can() -> None:
    weak = {"kind": "spivakovsky", "variant": "weak"}
    assert named(weak, [[2, 0, 0], [0, 6, 2], [0, 2, 4]]) == [0, 1]
    assert named(weak, [[2, 0, 0], [0, 3, 0], [0, 0, 4]]) == [0, 1, 2]
    game, _ = game_from([[2, 0, 0], [0, 6, 2], [0, 2, 4]])
    many = game.start(torch.tensor([[[2.0, 0, 0], [0, 6, 2], [0, 2, 4]]] * 200).float())
    host = player_of(game, "host", kind="spivakovsky", variant="random")
    moves = ask(host, game, many, "host", generator(0, "moves"))
    assert set(moves.tolist()) == {encode_host_action([0, 1]), encode_host_action([0, 2])}


def obvious_zeillinger(points: list[Point]) -> list[int]:
    """Return what the rule names, pairs in the order of the points."""
    best, answer = None, [0, 1]
    for p, q in combinations(points, 2):
        v = [a - b for a, b in zip(p, q, strict=True)]
        key = (max(v) - min(v), v.count(max(v)) + v.count(min(v)))
        if best is None or key < best:
            best, answer = key, sorted({v.index(min(v)), v.index(max(v))})
    return answer


def obvious_spivakovsky(points: list[Point]) -> list[int]:
    """Return what the rule names, in exact fractions."""
    axes, chosen = list(range(len(points[0]))), set()
    left = [{k: Fraction(p[k]) for k in axes} for p in points]
    while left:
        low = {k: min(p[k] for p in left) for k in axes}
        moved = [{k: p[k] - low[k] for k in axes} for p in left]
        least = min(sum(p.values()) for p in moved)
        if least == 0:
            break
        shares = [{k: x / least for k, x in p.items()} for p in moved]
        new = {k for p in shares if sum(p.values()) == 1 for k in axes if p[k] > 0}
        chosen |= new
        axes = [k for k in axes if k not in new]
        kept = [(p, 1 - sum(p[k] for k in new)) for p in shares]
        left = [{k: p[k] / rest for k in axes} for p, rest in kept if rest > 0]
    sizes = range(len(axes) + 1)
    sets = [c for size in sizes for c in combinations(axes, size)]
    sets.sort(key=lambda c: (len(c), sum(1 << k for k in c)))
    few = next(c for c in sets if all(sum(p[k] for k in c) >= 1 for p in left))
    return sorted({*chosen, *few})


@pytest.mark.parametrize("dimension", [2, 3, 4, 5])
def test_the_hosts_agree_with_the_obvious_versions_at_every_scale(dimension: int) -> None:
    game = hironaka(dimension=dimension, max_num_points=8, max_value=12)
    state = game.reset(150, generator(dimension, "start"))
    going = ~game.over(state)
    obs = game.observe(state, "host")
    small = rescale(state["points"]).flatten(1)
    draws = generator(0, "moves")
    for section, obvious in ((ZEILLINGER, obvious_zeillinger), (SPIVAKOVSKY, obvious_spivakovsky)):
        host = player_of(game, "host", **section)
        moves = host.act(obs, None, draws)
        assert torch.equal(host.act(small, None, draws)[going], moves[going])
        for index in going.nonzero()[:, 0].tolist():
            rows = [tuple(map(int, row)) for row in state["points"][index].tolist() if row[0] >= 0]
            assert decode_host_action(int(moves[index]), dimension) == obvious(rows)
    assert int(going.sum()) > 100


def moves_to_win(game: FusedGame, host: Player, agent: Player, limit: int) -> int:
    """Return how many rounds it takes until all games of a batch are over."""
    draws = generator(1, "moves")
    state = game.reset(60, generator(0, "start"))
    for number in range(limit):
        if game.over(state).all():
            return number
        for role, player in (("host", host), ("agent", agent)):
            state, _ = game.step(state, role, ask(player, game, state, role, draws))
    raise AssertionError(f"{int((~game.over(state)).sum())} games go on after {limit} rounds")


@pytest.mark.parametrize("section", [ZEILLINGER, SPIVAKOVSKY], ids=lambda s: s["kind"])
@pytest.mark.parametrize("agent", ["random", "choose_first", "choose_last"])
def test_a_host_with_a_proof_wins_against_every_agent(section: dict[str, Any], agent: str) -> None:
    game = hironaka(max_num_points=6, max_value=5, polytope="vertices")
    host = player_of(game, "host", **section)
    assert moves_to_win(game, host, player_of(game, "agent", kind=agent), 60) > 2
