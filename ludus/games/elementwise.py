"""ElementwiseGame: a single-player game whose step is elementwise, written once for PyTorch and for Triton.

A new game is three functions of the operations below, and nothing else of torch:

    begin(u0, u1, ...) -> the numbers of a new state, from uniform random numbers in [0, 1)
    features(*numbers) -> the observation
    advance(*numbers, action) -> (*numbers, reward, terminated)

Here they are called with tensors. A kernel inlines the very same functions (`kernels/inline.py`), so they
may use parameters, arithmetic, comparisons, `&`, `|`, the operations of this file, global floats, and
functions like themselves.

Shapes: B games, S numbers of a state, U uniform numbers of a start, O features.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import TypeGuard, cast

import torch
from torch import Tensor

from ludus.core.errors import ConfigError
from ludus.games.game import Bounds, FusedGame, Moves, State, Step, check_games

Numbers = tuple[Tensor, ...]
"""One tensor (B,) for each number of a state, or for each feature."""
Outcome = tuple[Tensor | float, ...]
"""The numbers of the next state, the reward (a float where it is the same for all), and whether the game
terminated."""


def where(is_so: Tensor, then: Tensor | float, otherwise: Tensor | float) -> Tensor:
    """Return `then` where the condition holds, `otherwise` elsewhere."""
    return torch.where(is_so, then, otherwise)


def sin(x: Tensor) -> Tensor:
    """Return the sine of an angle in radians."""
    return torch.sin(x)


def cos(x: Tensor) -> Tensor:
    """Return the cosine of an angle in radians."""
    return torch.cos(x)


def exp(x: Tensor) -> Tensor:
    """Return e to the power of a number."""
    return torch.exp(x)


def sqrt(x: Tensor) -> Tensor:
    """Return the square root."""
    return torch.sqrt(x)


def floor(x: Tensor) -> Tensor:
    """Return the greatest integer that is not above x."""
    return torch.floor(x)


def absolute(x: Tensor) -> Tensor:
    """Return the absolute value."""
    return torch.abs(x)


def minimum(x: Tensor, y: Tensor | float) -> Tensor:
    """Return the lesser of two."""
    return torch.minimum(x, y) if isinstance(y, Tensor) else torch.clamp(x, max=y)


def maximum(x: Tensor, y: Tensor | float) -> Tensor:
    """Return the greater of two."""
    return torch.maximum(x, y) if isinstance(y, Tensor) else torch.clamp(x, min=y)


OPERATIONS = (where, sin, cos, exp, sqrt, floor, absolute, minimum, maximum)


class ElementwiseGame(FusedGame):
    """A batch of games defined by three elementwise functions; a game is truncated after max_steps.

    A state is `numbers` (B, S), `steps` (B,) and `ended` (B,). The numbers have the type `dtype`.
    """

    roles = ("player",)
    begin: Callable[..., Numbers]
    features: Callable[..., Numbers]
    advance: Callable[..., Outcome]
    moves: Moves | Bounds
    """The action space."""
    names: tuple[str, ...] = ()
    """Names of the moves, or units of the numbers, for display; without names they are shown as numbers."""

    def __init__(self, *, max_steps: int, dtype: torch.dtype = torch.float32) -> None:
        """Truncate a game after `max_steps`, unless it has terminated."""
        if max_steps < 1:
            raise ConfigError(f"'max_steps' is {max_steps}; a game needs 1 or more")
        self.max_steps = max_steps
        self.dtype = dtype
        self.num_uniforms = len(inspect.signature(self.begin).parameters)
        self.num_numbers = len(inspect.signature(self.features).parameters)
        self.num_features = len(self.features(*torch.zeros(self.num_numbers, 1)))

    def actions(self, role: str) -> Moves | Bounds:
        """Return the action space."""
        self.check_role(role)
        return self.moves

    def observation_size(self, role: str) -> int:
        """Return the number of features."""
        self.check_role(role)
        return self.num_features

    def reset(self, games: int, generator: torch.Generator) -> State:
        """Return new games, drawn from this generator."""
        check_games(games)
        shape, device = (self.num_uniforms, games), generator.device
        return self.start(torch.rand(shape, generator=generator, device=device, dtype=self.dtype))

    def start(self, uniforms_UB: Tensor) -> State:
        """Return new games from uniform numbers in [0, 1)."""
        numbers_BS = torch.stack(self.begin(*uniforms_UB.to(self.dtype)), 1)
        steps_B = torch.zeros(len(numbers_BS), dtype=torch.int32, device=numbers_BS.device)
        return {"numbers": numbers_BS, "steps": steps_B, "ended": steps_B.bool()}

    def observe(self, state: State, role: str) -> Tensor:
        """Return (B, O) float32 features."""
        return torch.stack(self.features(*state["numbers"].unbind(1)), 1).float()

    def play(self, state: State, role: str, actions: Tensor) -> Step:
        """Return the states and the rewards after one step of each game."""
        chosen: Sequence[Tensor] = [actions]
        if isinstance(self.moves, Bounds):
            chosen = actions.to(self.dtype).unbind(1)
        outcome = cast(Numbers, self.advance(*state["numbers"].unbind(1), *chosen))
        *numbers, reward, ended_B = outcome
        after = {
            "numbers": torch.stack(numbers, 1),
            "steps": state["steps"] + 1,
            "ended": ended_B,
        }
        rewards_B = torch.zeros_like(state["steps"], dtype=torch.float32) + reward
        return Step(after, rewards_B.unsqueeze(1))

    def text(self, state: State, game: int) -> str:
        """Return a drawing of one game, if it has one, and its numbers by name."""
        numbers = state["numbers"][game].tolist()
        parts = self.described(*numbers), f"step {int(state['steps'][game])}"
        return "\n".join([*self.picture(*numbers), ", ".join(parts)])

    def picture(self, *numbers: float) -> Sequence[str]:
        """Return lines that draw a state; empty unless a game overrides it."""
        return ()

    def described(self, *numbers: float) -> str:
        """Return the numbers of a state, under the parameter names of `features`."""
        names = inspect.signature(self.features).parameters
        return ", ".join(f"{name} {x:.3g}" for name, x in zip(names, numbers, strict=True))

    def told(self, role: str, action: Tensor) -> str:
        """Return the name of a move, or the numbers with their units."""
        if not self.names:
            return super().told(role, action)
        if isinstance(self.moves, Moves):
            return self.names[int(action)]
        pairs = zip(action.tolist(), self.names, strict=True)
        return ", ".join(f"{x:+.2f} {unit}" for x, unit in pairs)

    def done(self, state: State) -> Tensor:
        """Return whether each game has terminated."""
        return state["ended"]

    def truncated(self, state: State) -> Tensor:
        """Return whether each game was truncated."""
        return (state["steps"] >= self.max_steps) & ~state["ended"]


# Rollouts and kernels compute these from the three functions, bypassing the class's own methods.
_DONE_BY_THREE = ("reset", "start", "observe", "play", "step", "done", "truncated", "over")


def own_function(game: ElementwiseGame) -> str | None:
    """Return the name of a method that this game overrides besides its three functions, or None."""
    for name in _DONE_BY_THREE:
        if getattr(type(game), name) is not getattr(ElementwiseGame, name) or name in vars(game):
            return name
    return None


def is_plain(game: FusedGame) -> TypeGuard[ElementwiseGame]:
    """Return whether the three functions define the whole game."""
    return isinstance(game, ElementwiseGame) and own_function(game) is None
