"""Evaluate a policy on whole episodes, the same ones every time, with no effect on training.

Shapes: N envs, D numbers of an observation, A actions.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ludus.config.registry import find
from ludus.config.sections import StrictConfig
from ludus.core.errors import Interrupted, LudusError
from ludus.envs.camera import Camera, with_pictures
from ludus.envs.config import AnyEnv, env_name, make_env, with_own_rewards
from ludus.envs.vector import make_vector_env
from ludus.rl.agent import Agent
from ludus.rl.config import RLConfig
from ludus.rl.evaluation.env import EvaluationEnv
from ludus.seeds import derive, forked

CHOOSING, HELD_OUT = "eval", "held_out"
"""Seed streams of the episodes that select the best policy, and of the held-out episodes."""
_NO_LIMIT = 1_000_000
_METRICS = ("return_mean", "return_std", "return_min", "return_max", "length_mean")


class Acts(Protocol):
    """A policy that can be evaluated; one with train() and eval() is put into eval mode meanwhile.

    Evaluation with sampled actions needs `act_sampled(obs_ND, masks_NA, generator)` too.
    """

    def act_greedy(self, obs_ND: NDArray[Any], masks_NA: Any, /) -> NDArray[Any]:
        """Return the greedy action for each env, in the env's own units."""


@dataclass(frozen=True)
class Episode:
    """The outcome of one whole episode."""

    index: int
    total_return: float
    length: int
    success: float
    """1 or 0 if the env reported is_success, else NaN."""
    is_cut: bool = False
    """Whether it was truncated at the maximum length of an evaluation episode."""


@dataclass(frozen=True)
class EvaluationTask:
    """The specification of an evaluation: everything that decides its result except the policy."""

    section: StrictConfig
    """The env whose mean return is the score."""
    num_episodes: int
    seed: int
    num_envs: int
    more_sections: Mapping[str, StrictConfig] = field(default_factory=dict)
    """Further envs, by name: logged as eval/<name>/..., never part of the score."""
    actions: str = "greedy"
    max_episode_length: int = _NO_LIMIT
    stream: str = CHOOSING

    @classmethod
    def of(cls, config: RLConfig) -> EvaluationTask:
        """Return the evaluation task of a run of this config."""
        evaluation = config.evaluation
        return cls(
            section=with_own_rewards(config.env) if evaluation.env is None else evaluation.env,
            num_episodes=evaluation.episodes,
            seed=config.seed,
            num_envs=evaluation.envs,
            more_sections=evaluation.more_envs,
            actions=evaluation.actions,
            max_episode_length=evaluation.max_episode_length,
        )


class EpisodeEvaluator:
    """Plays episodes 0 to num_episodes - 1, each whole and counted once, on several envs at a time.

    Episode i has its own seed, which no training episode has. The envs are recreated for every
    evaluation, so that all evaluations are alike, before and after a resume.
    """

    def __init__(
        self, task: EvaluationTask, *, is_interrupted: Callable[[], bool] = lambda: False
    ) -> None:
        self.task = task
        self.num_envs = min(task.num_envs, task.num_episodes)
        self.is_interrupted = is_interrupted
        """Called between steps: a run that should pause must not wait for the last episode."""

    def evaluate(self, policy: Acts) -> tuple[float, dict[str, float]]:
        """Return the mean return and the metrics; raise Interrupted if the run should pause."""
        metrics = summary(self.play(policy, self.task.section))
        score = metrics["eval/return_mean"]
        for name, section in self.task.more_sections.items():
            metrics |= summary(self.play(policy, section), prefix=f"eval/{name}")
        return score, metrics

    def play(self, policy: Acts, section: StrictConfig) -> list[Episode]:
        """Return every episode of the task, played in envs of this section."""
        with self._apart(policy), contextlib.ExitStack() as stack:
            envs = [self._env(stack, make_env(section), section) for _ in range(self.num_envs)]
            return list(self._play(self._choosing(policy), envs, range(self.task.num_episodes)))

    def film(
        self, policy: Acts, index: int, fps: float, *, max_frames: int = 2000
    ) -> list[NDArray[np.uint8]]:
        """Return frames (height, width, 3) of one episode, about `fps` per second of env time."""
        section = self.task.section
        with self._apart(policy), contextlib.ExitStack() as stack:
            camera = Camera(make_env(with_pictures(section)), fps=fps, max_frames=max_frames)
            env = self._env(stack, camera, section)
            camera.start()
            list(self._play(self._choosing(policy), [env], [index]))
        return camera.frames

    @contextlib.contextmanager
    def _apart(self, policy: Acts) -> Iterator[None]:
        """Restore the policy's mode and the global generators after the block."""
        with forked(derive(self.task.seed, self.task.stream)), evaluating(policy):
            yield

    def _env(
        self, stack: contextlib.ExitStack, env: AnyEnv, section: StrictConfig
    ) -> EvaluationEnv:
        stack.callback(env.close)
        task = self.task
        return EvaluationEnv(env, seed=task.seed, stream=task.stream, title=env_name(section))

    def _choosing(self, policy: Acts) -> Callable[[NDArray[Any], Any], NDArray[Any]]:
        """Return the function that chooses actions, greedy or sampled."""
        if self.task.actions == "greedy":
            return policy.act_greedy
        if not hasattr(policy, "act_sampled"):
            raise LudusError(
                f"{type(policy).__name__} has no act_sampled(obs, masks, generator), which"
                " evaluation.actions: sampled needs; write it, or set evaluation.actions to greedy"
            )
        # The same random numbers at every evaluation, and none from training's generators.
        seed = derive(self.task.seed, f"{self.task.stream}/actions")
        generator = np.random.Generator(np.random.PCG64(seed))
        return lambda obs_ND, masks_NA: policy.act_sampled(obs_ND, masks_NA, generator)

    def _play(
        self,
        choose: Callable[[NDArray[Any], Any], NDArray[Any]],
        envs: Sequence[EvaluationEnv],
        indices: Sequence[int],
    ) -> Iterator[Episode]:
        """Yield each of these episodes as it ends; a free env takes the next one not yet started."""
        waiting = iter(indices)
        current: list[int | None] = [None] * len(envs)

        def begin(n: int) -> None:
            current[n] = next(waiting, None)
            if (index := current[n]) is not None:
                envs[n].begin(index)

        for n in range(len(envs)):
            begin(n)
        # The batch always has the same number of rows, used or not: the last bits may depend on it.
        spec = envs[0].spec
        obs_ND = np.zeros((self.num_envs, *spec.obs_shape), spec.obs_dtype)
        masks_NA = None
        if envs[0].mask is not None:
            masks_NA = np.ones((self.num_envs, len(envs[0].mask)), bool)
        limit = self.task.max_episode_length
        while any(index is not None for index in current):
            if self.is_interrupted():
                raise Interrupted
            for n, env in enumerate(envs):
                if current[n] is not None:
                    obs_ND[n] = env.obs
                    if masks_NA is not None:
                        masks_NA[n] = env.mask
            actions = np.asarray(choose(obs_ND, masks_NA))
            for n, (env, index) in enumerate(zip(envs, current, strict=True)):
                if index is None:
                    continue
                is_end = env.step(actions[n : n + 1])
                if is_end or env.length >= limit:
                    yield Episode(index, env.total_return, env.length, env.success, not is_end)
                    begin(n)


