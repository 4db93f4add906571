"""Several envs stepped by worker processes; interface and results equal those of VectorEnv.

Shapes: N envs, W workers.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from ludus.config.sections import StrictConfig
from ludus.core.errors import CheckpointError, ConfigError, LudusError
from ludus.envs import saved_states
from ludus.envs.action_codec import check_actions
from ludus.envs.config import env_name
from ludus.envs.errors import EnvError
from ludus.envs.shared_arrays import MASKS, SHOWN, SharedArrays, action_shape, open_memory
from ludus.envs.spec_json import spec_from_json
from ludus.envs.vector import VectorEnv, make_vector_env
from ludus.process.child import Child, ChildDied, ChildFailed, ChildHung
from ludus.process.frames import Message
from ludus.process.messages import pack, unpack

_START_SECONDS = 300.0
_RESTORE_SECONDS = 600.0


class WorkerVectorEnv:
    """N envs spread over W processes, with the attributes and results of a VectorEnv.

    An env that crashes or hangs its process raises an EnvError: `timeout` is the number of seconds that one
    step of all envs of a worker may take. After that all processes are gone.
    """

    def __init__(
        self,
        section: StrictConfig,
        num_envs: int,
        seed: int,
        name: str = "env",
        *,
        workers: int,
        timeout: float = 60.0,
    ) -> None:
        if not 1 <= workers <= num_envs:
            raise ConfigError(
                f"{workers} workers cannot share {num_envs} envs; have 1 to {num_envs} workers"
            )
        self.num_envs = num_envs
        self._title = env_name(section)
        self._timeout = timeout
        self._workers: list[Child] = []
        bounds = [num_envs * number // workers for number in range(workers + 1)]
        self._slices = list(itertools.pairwise(bounds))
        self._episodes_N = np.full(num_envs, -1)
        self._lengths_N = np.zeros(num_envs, np.int64)
        self._inexact: list[str] = []
        self._is_well = True
        """Whether every request so far was answered."""
        self._last_state: dict[str, Any] | None = None
        try:
            self._open(section, seed, name)
        except BaseException:
            self.close()
            raise

    def _open(self, section: StrictConfig, seed: int, name: str) -> None:
        """Start all workers at once, get the spec of the envs, and share memory for them."""
        memory = open_memory()
        try:
            for first, stop in self._slices:
                title = f"the process of {self._title}, envs {first} to {stop - 1},"
                self._workers.append(
                    Child("ludus.envs.worker_main", name=title, timeout=self._timeout, fds=[memory])
                )
            request = {"do": "open", "section": section.model_dump(mode="json")}
            common = {**request, "seed": seed, "name": name}
            answers = self._ask_all(
                lambda w: ({**common, "number": w, "envs": self._slices[w]}, ()), _START_SECONDS
            )
            self.spec = spec_from_json(answers[0][0]["spec"])
            num_workers = len(self._workers)
            self._shared = SharedArrays(memory, self.spec, self.num_envs, num_workers)
            share = {"do": "share", "memory": memory, "num_envs": self.num_envs}
            self._ask_all(lambda w: ({**share, "num_workers": num_workers}, ()), _START_SECONDS)
        finally:
            os.close(memory)
        # Private copies: they change only once every worker has done its step.
        own = {name: self._shared[name].copy() for name in (*SHOWN, *MASKS, "cut")}
        self.obs, self.next_obs = own["obs"], own["next_obs"]
        self.rewards, self.own_rewards = own["rewards"], own["own_rewards"]
        self.successes = own["successes"]
        self.terminated, self.truncated, self.cut = own["terminated"], own["truncated"], own["cut"]
        self.masks = own["masks"] if self.spec.has_masks else None
        self.next_masks = own["next_masks"] if self.spec.has_masks else None
        self.has_ended = False
        names = (*SHOWN, *MASKS) if self.spec.has_masks else SHOWN
        self._copies = [(own[name], self._shared[name]) for name in names]

    def reset(self, episode: int = 0) -> None:
        """Begin the episode of this number in every env; equal numbers begin alike."""
        self._episodes_N.fill(episode)
        self._lengths_N.fill(0)
        self._ask_all(lambda w: ({"do": "reset", "episode": episode}, ()), self._timeout)
        self._look()

    def step(self, actions: np.ndarray) -> None:
        """Take one action in every env, given in the env's own units.

        Raises EnvError, before any array has changed, if an env breaks its contract or its process dies.
        """
        self._check_open()
        shape, dtype = action_shape(self.spec, self.num_envs)
        check_actions(actions, shape, is_box=dtype == np.float32, name=self._title)
        np.copyto(self._shared["actions"], actions, casting="same_kind")
        self._lengths_N += 1
        self._ask_all(lambda w: ({}, ()), self._timeout)
        self._look()
        if self.has_ended:
            ended_N = self.terminated | self.truncated
            self._episodes_N[ended_N] += 1
            self._lengths_N[ended_N] = 0

    def _look(self) -> None:
        for own, shared in self._copies:
            np.copyto(own, shared)
        self.has_ended = bool(self._shared["has_ended"].any())

    # Talking to the workers

    def _ask_all(
        self, request: Callable[[int], tuple[dict[str, Any], Sequence[bytes]]], timeout: float
    ) -> list[Message]:
        """Send every worker its request, then wait for all; raise the first error in their order."""
        self._check_open()
        number, failure, self._is_well = 0, None, False
        answers: list[Message] = []
        try:
            for number, worker in enumerate(self._workers):
                worker.send(*request(number))
            for number in range(len(self._workers)):
                try:
                    answers.append(self._workers[number].receive(timeout))
                except ChildFailed as error:
                    failure = failure or error
        except (ChildDied, ChildHung) as error:
            raise self._lost(number, error) from error
        if failure is not None:
            kinds = {"ConfigError": ConfigError, "StateError": CheckpointError}
            raise kinds[failure.kind](str(failure)) if failure.kind in kinds else failure
        for header, _ in answers:
            if "env_error" in header:
                raise EnvError(**header["env_error"])
        self._is_well = True
        return answers

    def _lost(self, number: int, error: LudusError) -> EnvError:
        """Kill all processes, since one of them is lost; return the error to raise."""
        for worker in self._workers:
            worker.kill()
        self.close()
        first, _ = self._slices[number]
        return EnvError(
            str(error),
            env=self._title,
            index=first,
            episode=int(self._episodes_N[first]),
            step=int(self._lengths_N[first]),
            field="process",
        )

    def _check_open(self) -> None:
        if not self._workers:
            raise LudusError(f"{self._title}: its processes were closed; build new envs")

    # Saving and restoring

    def state_dict(self) -> dict[str, Any]:
        """Return the position of every env, or the last one if the envs were closed.

        A VectorEnv, or any number of workers, can load it.
        """
        if self._last_state is not None and not self._workers:
            return dict(self._last_state)
        answers = self._ask_all(lambda w: ({"do": "save"}, ()), _RESTORE_SECONDS)
        joined = saved_states.join([unpack(header["state"], data[0]) for header, data in answers])
        return {**joined, "cut": self.cut.copy(), "inexact": list(self._inexact)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore every env to where it was saved; see VectorEnv."""
        saved_states.check(state, self, actions=None, name=self._title)
        episodes = state["episodes"]

        def request(number: int) -> tuple[dict[str, Any], Sequence[bytes]]:
            plain, data = pack(saved_states.split(state, *self._slices[number]))
            return {"do": "load", "state": plain}, [data]

        answers = self._ask_all(request, _RESTORE_SECONDS)
        self._inexact = list(state["inexact"])
        self._inexact += [reason for header, _ in answers for reason in header["inexact"]]
        self._look()
        np.copyto(self.cut, self._shared["cut"])
        self._episodes_N[:] = episodes + (self.cut & ~state["cut"])
        self._lengths_N[:] = np.where(self.cut & ~state["cut"], 0, state["journal"]["lengths"])

    def inexact_because(self) -> list[str]:
        """Return why this run is not exact: an episode that could not be restored."""
        return list(self._inexact)

    def close(self) -> None:
        """Close the envs of every worker and end it; calling it twice does no harm."""
        if self._workers and self._is_well and self._episodes_N[0] >= 0:
            # A script may ask for the state of the envs after the run is over.
            with contextlib.suppress(LudusError):
                self._last_state = self.state_dict()
        workers, self._workers = self._workers, []
        with contextlib.ExitStack() as stack:
            for worker in workers:
                stack.callback(worker.close)
        self._copies = []
        # The memory is freed with the last array in it.
        vars(self).pop("_shared", None)


class _Settings(Protocol):
    @property
    def workers(self) -> int: ...


class EnvsConfig(Protocol):
    """The part of a config about the training envs."""

    @property
    def env(self) -> StrictConfig: ...
    @property
    def num_envs(self) -> int: ...
    @property
    def seed(self) -> int: ...
    @property
    def step_timeout_seconds(self) -> float: ...
    @property
    def settings(self) -> _Settings: ...


def make_envs(config: EnvsConfig) -> VectorEnv | WorkerVectorEnv:
    """Return the training envs of a run: in this process, or spread over `settings.workers`."""
    workers = min(config.settings.workers, config.num_envs)
    if workers:
        return WorkerVectorEnv(
            config.env,
            config.num_envs,
            config.seed,
            workers=workers,
            timeout=config.step_timeout_seconds,
        )
    return make_vector_env(config.env, config.num_envs, config.seed)
