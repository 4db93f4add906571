"""What follows the weights of another run follows them: means, targets, first weights, sampling."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

import ludus
from ludus.core.runtime import InMemoryRuntime
from tests.keys.runs import tiny
from tests.start.sources import (
    First,
    Source,
    named_weights,
    run_in_memory,
    section,
    small_run,
    trained_names,
)


def test_the_mean_of_frozen_weights_is_those_of_the_other_run(source: Source) -> None:
    start = section("supervised", source("supervised"), frozen=["layers.0"])
    trainer, first, _ = run_in_memory(small_run("supervised", start=start, ema_decay=0.9))
    assert torch.equal(trainer.weights()["layers.0.weight"], first["layers.0.weight"])


def test_the_target_network_begins_as_a_copy(source: Source) -> None:
    trainer: Any = ludus.build_trainer(small_run("dqn", start=section("dqn", source("dqn"))))
    seen: dict[str, bool] = {}

    class Compares:
        def before_train(self) -> None:
            learned = trainer.agent.learned()
            own, target = learned["q"].weights(), learned["target"].state_dict()
            seen["is_same"] = all(torch.equal(own[name], target[name]) for name in own)

    trainer.add(Compares())
    trainer.fit(runtime=InMemoryRuntime)
    assert seen["is_same"]


def test_sampling_from_the_replay_of_another_run_stays_the_runs_own(source: Source) -> None:
    states = []
    for is_taken in (False, True):
        start = section("dqn", source("dqn"), replay=is_taken)
        trainer: Any = ludus.build_trainer(small_run("dqn", start=start))

        class Notes:
            def before_train(self) -> None:
                states.append(trainer.replay_buffer.state_dict()["generator"])  # noqa: B023

        trainer.add(Notes())
        trainer.fit(runtime=InMemoryRuntime)
    assert states[0] == states[1]


def test_transitions_of_another_run_are_not_steps_of_this_one(source: Source) -> None:
    counts = [
        run_in_memory(
            small_run("fused_dqn", start=section("fused_dqn", source("fused_dqn"), replay=is_taken))
        )[0].run.counters["game_steps"]
        for is_taken in (False, True)
    ]
    assert 0 < counts[1] < 2 * counts[0]


def test_cold_rounds_go_back_to_the_weights_of_the_other_run(source: Source) -> None:
    run = source("supervised")
    changed = {
        "round_start": "cold",
        "max_rounds": 2,
        "initial_labels": 20,
        "queries": 5,
        "max_epochs": 1,
    }
    trainer: Any = ludus.build_trainer(tiny("active", **changed, start=section("active", run)))
    first = First(trainer)
    rounds: list[bool] = []

    class Looks:
        def after_query(self) -> None:
            rounds.append(False)

    train_step = trainer.train_step

    def watched(batch: Any, batch_idx: int) -> Any:
        # The weights are put back as the first batch of a round is drawn.
        if batch_idx == 0:
            now = named_weights(trainer)
            rounds[-1] = all(torch.equal(now[name], first.weights[name]) for name in now)
        return train_step(batch, batch_idx)

    trainer.train_step = watched
    trainer.add(first)
    trainer.add(Looks())
    trainer.fit(runtime=InMemoryRuntime)
    assert rounds == [True, True]
    assert trained_names(trainer)


class Normalised(torch.nn.Module):
    """A network that calls its first layer as agents call their moments."""

    def __init__(self) -> None:
        super().__init__()
        self.normalise = torch.nn.BatchNorm1d(13)
        self.head = torch.nn.Linear(13, 3)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = self.head(self.normalise(inputs))
        return outputs


def test_a_layer_that_is_called_normalise_is_taken_too(tmp_path: Path) -> None:
    def trained(name: str, **changed: Any) -> tuple[Any, dict[str, Any]]:
        trainer: Any = ludus.Trainer(small_run("supervised", **changed), model=Normalised())
        trainer.add(first := First(trainer))
        trainer.fit(root=str(tmp_path), name=name)
        return trainer, first.weights

    source, _ = trained("source")
    _, begun = trained("second", start=section("supervised", tmp_path / "source"))
    own = named_weights(source)
    assert {"normalise.weight", "normalise.running_mean"} <= {*own}
    assert all(torch.equal(begun[name], own[name]) for name in own)
