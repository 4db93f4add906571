"""Slot: one parallel env, reset with a seed, stepped, and checked against PettingZoo's contract.

An agent that is terminated or truncated is absent until the next episode: it is given no action, observes
zeros, has no reward, and counts as terminated, so that nothing is bootstrapped across its end.

Shapes: A agents, O numbers of an observation.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TypeVar

import numpy as np

from ludus.arena.playing.parallel_env import AnyParallelEnv
from ludus.arena.scenarios.pettingzoo.reading import as_flag, as_reward, description, flattened
from ludus.arena.scenarios.pettingzoo.spec import ParallelSpec, close_env, space_of
from ludus.envs.errors import EnvError
from ludus.envs.slot import error_line

T = TypeVar("T")

_RESET = ("observations", "infos")
_STEP = ("observations", "rewards", "terminations", "truncations", "infos")


class Slot:
    """An env, and the mask of its present agents."""

    def __init__(self, env: AnyParallelEnv, spec: ParallelSpec, index: int, *, limit: int) -> None:
        """`limit` is the number of steps after which an episode is truncated."""
        self.env, self.spec, self.index, self.limit = env, spec, index, limit
        spaces = [
            space_of(env, "observation_space", name, f"the env {env}") for name in spec.agent_names
        ]
        self._readers = [
            functools.partial(flattened, space, size)
            for space, size in zip(spaces, spec.num_numbers, strict=True)
        ]
        self._names = frozenset(spec.agent_names)
        self.iteration = self.episode = self.num_steps = 0
        self.is_there_A = np.zeros(len(spec.agent_names), bool)
        """The agents for which the episode is not over."""
        self._is_unlisted_A = np.zeros_like(self.is_there_A)
        """The agents that are done and have been removed from the env's `agents`."""

    def has_ended(self) -> bool:
        """Return whether the episode is over."""
        return not self.is_there_A.any()

    def begin(self, seed: int, iteration: int, episode: int, seen_AO: np.ndarray) -> None:
        """Begin an episode of this number in an iteration, and write the observations."""
        self.iteration, self.episode, self.num_steps = iteration, episode, 0
        (seen,) = self._called("reset", lambda: self.env.reset(seed=seed), _RESET)
        if missing := set(self.spec.agent_names) - self._listed("reset"):
            raise self._error(
                f"'{min(missing)}' is not among its agents; in the arena every agent is there from the first"
                " step of an episode on, so wrap the env to keep those that come later",
                "reset",
            )
        self._write(seen, range(len(self.spec.agent_names)), seen_AO)
        self.is_there_A[:], self._is_unlisted_A[:] = True, False

    def step(
        self,
        chosen_A: Sequence[int],
        seen_AO: np.ndarray,
        rewards_A: np.ndarray,
        ended_2A: np.ndarray,
    ) -> None:
        """Take a step; write observations, rewards, and who is done and who has terminated.

        On the last step of an agent its reward counts, and its last observation is written.
        """
        names, firsts = self.spec.agent_names, self.spec.first_actions
        places = np.flatnonzero(self.is_there_A).tolist()
        actions = {names[place]: chosen_A[place] + firsts[place] for place in places}
        self.num_steps += 1
        seen, rewards, ends, cuts = self._called("step", lambda: self.env.step(actions), _STEP)
        listed = self._listed("step")
        if len(places) < len(names):
            self._check_gone(listed, ends, cuts)
            ended_2A[:, ~self.is_there_A] = True
        for place in places:
            rewards_A[place] = self._read(rewards, names[place], "rewards", as_reward)
            ended_2A[:, place] = self._ended(names[place], listed, ends, cuts)
        # Nothing after a termination is used, so an env need not return an observation for it.
        shown = [place for place in places if not ended_2A[1, place] or names[place] in seen]
        self._write(seen, shown, seen_AO)
        if self.num_steps >= self.limit:
            ended_2A[0] = True
        self.is_there_A &= ~ended_2A[0]
        self._is_unlisted_A |= [name not in listed for name in names]

    def close(self) -> None:
        """Close the env."""
        close_env(self.env, f"{self.env}, env {self.index},")

    def _called(
        self, name: str, call: Callable[[], object], fields: Sequence[str]
    ) -> list[Mapping[str, object]]:
        """Return the result of a method of the env, without the infos, which are not used."""
        try:
            given = call()
        except Exception as error:
            raise self._error(f"{name} raised {error_line(error)}", name) from error
        if not isinstance(given, tuple | list) or len(given) != len(fields):
            what = f"{len(given)} things" if isinstance(given, tuple | list) else description(given)
            raise self._error(f"{name} returned {what}, not ({', '.join(fields)})", name)
        for field, one in zip(fields[:-1], given, strict=False):
            if not isinstance(one, Mapping):
                raise self._error(
                    f"its {field} are {description(one)}, not a dict by the names of agents", field
                )
        return list(given[:-1])

    def _listed(self, field: str) -> set[str]:
        """Return the agents that the env lists as present."""
        agents = getattr(self.env, "agents", None)
        if isinstance(agents, str) or not isinstance(agents, Collection):
            raise self._error(f"its agents are {description(agents)}, not a list of names", field)
        for name in agents:
            if not isinstance(name, str) or name not in self._names:
                raise self._error(
                    f"{name!r} is among its agents and not among its possible_agents; name all of them there,"
                    " before the first episode",
                    field,
                )
        return set(agents)

    def _ended(
        self,
        name: str,
        listed: Collection[str],
        ends: Mapping[str, object],
        cuts: Mapping[str, object],
    ) -> tuple[bool, bool]:
        """Return whether an agent that acted is done, and whether it has terminated."""
        has_terminated = self._read(ends, name, "terminations", as_flag)
        is_done = self._read(cuts, name, "truncations", as_flag) or has_terminated
        if is_done or name in listed:
            return is_done, has_terminated
        if listed:
            raise self._error(
                f"'{name}' is not among its agents any more, but neither terminated nor truncated; say which"
                " in the step in which an agent leaves",
                "agents",
            )
        # An env without agents has terminated the episode.
        return True, True

    def _check_gone(
        self, listed: Collection[str], ends: Mapping[str, object], cuts: Mapping[str, object]
    ) -> None:
        """Raise EnvError where an agent that is done is present again, by the env's `agents` and its flags.

        An env may keep it among its agents, as long as its flags never say that it is not done.
        """
        for place in np.flatnonzero(~self.is_there_A):
            name = self.spec.agent_names[place]
            if name not in listed:
                continue
            flags = [
                self._read(each, name, field, as_flag)
                for each, field in ((ends, "terminations"), (cuts, "truncations"))
                if name in each
            ]
            goes_on = bool(flags) and not any(flags)
            if self._is_unlisted_A[place] or goes_on:
                raise self._error(
                    f"'{name}' is back after its end; in the arena an agent that is done stays away until the"
                    " next episode, so wrap the env to keep it there, or away",
                    "agents",
                )

    def _write(
        self, seen: Mapping[str, object], places: Iterable[int], seen_AO: np.ndarray
    ) -> None:
        """Write the observations of the agents at these indices, each from the left of its row."""
        for place in places:
            name, size = self.spec.agent_names[place], self.spec.num_numbers[place]
            seen_AO[place, :size] = self._read(seen, name, "observations", self._readers[place])
        is_finite_AO = np.isfinite(seen_AO)
        if not is_finite_AO.all():
            place, number = np.argwhere(~is_finite_AO)[0].tolist()
            raise self._error(
                f"observations['{self.spec.agent_names[place]}'] has {seen_AO[place, number]}, which is"
                " not finite in float32",
                "observations",
            )

    def _read(
        self, given: Mapping[str, object], name: str, field: str, read: Callable[[object], T]
    ) -> T:
        """Return the value for this agent."""
        if name not in given:
            raise self._error(
                f"says nothing of '{name}' in its {field}; give them for every agent that acted, also in the"
                " step in which it leaves",
                field,
            )
        try:
            return read(given[name])
        except ValueError as error:
            raise self._error(f"{field}['{name}'] {error}", field) from error

    def _error(self, problem: str, field: str) -> EnvError:
        return EnvError(
            problem,
            env=str(self.env),
            index=self.index,
            episode=self.episode,
            step=self.num_steps,
            field=field,
        )
