"""Judge a policy by whole episodes, the same ones every time, leaving no trace in training.

Shapes: N envs, D numbers of an observation, A actions.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ludus.core.errors import Interrupted
from ludus.rl.camera import Camera, with_pictures
from ludus.rl.env_config import AnyEnv, env_name, make_env
from ludus.rl.vector_env import VectorEnv
from ludus.run.seeds import derive, forked
from ludus.strict_config import StrictConfig


class Policy(Protocol):
    """What can be judged; one that has train() and eval() is judged in eval mode and put back."""

    def act_greedy(self, obs_ND: NDArray[Any], masks_NA: Any, /) -> NDArray[Any]:
        """Return the best action for each env, in the env's own units."""


@dataclass(frozen=True)
class Episode:
    """What came of one whole episode."""

    index: int
    total_return: float
    length: int
    success: float
    """1 or 0 where the env said whether it succeeded, else NaN."""


class Evaluator:
    """Plays episodes 0 to num_episodes - 1, each whole and counted once, on a few envs at a time.

    Episode i begins with a seed of its own that no training episode has. The envs are made anew for
    every evaluation, so that the first and the hundredth, before and after a resume, are alike.
    """

    def __init__(
        self,
        section: StrictConfig,
        *,
        num_episodes: int,
        seed: int,
        num_envs: int,
        is_interrupted: Callable[[], bool] = lambda: False,
    ) -> None:
        self.section = section
        self.num_episodes = num_episodes
        self.seed = seed
        self.num_envs = min(num_envs, num_episodes)
        self.is_interrupted = is_interrupted
        """Asked between steps: a run that is to pause must not wait for the last episode."""

    def evaluate(self, policy: Policy) -> tuple[float, dict[str, float]]:
        """Return the mean return and the record; Interrupted if the run is asked to pause."""
        with self._apart(policy), contextlib.ExitStack() as stack:
            slots = [self._slot(stack, make_env(self.section)) for _ in range(self.num_envs)]
            episodes = list(self._play(policy, slots, range(self.num_episodes)))
        record = summary(episodes)
        return record["eval/return_mean"], record

    def film(
        self, policy: Policy, index: int, fps: float, *, max_frames: int = 2000
    ) -> list[NDArray[np.uint8]]:
        """Return pictures (height, width, 3) of one episode, about `fps` for each second of the env."""
        with self._apart(policy), contextlib.ExitStack() as stack:
            camera = Camera(make_env(with_pictures(self.section)), fps=fps, max_frames=max_frames)
            slot = self._slot(stack, camera)
            camera.start()
            list(self._play(policy, [slot], [index]))
        return camera.frames

    @contextlib.contextmanager
    def _apart(self, policy: Policy) -> Iterator[None]:
        """Let nothing that is done inside show in the policy's mode or the global generators."""
        with forked(derive(self.seed, "eval")), evaluating(policy):
            yield

    def _slot(self, stack: contextlib.ExitStack, env: AnyEnv) -> VectorEnv:
        """Return the env as a vector of one, which knows how to begin an episode by its number."""
        stack.callback(env.close)
        return VectorEnv([env], seed=self.seed, name="eval", title=env_name(self.section))

    def _play(
        self, policy: Policy, slots: Sequence[VectorEnv], indices: Sequence[int]
    ) -> Iterator[Episode]:
        """Yield each of these episodes when it ends; a free env takes the next that has not begun."""
        waiting = iter(indices)
        current: list[int | None] = [None] * len(slots)
        returns, lengths = [0.0] * len(slots), [0] * len(slots)
        spec = slots[0].spec
        # A policy always sees as many rows, used or not: its last bits may depend on their number.
        obs_ND = np.zeros((self.num_envs, *spec.obs_shape), spec.obs_dtype)
        masks_NA = None
        if slots[0].masks is not None:
            masks_NA = np.ones((self.num_envs, slots[0].masks.shape[1]), bool)

        def begin(n: int) -> None:
            current[n], returns[n], lengths[n] = next(waiting, None), 0.0, 0
            if (index := current[n]) is not None:
                slots[n].reset(index)

        for n in range(len(slots)):
            begin(n)
        while any(index is not None for index in current):
            if self.is_interrupted():
                raise Interrupted
            for n, slot in enumerate(slots):
                obs_ND[n] = slot.obs[0]
                if masks_NA is not None and slot.masks is not None:
                    masks_NA[n] = slot.masks[0]
            actions = np.asarray(policy.act_greedy(obs_ND, masks_NA))
            for n, (slot, index) in enumerate(zip(slots, current, strict=True)):
                if index is None:
                    continue
                slot.step(actions[n : n + 1])
                returns[n] += float(slot.rewards[0])
                lengths[n] += 1
                if slot.has_ended:
                    yield Episode(index, returns[n], lengths[n], float(slot.successes[0]))
                    begin(n)


@contextlib.contextmanager
def evaluating(policy: Any) -> Iterator[None]:
    """Put a policy that has modes into eval mode for a while."""
    if not (hasattr(policy, "eval") and hasattr(policy, "train")):
        yield
        return
    was_training = getattr(policy, "is_training", getattr(policy, "training", True))
    policy.eval()
    try:
        yield
    finally:
        policy.train(was_training)


def summary(episodes: Sequence[Episode]) -> dict[str, float]:
    """Return the record of these episodes, whatever the order they ended in."""
    in_order = sorted(episodes, key=lambda episode: episode.index)
    returns = np.array([episode.total_return for episode in in_order])
    told = [episode.success for episode in in_order if not math.isnan(episode.success)]
    record = {
        "eval/return_mean": float(returns.mean()),
        "eval/return_std": float(returns.std()),
        "eval/return_min": float(returns.min()),
        "eval/return_max": float(returns.max()),
        "eval/length_mean": float(np.mean([episode.length for episode in in_order])),
    }
    if told:
        record["eval/success_rate"] = float(np.mean(told))
    return record
