"""Step processors: what reaches the buffer is what a slow, obvious reading of each episode gives."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from ludus.core.errors import CheckpointError, ConfigError
from ludus.data.replay.ring import ReplayBuffer
from ludus.data.replay.row_layout import RowLayout
from ludus.rl.sampling.step_processor import NStep, OneStep
from ludus.store.checkpoint import digest_of

GAMMA = 0.9


class ScriptedEnv:
    """A vector of envs whose episodes end at random, with observations that tell where they were made."""

    def __init__(
        self, num_envs: int, seed: int, *, end: float = 0.2, has_masks: bool = False
    ) -> None:
        self._random = np.random.default_rng(seed)
        self._end = end
        self._has_masks = has_masks
        self._names = np.arange(num_envs) * 1000.0
        self.obs = self._named(self._names)
        self.next_obs = self.obs.copy()
        self.has_ended = False
        self.next_masks = None
        self.step()
        self.obs = self._named(self._names)

    def _named(self, names: np.ndarray) -> np.ndarray:
        return np.stack([names, -names], axis=1).astype(np.float32)

    def step(self) -> None:
        """Go on by one; an env that ends begins its next episode at once."""
        count = len(self._names)
        self.rewards = self._random.normal(size=count)
        kind = self._random.uniform(size=count)
        self.terminated = kind < self._end / 2
        # Some are both at once: terminated counts.
        self.truncated = (kind > self._end / 3) & (kind < self._end)
        self.has_ended = bool((self.terminated | self.truncated).any())
        self._names = self._names + 1
        self.next_obs[:] = self._named(self._names)
        if self._has_masks:
            self.next_masks = self._random.uniform(size=(count, 3)) < 0.5
        ended = self.terminated | self.truncated
        self._names = np.where(ended, self._names + 1, self._names)
        self.obs[:] = self._named(self._names)


def layout(env: ScriptedEnv) -> RowLayout:
    return RowLayout((2,), np.float32, 1, 3 if env._has_masks else 0)


def actions(number: int, num_envs: int) -> np.ndarray:
    return np.arange(num_envs)[:, None] + 10.0 * number


def drive(processor: Any, env: ScriptedEnv, num_steps: int) -> np.ndarray:
    """Return the rows that reach the buffer over some steps."""
    buffer = ReplayBuffer(layout(env), 10_000, seed=0)
    processor.begin(env.obs)
    for number in range(num_steps):
        env.step()
        processor.process(actions(number, len(env.rewards)), env, buffer)
    return buffer._rows[: buffer.size].numpy()


def obvious(env: ScriptedEnv, num_steps: int, n: int) -> Iterator[list[float]]:
    """Yield the transitions of every env, episode by episode, read off complete records."""
    records: list[list[Any]] = [[] for _ in env.rewards]
    before = env.obs.copy()
    for number in range(num_steps):
        env.step()
        for index, record in enumerate(records):
            masks = [] if env.next_masks is None else env.next_masks[index].tolist()
            end = "terminated" if env.terminated[index] else None
            end = end or ("truncated" if env.truncated[index] else None)
            action = actions(number, len(records))[index]
            after = env.next_obs[index].tolist()
            record.append((before[index].tolist(), action, env.rewards[index], after, masks, end))
        before = env.obs.copy()
    for record in records:
        for first in range(len(record)):
            total, steps = 0.0, 0
            for obs_action_reward in record[first : first + n]:
                total += GAMMA**steps * obs_action_reward[2]
                steps += 1
                if obs_action_reward[5]:
                    break
            last = record[first + steps - 1]
            if steps < n and not last[5]:
                continue
            discount = 0.0 if last[5] == "terminated" else GAMMA**steps
            obs, action = record[first][:2]
            yield [*obs, *action, total, discount, *last[3], *last[4]]


def ordered(rows: Any) -> np.ndarray:
    """Return rows in the order of what they begin with, which no two have in common."""
    rows = np.asarray(rows, dtype=np.float32)
    return rows[np.lexsort((rows[:, 2], rows[:, 0]))]


@pytest.mark.covers("004-S4")
@pytest.mark.parametrize("has_masks", [False, True])
@pytest.mark.parametrize("num_envs", [1, 2, 5])
@pytest.mark.parametrize("n", [1, 2, 3, 4, 5])
def test_n_step_returns_are_those_of_the_obvious_version(
    n: int, num_envs: int, has_masks: bool
) -> None:
    for seed, end in enumerate([0.0, 0.1, 0.3, 0.9]):
        envs = [ScriptedEnv(num_envs, seed, end=end, has_masks=has_masks) for _ in range(2)]
        found = drive(NStep(num_envs, layout(envs[0]), GAMMA, n), envs[0], 60)
        expected = list(obvious(envs[1], 60, n))
        assert len(expected) > 20
        np.testing.assert_allclose(ordered(found), ordered(expected), rtol=1e-6)


def test_one_step_is_n_step_of_one() -> None:
    for num_envs in (1, 4):
        envs = [ScriptedEnv(num_envs, 1, has_masks=True) for _ in range(2)]
        one = drive(OneStep(num_envs, layout(envs[0]), GAMMA), envs[0], 80)
        many = drive(NStep(num_envs, layout(envs[1]), GAMMA, 1), envs[1], 80)
        assert len(one) == 80 * num_envs
        np.testing.assert_array_equal(ordered(one), ordered(many))


@pytest.mark.covers("004-M6")
def test_the_observation_acted_on_is_kept_inside() -> None:
    # The env overwrites its arrays at every step.
    env = ScriptedEnv(1, 0, end=0.0)
    rows = drive(OneStep(1, layout(env), GAMMA), env, 3)
    start = rows[0, 0]
    assert rows[:, 0].tolist() == [start, start + 1, start + 2]
    assert rows[:, 5].tolist() == [start + 1, start + 2, start + 3]
    assert rows[:, 2].tolist() == [0.0, 10.0, 20.0]


@pytest.mark.covers("004-D11")
def test_truncation_keeps_the_discount_and_termination_does_not() -> None:
    env = ScriptedEnv(3, 0, end=0.0)
    buffer = ReplayBuffer(layout(env), 10, seed=0)
    processor = OneStep(3, layout(env), GAMMA)
    processor.begin(env.obs)
    env.terminated = np.array([True, False, True])
    env.truncated = np.array([False, True, True])
    env.has_ended = True
    processor.process(actions(0, 3), env, buffer)
    assert buffer._rows[:3, 4].tolist() == [0.0, pytest.approx(GAMMA), 0.0]


@pytest.mark.parametrize("n", [1, 3])
def test_a_cut_episode_leaves_nothing_behind(n: int) -> None:
    env = ScriptedEnv(2, 0, end=0.0)
    buffer = ReplayBuffer(layout(env), 100, seed=0)
    processor: Any = OneStep(2, layout(env), GAMMA) if n == 1 else NStep(2, layout(env), GAMMA, n)
    processor.begin(env.obs)
    for number in range(12):
        if number == 6:
            # Env 1 is put at the beginning of another episode from outside.
            env._names[1] = 5000.0
            env.obs[1] = [5000.0, -5000.0]
            processor.forget(np.array([False, True]), env.obs)
        env.step()
        processor.process(actions(number, 2), env, buffer)
    rows = buffer._rows[: buffer.size].numpy()
    assert (rows[:, 5] - rows[:, 0] == n).all()
    per_env = [(rows[:, 0] < 1000).sum(), (rows[:, 0] > 1000).sum()]
    assert per_env == [13 - n, 2 * (7 - n)]


@pytest.mark.parametrize("n", [0, 1, 4])
def test_a_processor_taken_up_half_way_goes_on_as_before(n: int) -> None:
    def make() -> Any:
        return NStep(3, layout(env), GAMMA, n) if n else OneStep(3, layout(env), GAMMA)

    env = ScriptedEnv(3, 5)
    one = make()
    drive(one, env, 17)
    two = make()
    two.load_state_dict(one.state_dict())
    assert digest_of(two.state_dict()) == digest_of(one.state_dict())
    buffers = [ReplayBuffer(layout(env), 100, seed=0) for _ in range(2)]
    for number in range(20):
        env.step()
        for processor, buffer in zip((one, two), buffers, strict=True):
            processor.process(actions(number, 3), env, buffer)
    assert buffers[0].total > 40
    assert digest_of(buffers[0].state_dict()) == digest_of(buffers[1].state_dict())


def test_images_are_kept_as_bytes() -> None:
    layout = RowLayout((2, 2), np.uint8, 1)
    env = ScriptedEnv(1, 0, end=0.0)
    env.obs = np.full((1, 2, 2), 200, dtype=np.uint8)
    processor = NStep(1, layout, GAMMA, 2)
    buffer = ReplayBuffer(layout, 5, seed=0)
    processor.begin(env.obs)
    for number in range(3):
        env.next_obs = env.obs = env.obs + np.uint8(1)
        processor.process(actions(number, 1), env, buffer)
    assert buffer._images[:2].tolist() == [[200] * 4 + [202] * 4, [201] * 4 + [203] * 4]


def test_mistakes_are_told_plainly() -> None:
    env = ScriptedEnv(2, 0)
    with pytest.raises(ConfigError, match="n_step is 0"):
        NStep(2, layout(env), GAMMA, 0)
    with pytest.raises(CheckpointError, match=r"'obs' is float32 of \(1, 2\)"):
        OneStep(3, layout(env), GAMMA).load_state_dict(OneStep(1, layout(env), GAMMA).state_dict())
