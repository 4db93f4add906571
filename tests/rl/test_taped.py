"""An update that is taped once and replayed learns the same as the eager one, to the bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import ludus
from ludus.nn.engines.tape import Taped
from ludus.store.checkpoint import digest_of
from tests.rl.known_problems import learning, problem
from tests.rl.odd_networks import engine_of
from tests.rl.small import NORMALISE, small
from tests.rl.test_compiled import CASES

SGD = {
    "kind": "sgd",
    "learning_rate": 0.05,
    "momentum": 0.9,
    "nesterov": True,
    "weight_decay": 0.01,
}
MORE: dict[str, tuple[str, dict[str, Any]]] = {
    "dqn in bfloat16": ("dqn", {"precision": "bfloat16"}),
    "dqn by sgd": ("dqn", {"optimizer": SGD, "max_grad_norm": 0.1}),
    "sac with a fixed temperature": ("sac", {"temperature.learned": False}),
    "ppo in bfloat16": ("ppo", {"precision": "bfloat16", "normalise": NORMALISE}),
}


def fitted(config: Any, root: Path, name: str) -> tuple[Any, str, bytes]:
    trainer: Any = ludus.build_trainer(config)
    trainer.fit(root=str(root), name=name)
    state = digest_of(dict(trainer.agent.state_dict()))
    return trainer, state, (root / name / "metrics.jsonl").read_bytes()


def compared(config: Any, root: Path) -> Any:
    """Fit by a tape and eagerly, and return the agent that was taped."""
    trainer, *taped = fitted(config, root, "taped")
    other, *plain = fitted(config.replace(engine="eager"), root, "plain")
    assert not isinstance(engine_of(other.agent), Taped)
    assert taped == plain
    return trainer.agent


@pytest.mark.parametrize(
    ("kind", "changes"), [*CASES.values(), *MORE.values()], ids=[*CASES, *MORE]
)
def test_a_taped_run_is_an_eager_one_to_the_bit(
    tmp_path: Path, kind: str, changes: dict[str, Any]
) -> None:
    """Weights, targets, moments, metrics, while learning rate, beta and exploration all move."""
    length = {"max_env_steps": 144} if kind == "ppo" else {"steps.max_opt_steps": 40}
    agent = compared(small(kind, engine="tape", **{**length, **changes}), tmp_path)
    assert isinstance(engine_of(agent), Taped)
    assert engine_of(agent).is_possible
    assert len(engine_of(agent)._tapes) >= 1


@pytest.mark.parametrize(("kind", "env"), [("dqn", "tests_choice"), ("ppo", "tests_pair")])
def test_a_taped_run_with_masks_is_an_eager_one_to_the_bit(
    tmp_path: Path, kind: str, env: str
) -> None:
    length = {"max_env_steps": 256} if kind == "ppo" else {"steps.max_opt_steps": 24}
    config = learning(kind, problem(env, 2, has_masks=True), **length, engine="tape")
    agent = compared(config, tmp_path)
    assert engine_of(agent).is_possible


def test_a_taped_run_on_images_is_an_eager_one_to_the_bit(tmp_path: Path) -> None:
    network = {
        "kind": "cnn", "channels": [2], "kernels": [3], "strides": [2], "width": 4,
        "activation": "relu", "init": "orthogonal", "channels_last": True, "scale": 255.0,
    }  # fmt: skip
    config = small("ppo", engine="tape").replace(env=problem("tests_images"), network=network)
    agent = compared(config, tmp_path)
    assert engine_of(agent).is_possible


def test_a_run_that_no_longer_moves_its_weights_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the comparison above would say of a tape that replays less than everything."""
    config = small("dqn", engine="tape", **{"steps.max_opt_steps": 12})
    play = Taped.__call__

    def lose_one(self: Taped, *inputs: Any) -> Any:
        result = play(self, *inputs)
        for tape in self._tapes.values():
            del tape._calls[-3:]
        return result

    _, *whole = fitted(config, tmp_path, "whole")
    monkeypatch.setattr(Taped, "__call__", lose_one)
    _, *less = fitted(config, tmp_path, "less")
    assert whole[0] != less[0]
    assert whole[1] != less[1]
