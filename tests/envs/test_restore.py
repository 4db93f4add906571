"""Envs brought back to where they were saved, in the middle of an episode or at its beginning."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

import ludus
from ludus.core.errors import CheckpointError
from ludus.envs.restore import check_repeats
from ludus.envs.vector import VectorEnv, make_vector_env
from ludus.store import codec
from tests.rl.random_walks import OldHand, RandomWalk, WalkWithState, gym_config, walk_config
from tests.rl.small import small

pytestmark = pytest.mark.usefixtures("whole_trial")

STICKY = {"kind": "sticky_action", "probability": 0.5}
FRAMES = {"kind": "frame_stack", "num_frames": 3, "padding": "reset"}
TWICE = {"kind": "action_repeat", "num_repeats": 2}


def through_disk(state: Any) -> Any:
    tree, tensors, segments = codec.encode(state, keep=lambda path, tensor: tensor.clone())
    return codec.decode(codec.parse_json(codec.dump_json(tree), source="x"), tensors, segments)


def play(vector: VectorEnv, num_steps: int, seed: int) -> list[bytes]:
    """Act at random; return all that was seen."""
    random, seen = np.random.default_rng(seed), []
    action = vector.spec.action
    for _ in range(num_steps):
        if hasattr(action, "n"):
            actions = random.integers(action.n, size=vector.num_envs) + action.start
        else:
            shape = (vector.num_envs, action.low.size)
            actions = random.uniform(action.low, action.high, size=shape).astype(np.float32)
        vector.step(actions)
        arrays = [vector.obs, vector.next_obs, vector.rewards, vector.terminated, vector.truncated]
        seen.append(b"".join(array.tobytes() for array in arrays))
    return seen


SECTIONS = {
    "cart_pole": gym_config("CartPole-v1"),
    "pendulum": gym_config("Pendulum-v1", max_episode_steps=30),
    "frozen_lake": gym_config("FrozenLake-v1"),
    "masks": gym_config("Taxi-v4", max_episode_steps=30),
    "random_walk": walk_config(),
    "wrapped": walk_config(wrappers=[STICKY, TWICE, FRAMES]),
    "time_limit": walk_config(wrappers=[{"kind": "time_limit", "max_episode_steps": 11}]),
}


@pytest.mark.parametrize("section", SECTIONS.values(), ids=SECTIONS.keys())
@pytest.mark.parametrize("num_steps", [0, 1, 13, 77])
def test_a_restored_vector_of_envs_goes_on_as_if_never_stopped(section, num_steps: int) -> None:
    first = make_vector_env(section, 3, seed=0)
    first.reset()
    play(first, num_steps, seed=1)
    state = through_disk(first.state_dict())
    expected = play(first, 60, seed=2)
    second = make_vector_env(section, 3, seed=0)
    second.load_state_dict(state)
    assert second.obs.tobytes() == state["obs"].tobytes()
    assert play(second, 60, seed=2) == expected
    assert second.inexact_because() == []
    assert not second.cut.any()


def test_an_env_saved_just_after_a_reset_is_restored_there() -> None:
    first = make_vector_env(walk_config(length=4), 2, seed=3)
    first.reset()
    play(first, 4, seed=1)
    assert first.has_ended
    state = through_disk(first.state_dict())
    assert state["journal"]["lengths"].tolist() == [0, 0]
    second = make_vector_env(walk_config(length=4), 2, seed=3)
    second.load_state_dict(state)
    assert not second.has_ended
    assert play(second, 9, seed=2) == play(first, 9, seed=2)


def test_a_vector_saved_before_its_first_reset_is_fresh_again() -> None:
    state = through_disk(make_vector_env(walk_config(), 2, seed=0).state_dict())
    vector = make_vector_env(walk_config(), 2, seed=0)
    vector.load_state_dict(state)
    vector.reset()
    fresh = make_vector_env(walk_config(), 2, seed=0)
    fresh.reset()
    assert np.array_equal(vector.obs, fresh.obs)


def test_a_vector_in_use_can_be_taken_back() -> None:
    vector = make_vector_env(gym_config("CartPole-v1"), 2, seed=0)
    vector.reset()
    play(vector, 15, seed=1)
    state = copy.deepcopy(vector.state_dict())
    expected = play(vector, 50, seed=2)
    vector.load_state_dict(state)
    assert play(vector, 50, seed=2) == expected


def test_leaving_out_the_actions_leads_elsewhere() -> None:
    # The negative control: the comparison sees what is missing, and says so.
    first = make_vector_env(walk_config(), 2, seed=0)
    first.reset()
    play(first, 7, seed=1)
    state = first.state_dict()
    lost = {"lengths": np.zeros(2, np.int64), "actions": state["journal"]["actions"][:0]}
    second = make_vector_env(walk_config(), 2, seed=0)
    second.load_state_dict(state | {"journal": lost})
    assert second.cut.all()
    assert "2 of 2 envs could not be restored" in second.inexact_because()[0]
    assert play(second, 7, seed=2) != play(first, 7, seed=2)


def test_an_env_that_does_not_repeat_begins_its_next_episode_and_says_so() -> None:
    first = make_vector_env(walk_config("cheat"), 2, seed=0)
    first.reset()
    play(first, 27, seed=1)
    second = make_vector_env(walk_config("cheat"), 2, seed=0)
    second.load_state_dict(through_disk(first.state_dict()))
    assert second.cut.tolist() == [True, True]
    reasons = second.inexact_because()
    assert len(reasons) == 1
    assert reasons[0].startswith("cheat: 2 of 2 envs could not be restored")
    assert "env 0, episode 1: playing its actions again led to another observation" in reasons[0]
    begun = make_vector_env(walk_config("cheat"), 2, seed=0)
    begun.reset(2)
    assert np.array_equal(second.obs, begun.obs)
    # What was lost stays known in later checkpoints.
    third = make_vector_env(walk_config("cheat"), 2, seed=0)
    second.cut[:] = False
    third.load_state_dict(through_disk(second.state_dict()))
    assert third.inexact_because() == reasons
    assert not third.cut.any()


class EndsEarly(RandomWalk):
    """Ends at once when played a second time in this process."""

    num_resets = 0

    def reset(self, **kwargs):
        type(self).num_resets += 1
        return super().reset(**kwargs)

    def step(self, action):
        obs, reward, terminated, truncated, info = super().step(action)
        return obs, reward, terminated or self.num_resets > 3, truncated, info


class RaisesLater(EndsEarly):
    def step(self, action):
        if self.num_resets > 3:
            raise OSError("the simulator is gone")
        return super().step(action)


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        (EndsEarly, "it ended at step 1 of 5"),
        (RaisesLater, "OSError: the simulator is gone"),
    ],
)
def test_a_replay_that_fails_is_told_with_its_reason(kind, why: str) -> None:
    kind.num_resets = 0
    first = VectorEnv([kind(walk_config())], seed=0, name="env", title="x")
    first.reset()
    play(first, 5, seed=1)
    second = VectorEnv([kind(walk_config())], seed=0, name="env", title="x")
    second.load_state_dict(first.state_dict())
    assert why in second.inexact_because()[0]
    assert second.cut.tolist() == [True]


# Envs with a state of their own


@pytest.mark.parametrize(
    "wrappers",
    [
        [],
        [{"kind": "time_limit", "max_episode_steps": 9}],
        [{"kind": "scale_reward", "scale": 2.0}],
        [{"kind": "clip_reward", "low": -1.0, "high": 1.0}],
    ],
)
def test_an_env_that_hands_out_its_state_is_restored_by_it(wrappers) -> None:
    section = walk_config("walk_with_state", wrappers=wrappers)
    first = make_vector_env(section, 1, seed=0)
    first.reset()
    play(first, 26, seed=1)
    state = through_disk(first.state_dict())
    assert state["journal"]["actions"] is None
    expected = play(first, 40, seed=2)
    second = make_vector_env(section, 1, seed=0)
    second.load_state_dict(state)
    assert play(second, 40, seed=2) == expected
    assert second.inexact_because() == []


def test_a_state_is_not_the_whole_where_a_wrapper_remembers_something() -> None:
    section = walk_config("walk_with_state", wrappers=[FRAMES])
    vector = make_vector_env(section, 1, seed=0)
    assert vector.state_dict()["states"] == []
    assert vector.state_dict()["journal"]["actions"] is not None


def test_a_state_that_cannot_be_given_back_is_told(monkeypatch) -> None:
    section = walk_config("walk_with_state")
    vector = make_vector_env(section, 1, seed=0)
    vector.reset()
    play(vector, 3, seed=1)
    state = vector.state_dict()
    del state["states"][0]["env"]["place"]
    vector.load_state_dict(state)
    assert "its set_state failed: KeyError: 'place'" in vector.inexact_because()[0]


# Asking beforehand


def test_whether_an_env_repeats_can_be_asked_beforehand() -> None:
    for section in SECTIONS.values():
        assert check_repeats(section, seed=0) is None
    found = check_repeats(walk_config("cheat"), seed=0)
    played = "one of which had played before"
    since = "1 equal steps after a reset with the same seed"
    assert found == f"two envs cheat, {played}, differ {since}"
    # Its state brings back what its actions cannot.
    assert check_repeats(walk_config("walk_with_state"), seed=0) is None


@pytest.mark.parametrize("kept", ["generator", "episodes", "bonus at the end", "truncation"])
def test_an_env_that_keeps_something_over_its_whole_life_is_found_beforehand(
    kept: str, monkeypatch
) -> None:
    monkeypatch.setattr(OldHand, "keeps", kept)
    found = check_repeats(walk_config("old_hand"), seed=0)
    assert found is not None
    assert found.startswith("two envs old_hand, one of which had played before, differ ")


class Interrupt:
    """Ends the process, as far as the run can tell, at one env step."""

    def __init__(self, at: int) -> None:
        self.at = at

    def after_train_step(self, run: Any) -> None:
        run.interrupted = run.counters["env_steps"] >= self.at


def test_an_env_that_changes_too_late_for_the_trial_is_found_by_the_resume(
    tmp_path: Path, monkeypatch
) -> None:
    """It changes in its third episode; the trial ends before, and the run is killed in it."""
    monkeypatch.setattr(OldHand, "keeps", "age")
    section = walk_config("old_hand", length=300)
    assert check_repeats(section, seed=0) is None
    changes = {"num_envs": 1, "steps.update_every_env_steps": 40, "steps.max_opt_steps": 20}
    config = small("dqn", **changes).replace(env=section)
    trainer: Any = ludus.build_trainer(config)
    trainer.add(Interrupt(at=660), name="interrupt")
    result = trainer.fit(root=str(tmp_path), name="run")
    assert result.exact
    again: Any = ludus.build_trainer(config)
    again.add(Interrupt(at=10**6), name="interrupt")
    result = again.fit(root=str(tmp_path), name="run", resume=True)
    assert not result.exact
    assert "env 0, episode 2: playing its actions again" in result.inexact_because[0]


def test_an_env_that_keeps_nothing_of_use_is_not_suspected(monkeypatch) -> None:
    monkeypatch.setattr(OldHand, "keeps", "a count that it never looks at")
    assert check_repeats(walk_config("old_hand"), seed=0) is None


@pytest.mark.parametrize("what", ["observation", "reward"])
def test_an_episode_that_was_another_on_the_way_is_not_taken_for_the_same(
    what: str, monkeypatch
) -> None:
    first = make_vector_env(walk_config(), 2, seed=0)
    first.reset()
    play(first, 13, seed=1)
    state = through_disk(first.state_dict())
    step = RandomWalk.step

    def differ_once(env: RandomWalk, action: Any) -> Any:
        obs, reward, *rest = step(env, action)
        if env.num_steps == 5:
            obs, reward = (obs + 1, reward) if what == "observation" else (obs, reward + 1e-9)
        return obs, reward, *rest

    monkeypatch.setattr(RandomWalk, "step", differ_once)
    second = make_vector_env(walk_config(), 2, seed=0)
    second.load_state_dict(state)
    assert second.cut.all()
    assert "showed other observations or rewards on the way" in second.inexact_because()[0]


def test_a_state_without_marks_is_compared_where_it_ends_and_has_marks_from_then_on() -> None:
    first = make_vector_env(walk_config(), 2, seed=0)
    first.reset()
    play(first, 13, seed=1)
    state = first.state_dict()
    marks = state["journal"].pop("marks")
    second = make_vector_env(walk_config(), 2, seed=0)
    second.load_state_dict(state)
    assert second.inexact_because() == []
    assert second.state_dict()["journal"]["marks"].tolist() == marks.tolist()


def test_an_env_that_repeats_itself_but_for_a_nan_is_not_said_to_differ(monkeypatch) -> None:
    """What is wrong with it is told by the run, with the step at which it was seen."""
    step = RandomWalk.step

    def lose(env: RandomWalk, action: Any) -> Any:
        obs, _, *rest = step(env, action)
        return obs, float("nan"), *rest

    monkeypatch.setattr(RandomWalk, "step", lose)
    assert check_repeats(walk_config(), seed=0) is None


def test_a_state_that_is_not_the_whole_is_found_beforehand(monkeypatch) -> None:
    whole = WalkWithState.set_state
    monkeypatch.setattr(
        WalkWithState, "set_state", lambda env, state: whole(env, state | {"place": np.zeros(3)})
    )
    found = check_repeats(walk_config("walk_with_state"), seed=0)
    assert (
        found
        == "two envs walk_with_state, one of which had played before, differ 1 equal steps after set_state"
    )


class OtherMethods(RandomWalk):
    """Has methods of these names that mean something else."""

    def get_state(self):
        return object()

    def set_state(self, place, speed):
        raise NotImplementedError


def test_methods_that_only_share_the_names_are_not_used() -> None:
    first = VectorEnv([OtherMethods(walk_config())], seed=0, name="env", title="x")
    first.reset()
    play(first, 5, seed=1)
    second = VectorEnv([OtherMethods(walk_config())], seed=0, name="env", title="x")
    second.load_state_dict(through_disk(first.state_dict()))
    assert play(second, 20, seed=2) == play(first, 20, seed=2)
    assert second.inexact_because() == []


def test_another_number_of_envs_is_refused() -> None:
    state = make_vector_env(walk_config(), 2, seed=0).state_dict()
    with pytest.raises(CheckpointError, match="2 envs were saved, there are 3"):
        make_vector_env(walk_config(), 3, seed=0).load_state_dict(state)


class Boxed(RandomWalk):
    """Takes a matrix, and spoils the array it is given."""

    action_space = spaces.Box(-1, 1, (2, 2), np.float64)

    def step(self, action):
        result = super().step(float(action.sum()))
        action[:] = np.nan
        return result


def test_an_env_that_changes_its_action_is_restored_all_the_same() -> None:
    first = VectorEnv([Boxed(walk_config())], seed=0, name="env", title="x")
    first.reset()
    play(first, 13, seed=1)
    second = VectorEnv([Boxed(walk_config())], seed=0, name="env", title="x")
    second.load_state_dict(through_disk(first.state_dict()))
    assert play(second, 20, seed=2) == play(first, 20, seed=2)
    assert second.inexact_because() == []
