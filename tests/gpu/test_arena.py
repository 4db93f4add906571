"""The arena on a GPU: neither rollouts nor updates wait for it, updates are a graph, resuming is exact."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("torchrl")

import ludus
from ludus.arena.playing.rollout import roll_out
from ludus.arena.rl_trainer import TensorDictRlTrainer
from ludus.nn.engines.graph import CapturedCode
from tests.arena.small import small_arena
from tests.rl.odd_networks import engine_of

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
    pytest.mark.filterwarnings("ignore:Synchronization debug mode:UserWarning"),
]
KINDS = ("vanilla_ppo", "reinforce")


@contextlib.contextmanager
def not_waiting() -> Iterator[None]:
    """Fail where the host waits for the GPU."""
    try:
        torch.cuda.set_sync_debug_mode("error")
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


def small(kind: str, device: str = "cuda", **changes: Any) -> Any:
    return ludus.example(kind).replace(
        **{
            "scenario.train_size": 64,
            "scenario.validation_size": 16,
            "scenario.test_size": 16,
            "rl.rollouts_per_iteration": 16,
            "rl.minibatch_size": 24,
            "rl.num_test_iterations": 1,
            "evaluation.episodes": 16,
            "evaluate_every_iterations": 2,
            "log_every_iterations": 1,
            "max_iterations": 4,
            "pretraining": None,
            "settings.device": device,
            "settings.display": "none",
            "settings.loggers": [],
            **changes,
        }
    )


class Watched:
    """Lets no update wait for the GPU once the graph is there."""

    def __init__(self, trainer: TensorDictRlTrainer) -> None:
        self.trainer = trainer
        self.num_watched = 0

    def after_estimate(self, run: ludus.Run) -> None:
        if run.counters["iteration"] < 3:
            return
        update, rate = self.trainer.update, 0.001
        rows = self.trainer.pending_rollouts.take("rows", releases=False)
        batch = {name: tensor[:24].clone() for name, tensor in rows.items()}
        columns = list(self.trainer._filled(batch).values())
        update.step(columns, learning_rate=rate)
        torch.cuda.synchronize()
        with not_waiting():
            update.step(columns, learning_rate=rate)
        self.num_watched += 1


@pytest.mark.parametrize("kind", KINDS)
def test_updates_are_a_graph_that_the_host_does_not_wait_for(kind: str, tmp_path: Path) -> None:
    trainer = ludus.build_trainer(small(kind))
    watched = Watched(trainer)
    trainer.add(watched)
    trainer.fit(root=str(tmp_path))
    assert trainer.config.engine == "graph"
    assert watched.num_watched == 1


def prepared(engine: str) -> tuple[TensorDictRlTrainer, list[torch.Tensor]]:
    """Return a trainer that is built but does not run, and a minibatch of its first episodes."""
    # Agents and steps that change little by rounding: graphs that are alike differ by rounding alone, which
    # an absolute value takes the sign of, and so do the first steps of Adam.
    sgd = {
        "kind": "sgd", "learning_rate": 0.01, "momentum": 0.0, "nesterov": False, "weight_decay": 0.0
    }  # fmt: skip
    changed = {"engine": engine, "optimizer": sgd, "settings.device": "cuda"}
    trainer = ludus.build_trainer(small_arena("vanilla_ppo", **changed))
    trainer.prepare(max_steps=None)
    rows = trainer._estimated(trainer._roll_out(0))
    batch = {name: tensor[:8].clone() for name, tensor in rows.items()}
    return trainer, list(trainer._filled(batch).values())


def test_a_compiled_update_is_captured_and_is_the_eager_one_within_rounding() -> None:
    found = {}
    for engine in ("eager", "compiled"):
        trainer, columns = prepared(engine)
        for index in range(8):
            if engine == "compiled" and index == 6:  # captured in the fourth call
                torch.cuda.synchronize()
                torch.cuda.set_sync_debug_mode("error")
            trainer.update.step(columns, learning_rate=0.01)
        torch.cuda.set_sync_debug_mode("default")
        found[engine] = trainer.weights(), trainer.update.metrics()
    captured = engine_of(trainer.update)
    assert isinstance(captured, CapturedCode)
    assert [len(one._graphs) for one in captured.graphed.values()] == [1]
    (eager, terms), (compiled, told) = found.values()
    assert told == pytest.approx(terms, rel=1e-3, abs=1e-5)
    for name, tensor in eager.items():
        torch.testing.assert_close(compiled[name], tensor, rtol=1e-3, atol=1e-5)


def test_a_rollout_never_waits_for_the_gpu(tmp_path: Path) -> None:
    trainer = ludus.build_trainer(small("vanilla_ppo"))

    class Playing:
        def before_train(self) -> None:
            environment, device = trainer.environment, torch.device("cuda")
            source = torch.Generator(device).manual_seed(3)
            for _ in range(2):  # the first makes what is made once
                moment = environment.begin(0)
                torch.cuda.synchronize()
                guard = not_waiting() if _ else contextlib.nullcontext()
                with guard:
                    rollouts = roll_out(
                        trainer.agents, environment, moment, lambda one: one.drawn(source),
                        num_steps=environment.num_steps,
                    )  # fmt: skip
            assert rollouts["mask"].device.type == "cuda"

    trainer.add(Playing())
    trainer.fit(root=str(tmp_path))


def test_a_run_that_was_stopped_and_resumed_ends_with_the_same_bytes(tmp_path: Path) -> None:
    whole = ludus.build_trainer(small("vanilla_ppo"))
    whole.fit(root=str(tmp_path), name="whole")
    first = ludus.build_trainer(small("vanilla_ppo", max_iterations=2))
    first.fit(root=str(tmp_path), name="parts")
    rest = ludus.build_trainer(small("vanilla_ppo"))
    rest.fit(root=str(tmp_path), name="parts", resume=True)
    for name, tensor in whole.weights().items():
        assert torch.equal(tensor, rest.weights()[name]), name