@contextlib.contextmanager
def evaluating(policy: object) -> Iterator[None]:
    """Put a policy that has modes into eval mode inside the block."""
    if not (hasattr(policy, "eval") and hasattr(policy, "train")):
        yield
        return
    was_training = getattr(policy, "is_training", getattr(policy, "training", True))
    policy.eval()
    try:
        yield
    finally:
        policy.train(was_training)


class EpisodeJob:
    """The episodes that the config describes, played by an agent rebuilt from the same config."""

    metrics: ClassVar[tuple[str, ...]] = tuple(f"eval/{name}" for name in _METRICS)

    def __init__(self, config: RLConfig) -> None:
        self._config = config
        self._task = EvaluationTask.of(config)

    def rebuild(self) -> Agent:
        """Return an untrained agent; make every env once, to check that it can be made."""
        for section in (self._task.section, *self._task.more_sections.values()):
            make_env(section).close()
        return rebuild_agent(self._config)

    def evaluate(
        self, weights: Mapping[str, Tensor], *, is_interrupted: Callable[[], bool]
    ) -> dict[str, float]:
        """Return the metrics of these weights; the result is the same in every process."""
        evaluator = EpisodeEvaluator(self._task, is_interrupted=is_interrupted)
        # Making an agent may use random numbers too.
        with forked(derive(self._task.seed, "eval")):
            agent = rebuild_agent(self._config)
            agent.load_weights(weights)
            return evaluator.evaluate(agent)[1]


def rebuild_agent(config: RLConfig) -> Agent:
    """Return an agent for acting, on the CPU, from its trainer's config."""
    env = make_vector_env(config.env, 1, config.seed)
    try:
        agent: Agent = find("trainer", config.kind).Agent(config, env.spec, torch.device("cpu"))
        return agent
    finally:
        env.close()


def summary(episodes: Sequence[Episode], *, prefix: str = "eval") -> dict[str, float]:
    """Return the metrics of these episodes, independent of the order in which they ended."""
    in_order = sorted(episodes, key=lambda episode: episode.index)
    returns = np.array([episode.total_return for episode in in_order])
    successes = [episode.success for episode in in_order if not math.isnan(episode.success)]
    metrics = {
        f"{prefix}/return_mean": float(returns.mean()),
        f"{prefix}/return_std": float(returns.std()),
        f"{prefix}/return_min": float(returns.min()),
        f"{prefix}/return_max": float(returns.max()),
        f"{prefix}/length_mean": float(np.mean([episode.length for episode in in_order])),
    }
    if successes:
        metrics[f"{prefix}/success_rate"] = float(np.mean(successes))
    if num_cut := sum(episode.is_cut for episode in in_order):
        metrics[f"{prefix}/cut_episodes"] = float(num_cut)
    return metrics


def standard_error(episodes: Sequence[Episode]) -> float:
    """Return the standard error of the mean return; NaN for a single episode."""
    returns = np.array([episode.total_return for episode in episodes])
    if len(returns) < 2:
        return math.nan
    return float(returns.std(ddof=1) / math.sqrt(len(returns)))
