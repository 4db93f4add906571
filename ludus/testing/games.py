"""Contract of a game on tensors: it is played at random, and every promise is checked.

Shapes: B games, O features of an observation, A moves, R roles.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Protocol

import torch
from torch import Tensor

from ludus.core.errors import LudusError
from ludus.seeds import forked

State = Mapping[str, Tensor]


class Game(Protocol):
    """Methods of a game that are checked here; `ludus.games.FusedGame` documents them."""

    roles: tuple[str, ...]
    is_symmetric: bool

    def actions(self, role: str) -> object: ...
    def observation_size(self, role: str) -> int: ...
    def reset(self, games: int, generator: torch.Generator) -> dict[str, Tensor]: ...
    def observe(self, state: dict[str, Tensor], role: str) -> Tensor: ...
    def legal(self, obs_BO: Tensor, role: str) -> Tensor | None: ...
    def step(
        self, state: dict[str, Tensor], role: str, actions: Tensor
    ) -> tuple[dict[str, Tensor], Tensor]: ...
    def done(self, state: dict[str, Tensor]) -> Tensor: ...
    def truncated(self, state: dict[str, Tensor]) -> Tensor | None: ...
    def over(self, state: dict[str, Tensor]) -> Tensor: ...
    def check_actions(self, state: dict[str, Tensor], role: str, actions: Tensor) -> None: ...


def check_game(make: Callable[[], Game], *, games: int = 48, turns: int = 60) -> None:
    """Fail with an AssertionError unless the game fulfils the contract of a FusedGame.

    `make` returns a fresh game each time. A batch of `games` is played at random for `turns` moves of
    every role; choose enough turns for some games to end.
    """
    game = make()
    assert games >= 2, (
        "a batch of one game shows nothing of how games are kept apart; use 2 or more"
    )
    _check_refusals(game)
    first, again = (_played(make(), games, turns, globally=seed) for seed in (0, 1))
    _same(first[0], again[0], "the same seed and moves lead to other states")
    _same({"": first[1]}, {"": again[1]}, "the same seed and moves give other rewards")
    _check_on_device(make(), games)


def _check_refusals(game: Game) -> None:
    """Check that invalid calls are refused with a LudusError."""
    calls: dict[str, Callable[[], object]] = {
        "a batch of no games is not refused": lambda: game.reset(0, torch.Generator()),
        "a role that there is not has actions": lambda: game.actions("nobody"),
        "a role that there is not sees something": lambda: game.observation_size("nobody"),
    }
    for problem, call in calls.items():
        is_refused = _refusal(call) is not None
        assert is_refused, f"{problem}; raise a LudusError (check_games and check_role do)"
    if game.is_symmetric:
        seats = {(game.actions(role), game.observation_size(role)) for role in game.roles}
        assert len(seats) == 1, "is_symmetric is said of roles that see or do different things"


def _played(game: Game, games: int, turns: int, globally: int) -> tuple[State, Tensor]:
    """Play at random, checking each move; return the last state and the sum of the rewards."""
    generator = torch.Generator().manual_seed(7)
    with forked(globally):
        state = game.reset(games, generator)
        total_BR = torch.zeros(games, len(game.roles))
        _check_state(game, state, games)
        for _ in range(turns):
            for role in game.roles:
                obs_BO, legal_BA = _seen(game, state, role)
                actions = _random_actions(game, role, legal_BA, games, generator)
                _check_illegal(game, state, role, legal_BA, actions)
                state, rewards_BR = _checked_step(game, state, role, actions, obs_BO)
                total_BR = total_BR + rewards_BR
    assert game.over(state).any(), (
        f"no game was over after {turns} moves of every role; give check_game more turns"
    )
    return state, total_BR


def _check_state(game: Game, state: State, games: int) -> None:
    for name, value in state.items():
        assert tuple(value.shape[:1]) == (games,), (
            f"'{name}' of the state has shape {tuple(value.shape)}; give it one row for each of the"
            f" {games} games"
        )
    ends = {"done": game.done(dict(state)), "truncated": game.truncated(dict(state))}
    for name, ends_B in ends.items():
        assert ends_B is None or (ends_B.dtype, tuple(ends_B.shape)) == (torch.bool, (games,)), (
            f"{name} returns {_form(ends_B)}; give a torch.bool for each game"
        )


def _form(value: object) -> str:
    is_tensor = isinstance(value, Tensor)
    return f"{value.dtype} of shape {tuple(value.shape)}" if is_tensor else type(value).__name__  # type: ignore[attr-defined]


def _seen(game: Game, state: dict[str, Tensor], role: str) -> tuple[Tensor, Tensor | None]:
    """Return the observation and the legal moves of a role, after checking their form."""
    over_B = game.over(state)
    obs_BO = game.observe(state, role)
    wanted = len(over_B), game.observation_size(role)
    assert (obs_BO.is_floating_point(), tuple(obs_BO.shape)) == (True, wanted), (
        f"the {role} sees {_form(obs_BO)}; give floats of shape {wanted}"
    )
    assert torch.isfinite(obs_BO).all(), f"the {role} sees a number that is not finite"
    legal_BA = game.legal(obs_BO, role)
    if legal_BA is None:
        return obs_BO, None
    count = getattr(game.actions(role), "count", None)
    assert (legal_BA.dtype, tuple(legal_BA.shape)) == (torch.bool, (len(over_B), count)), (
        f"legal returns {_form(legal_BA)} for the {role}; give a torch.bool for each game and move"
    )
    stuck_B = ~over_B & ~legal_BA.any(1)
    assert not stuck_B.any(), (
        f"the {role} has no legal move in game {int(stuck_B.int().argmax())}, which is not over"
    )
    return obs_BO, legal_BA


def _random_actions(
    game: Game, role: str, legal_BA: Tensor | None, games: int, generator: torch.Generator
) -> Tensor:
    """Return random legal actions."""
    what = game.actions(role)
    if not hasattr(what, "count"):
        low, high = torch.tensor(what.low), torch.tensor(what.high)  # type: ignore[attr-defined]
        return low + torch.rand(games, len(low), generator=generator) * (high - low)
    draws_BA = torch.rand(games, what.count, generator=generator)
    return (draws_BA if legal_BA is None else draws_BA.masked_fill(~legal_BA, -1.0)).argmax(1)


def _check_illegal(
    game: Game, state: dict[str, Tensor], role: str, legal_BA: Tensor | None, actions: Tensor
) -> None:
    """Check that legal actions are accepted, and illegal ones refused by game, role and index."""
    game.check_actions(state, role, actions)
    going_B = ~game.over(state)
    count = getattr(game.actions(role), "count", None)
    if count is None or not going_B.any():
        return
    place = int(going_B.int().argmax())
    wrong = [-1, count]
    if legal_BA is not None:
        wrong += (~legal_BA[place]).nonzero()[:1, 0].tolist()
    for move in wrong:
        illegal = actions.clone()
        illegal[place] = move
        said = _refusal(partial(game.check_actions, state, role, illegal))
        assert said is not None, f"the illegal move {move} of the {role} is not refused"
        expected = [type(game).__name__, role, f"game {place}"]
        missing = [word for word in expected if word not in said]
        assert not missing, f"what is said of an illegal move does not name {missing}: {said}"


def _refusal(call: Callable[[], object]) -> str | None:
    """Return the message of a refused call; None if it was not refused."""
    try:
        call()
    except LudusError as error:
        return str(error)
    return None


def _checked_step(
    game: Game, state: dict[str, Tensor], role: str, actions: Tensor, obs_BO: Tensor
) -> tuple[dict[str, Tensor], Tensor]:
    """Return the result of a move, after checking everything that a step promises."""
    before, seen = _copied(state), obs_BO.clone()
    over_B, games = game.over(state), len(actions)
    after, rewards_BR = game.step(state, role, actions)
    _same(before, state, f"a move of the {role} changed the state that was given")
    assert torch.equal(seen, obs_BO), f"a move of the {role} changed an observation made before"
    assert set(after) == set(before), (
        f"a move of the {role} left {sorted(after)} of the state {sorted(before)}"
    )
    _check_state(game, after, games)
    for name in before:
        assert after[name].dtype == before[name].dtype, f"a move changed the type of '{name}'"
    assert (rewards_BR.dtype, tuple(rewards_BR.shape)) == (
        torch.float32,
        (games, len(game.roles)),
    ), f"rewards are {_form(rewards_BR)}; give a torch.float32 for each game and role"
    assert torch.isfinite(rewards_BR).all(), (
        f"a move of the {role} gave a reward that is not finite"
    )
    kept = {name: value[over_B] for name, value in after.items()}
    _same({name: value[over_B] for name, value in before.items()}, kept, "a game went on when over")
    assert game.over(after)[over_B].all(), "a game that was over began again"
    assert (rewards_BR[over_B] == 0).all(), "a reward was given for a game that was over"
    _check_alone(game, state, role, actions, after, rewards_BR)
    return after, rewards_BR


def _check_alone(
    game: Game,
    state: dict[str, Tensor],
    role: str,
    actions: Tensor,
    after: State,
    rewards_BR: Tensor,
) -> None:
    """Check that a subset of the batch, in reverse order, plays the same without the others."""
    chosen = torch.arange(len(actions) - 1, -1, -3)
    some = {name: value[chosen] for name, value in state.items()}
    alone, gained = game.step(some, role, actions[chosen])
    problem = "a game depends on the other games of its batch"
    _same({name: value[chosen] for name, value in after.items()}, alone, problem, rtol=1e-5)
    _same({"": rewards_BR[chosen]}, {"": gained}, problem, rtol=1e-5)


def _check_on_device(game: Game, games: int) -> None:
    """Check with fake tensors that no value of a tensor is read on the host."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    generator = torch.Generator().manual_seed(7)
    state, actions = game.reset(games, generator), {}
    # A first real round, so that whatever a game creates once exists before the capture.
    for role in game.roles:
        legal_BA = game.legal(game.observe(state, role), role)
        actions[role] = _random_actions(game, role, legal_BA, games, generator)
        state, _ = game.step(state, role, actions[role])
    where = "reset"
    try:
        with FakeTensorMode(allow_non_fake_inputs=True) as fake:
            state = game.reset(games, generator)
            for role in game.roles:
                where = f"a move of the {role}"
                game.legal(game.observe(state, role), role)
                state, _ = game.step(state, role, fake.from_tensor(actions[role]))
            where = "done, truncated or over"
            game.done(state), game.truncated(state), game.over(state)
    except Exception as error:
        raise AssertionError(
            f"{where} reads a number of a tensor on the host, which waits for the device and cannot be"
            f" captured: {type(error).__name__}: {str(error).splitlines()[0]}"
        ) from error


def _copied(state: State) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in state.items()}


def _same(expected: State, found: State, problem: str, *, rtol: float = 0.0) -> None:
    torch.testing.assert_close(
        dict(found), dict(expected), rtol=rtol, atol=rtol, msg=lambda text: f"{problem}: {text}"
    )
