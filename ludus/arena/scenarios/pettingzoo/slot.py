"""One parallel env in its place: begun with a seed, stepped, and checked against what an env promises.

Shapes: A agents, O numbers that an agent sees.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

import numpy as np

from ludus.arena.playing.parallel_env import AnyParallelEnv
from ludus.arena.scenarios.pettingzoo.spec import ParallelSpec, flattened
from ludus.core.errors import LudusError
from ludus.envs.errors import EnvError

T = TypeVar("T")


class Slot:
    """Holds an env, and knows whether its episode is over."""

    def __init__(self, env: AnyParallelEnv, spec: ParallelSpec, index: int, *, limit: int) -> None:
        """`limit` is how many steps an episode may have before it is cut off."""
        self.env, self.spec, self.index, self.limit = env, spec, index, limit
        self.spaces = [env.observation_space(name) for name in spec.agent_names]
        self.iteration = self.episode = self.num_steps = 0
        self._is_over = True

    def has_ended(self) -> bool:
        """Return whether the episode is over."""
        return self._is_over

    def begin(self, seed: int, iteration: int, episode: int, seen_AO: np.ndarray) -> None:
        """Begin an episode of this number in an iteration, and write what the agents see."""
        self.iteration, self.episode, self.num_steps = iteration, episode, 0
        try:
            seen, _ = self.env.reset(seed=seed)
        except Exception as error:
            raise self._failed("reset", error) from error
        self._check_agents("reset")
        self._write(seen, seen_AO)
        self._is_over = False

    def step(
        self,
        chosen_A: Sequence[int],
        seen_AO: np.ndarray,
        rewards_A: np.ndarray,
        ended_2A: np.ndarray,
    ) -> None:
        """Take a step; write what the agents see and gain, and who is done and who has terminated."""
        names, firsts = self.spec.agent_names, self.spec.first_actions
        actions = {
            name: choice + first
            for name, choice, first in zip(names, chosen_A, firsts, strict=True)
        }
        self.num_steps += 1
        try:
            seen, rewards, ends, cuts, _ = self.env.step(actions)
        except Exception as error:
            raise self._failed("step", error) from error
        self._write(seen, seen_AO)
        is_cut = self.num_steps >= self.limit
        for place, name in enumerate(names):
            rewards_A[place] = self._of(rewards, name, "rewards")
            has_ended = bool(self._of(ends, name, "terminations"))
            ended_2A[1, place] = has_ended
            ended_2A[0, place] = has_ended or bool(self._of(cuts, name, "truncations")) or is_cut
        if not np.isfinite(rewards_A).all():
            raise self._error("gave a reward that is not a finite number", "rewards")
        self._is_over = bool(ended_2A[0].all())
        if not self._is_over:
            self._check_alive(ended_2A[0])
            self._check_agents("step")

    def _write(self, seen: Mapping[str, object], seen_AO: np.ndarray) -> None:
        for place, (name, space) in enumerate(zip(self.spec.agent_names, self.spaces, strict=True)):
            row = flattened(space, self._of(seen, name, "observations"))
            size = self.spec.num_numbers[place]
            if len(row) != size:
                raise self._error(
                    f"showed '{name}' {len(row)} numbers, but its observation_space has {size}",
                    "observations",
                )
            seen_AO[place, :size] = row
        if not np.isfinite(seen_AO).all():
            raise self._error("gave an observation that is not finite", "observations")

    def _of(self, given: Mapping[str, T], name: str, field: str) -> T:
        if name not in given:
            raise self._error(
                f"says nothing of '{name}' in its {field}; in the arena every agent stays from the first"
                " step of an episode to the last, so wrap the env to keep those that leave",
                field,
            )
        return given[name]

    def _check_alive(self, done_A: np.ndarray) -> None:
        if done_A.any():
            name = self.spec.agent_names[int(done_A.argmax())]
            raise self._error(
                f"'{name}' is done while others go on; in the arena all agents of an episode end together,"
                " so wrap the env to keep those that leave",
                "terminations",
            )

    def _check_agents(self, field: str) -> None:
        missing = set(self.spec.agent_names) - set(self.env.agents)
        if missing:
            raise self._error(
                f"'{min(missing)}' is not among its agents; in the arena every agent stays from the first"
                " step of an episode to the last, so wrap the env to keep those that come and go",
                field,
            )

    def _failed(self, field: str, error: Exception) -> LudusError:
        return self._error(f"raised {type(error).__name__}: {error}", field)

    def _error(self, problem: str, field: str) -> EnvError:
        return EnvError(
            problem,
            env=str(self.env),
            index=self.index,
            episode=self.episode,
            step=self.num_steps,
            field=field,
        )
