"""Hironaka's game as gymnasium environments, one game at a time, for other RL libraries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, SupportsInt

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ludus.core.errors import LudusError
from ludus.games.game import State
from ludus.games.hironaka.starts import padded
from ludus.games.player import AnyPlayer, ask, begin, seated
from ludus.games.rules.hironaka import Hironaka, Polytope

try:
    import gymnasium
    from gymnasium import spaces
except ModuleNotFoundError as error:
    raise LudusError(
        "the envs of Hironaka's game need gymnasium; install it with: pip install 'ludus[rl]'"
    ) from error

RANDOM: Mapping[str, object] = {"kind": "random"}
_STARTS, _FIRST_STARTS = 1000, 4


class _HironakaEnv(gymnasium.Env[Any, np.int64]):
    """One game against an opponent, which plays the other role."""

    metadata = {"render_modes": ["ansi"]}
    role: str

    def __init__(
        self,
        opponent: AnyPlayer = RANDOM,
        *,
        dimension: int = 3,
        max_num_points: int = 20,
        max_value: int = 20,
        scale_observation: bool = True,
        polytope: Polytope = "domination",
        max_steps: int = 200,
        render_mode: str | None = None,
    ) -> None:
        """Play games of this size; one is truncated after `max_steps` moves of the learner, or when its
        points, not rescaled, become too large for float32.
        """
        self.game = Hironaka(
            dimension=dimension,
            max_num_points=max_num_points,
            max_value=max_value,
            scale_observation=scale_observation,
            polytope=polytope,
        )
        if max_steps < 1:
            raise LudusError(f"'max_steps' is {max_steps}; a game needs 1 or more")
        if render_mode not in (None, "ansi"):
            raise LudusError(f"the render mode '{render_mode}' is not known; use ansi, or none")
        self.other = next(role for role in self.game.roles if role != self.role)
        self.opponent = seated(opponent, self.game, self.other)
        self.max_steps, self.render_mode = max_steps, render_mode
        self.action_space = spaces.Discrete(self.game.actions(self.role).count)
        self.observation_space = self._space(1.0 if scale_observation else np.inf)
        self._state: State = {}
        self._generator = torch.Generator()
        self._num_steps = 0

    def _space(self, highest: float) -> spaces.Space[Any]:
        """Return the observation space of the learner; the points are padded with -1."""
        shape = self.game.max_num_points, self.game.dimension
        return spaces.Box(-1.0, highest, shape, np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Return the learner's observation of a new game that is not over.

        With options={"points": [[4, 0], [1, 1], [0, 4]]} it starts from these points.
        """
        super().reset(seed=seed)
        self._generator.manual_seed(int(self.np_random.integers(2**62)))
        self._state = self._started_from(options) if options else self._started()
        self._num_steps = 0
        begin(self.opponent)
        self._let_the_host_begin()
        return self._seen(), self._info()

    def _started(self) -> State:
        """Return a game that is not over."""
        # Nearly every start is valid, so only few are drawn at first.
        for count in (_FIRST_STARTS, _STARTS - _FIRST_STARTS):
            starts = self.game.reset(count, self._generator)
            going_B = ~self.game.over(starts)
            if going_B.any():
                first = int(going_B.int().argmax())
                return {name: value[first : first + 1] for name, value in starts.items()}
        raise LudusError(
            f"all of {_STARTS} random starts have ended: one point is below all others; give more"
            " points or a greater max_value"
        )

    def _started_from(self, options: Mapping[str, Any]) -> State:
        """Return the game given by the options of a reset."""
        if unknown := options.keys() - {"points"}:
            raise LudusError(
                f"reset was given the option '{min(unknown)}', which is not known; there is 'points', a list"
                f" of points with {self.game.dimension} coordinates each"
            )
        state = self.game.start(padded(options["points"], self.game).unsqueeze(0))
        if self.game.over(state):
            raise LudusError(
                "'points' is a game that has ended: one point is below all others; give other points"
            )
        return state

    def _let_the_host_begin(self) -> None:
        """Make the opponent's first move, where the opponent begins."""

    def step(self, action: SupportsInt) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Return the result of the learner's move and of the opponent's reply."""
        self._check_begun("step")
        try:
            chosen_B = torch.tensor([int(action)])
        except (TypeError, ValueError):
            raise LudusError(f"step was given {action!r}; give the number of a move") from None
        self._num_steps += 1
        if not self._is_legal(int(action)):
            # An immediate loss is the only answer that no learner can exploit to gain time.
            return self._seen(), -1.0, True, False, {**self._info(), "is_illegal": True}
        reward = self._moved(self.role, chosen_B)
        if not self.game.over(self._state):
            reward += self._moved(self.other, self._asked())
        is_done = bool(self.game.done(self._state))
        is_long = self._num_steps >= self.max_steps or bool(self.game.over(self._state))
        return self._seen(), reward, is_done, is_long and not is_done, self._info()

    def _check_begun(self, what: str) -> None:
        if not self._state:
            raise LudusError(f"{what} was called before reset; reset the env first")

    def _asked(self) -> Tensor:
        return ask(self.opponent, self.game, self._state, self.other, self._generator)

    def _moved(self, role: str, actions_B: Tensor) -> float:
        self._state, rewards_BR = self.game.step(self._state, role, actions_B)
        return float(rewards_BR[0, self.game.roles.index(self.role)])

    def _is_legal(self, action: int) -> bool:
        mask = self._mask()
        return 0 <= action < len(mask) and bool(mask[action])

    def _mask(self) -> NDArray[np.int8]:
        obs_BO = self.game.observe(self._state, self.role)
        legal_BA = self.game.legal(obs_BO, self.role)
        if legal_BA is None or bool(self.game.over(self._state)):
            return np.ones(self.game.actions(self.role).count, np.int8)
        return legal_BA[0].numpy().astype(np.int8)

    def _info(self) -> dict[str, Any]:
        return {"action_mask": self._mask()}

    def _seen(self) -> Any:
        return self._named()[0].numpy().copy()

    def _named(self) -> Any:
        """Return the learner's observation, as points, or as a dict of points and coordinates."""
        obs_BO = self.game.observe(self._state, self.role)
        return self.game.named(obs_BO, self.role)

    def render(self) -> str | None:
        """Return the points as text, where the render mode is ansi."""
        if self.render_mode is None:
            return None
        self._check_begun("render")
        return self.game.text(self._state, 0)


class HironakaHostEnv(_HironakaEnv):
    """The learner is the host: it observes the points (N, D) and chooses coordinates by an action number.

    `decode_host_action(action, dimension)` returns them. The end of the game is worth 1.
    """

    role = "host"


class HironakaAgentEnv(_HironakaEnv):
    """The learner is the agent: it observes the points and the chosen coordinates, and picks one of these.

    The end of the game is worth -1, and so is an illegal coordinate, which ends it; the legal ones are in
    info["action_mask"].
    """

    role = "agent"

    def _space(self, highest: float) -> spaces.Space[Any]:
        coords = spaces.Box(0.0, 1.0, (self.game.dimension,), np.float32)
        return spaces.Dict({"points": super()._space(highest), "coords": coords})

    def _seen(self) -> Any:
        return {name: value[0].numpy().copy() for name, value in self._named().items()}

    def _let_the_host_begin(self) -> None:
        self._moved(self.other, self._asked())
