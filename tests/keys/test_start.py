"""What each key of the section `start` does, for every kind of run that has it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import ludus
from ludus.core.errors import ConfigError
from ludus.core.runtime import InMemoryRuntime
from ludus.nn.groups import is_inside
from ludus.store.checkpoint import last_manifest, read
from ludus.store.models import write_model
from ludus.store.places import open_storage
from tests.keys.table import OFF_POLICY, RL, changes
from tests.start.sources import (
    FAMILIES,
    KINDS,
    Source,
    named_weights,
    run_in_memory,
    section,
    small_run,
    source as source,
    trained_names,
)

ALL, SHOWN = ", ".join(KINDS), ", ".join(FAMILIES)


def state_of(run: Path) -> dict[str, Any]:
    storage = open_storage(run)
    manifest = last_manifest(storage)
    assert manifest is not None
    return dict(read(storage, manifest.number).state)


@changes(ALL, "start", "start.run")
def test_training_begins_with_the_weights_of_the_named_run(kind: str, source: Source) -> None:
    run = source(kind)
    trainer, first, after = run_in_memory(small_run(kind, start=section(kind, run)))
    _, fresh, _ = run_in_memory(small_run(kind))
    saved = type(trainer).saved_training(state_of(run)).weights()
    own = {trainer.starting().reads(name): tensor for name, tensor in saved.items()}
    assert own.keys() == first.keys()
    assert all(torch.equal(own[name], first[name]) for name in own)
    trained = trained_names(trainer)
    assert any(not torch.equal(fresh[name], first[name]) for name in trained)
    assert any(not torch.equal(after[name], first[name]) for name in trained)


@changes(ALL, "start.model", shown_by="supervised, fused_ppo")
def test_the_weights_are_those_of_the_named_model(
    kind: str, source: Source, tmp_path: Path
) -> None:
    run = source(kind)
    trainer: Any = ludus.build_trainer(small_run(kind))
    trainer.fit(runtime=InMemoryRuntime)
    kept = {name: tensor + 1 for name, tensor in named_weights(trainer).items()}
    write_model(open_storage(tmp_path), "mine", kept, {})
    start = section(kind, run, model=str(tmp_path / "mine"))
    _, first, _ = run_in_memory(small_run(kind, start=start))
    assert all(torch.equal(first[name], kept[name]) for name in kept)
    with pytest.raises(ConfigError, match="no model is kept there; give best, last"):
        run_in_memory(small_run(kind, start=section(kind, run, model="nope")))


@changes(ALL, "start.optimizer", shown_by="supervised, dqn, ppo, fused_dqn, solo_agent")
def test_moments_and_step_counts_are_those_of_the_other_run(kind: str, source: Source) -> None:
    run, counts = source(kind), {}
    for is_taken in (False, True):
        start = section(kind, run, optimizer=is_taken)
        trainer: Any = ludus.build_trainer(small_run(kind, start=start))
        counts[is_taken] = []

        class Counts:
            def before_train(self) -> None:
                for learner, _ in trainer.starting().learners.values():  # noqa: B023
                    counts[is_taken].append(float(learner.optimizer.num_steps))  # noqa: B023

        trainer.add(Counts())
        trainer.fit(runtime=InMemoryRuntime)
    assert set(counts[False]) == {0.0}
    assert min(counts[True]) > 0
    with pytest.raises(
        ConfigError, match=r"a kept model .* holds weights alone; set 'model' to last"
    ):
        small_run(kind, start=section(kind, run, optimizer=True, model="best"))


@changes(ALL, "start.frozen", shown_by=f"{SHOWN}, active, sac")
def test_parameters_with_a_frozen_prefix_keep_their_bits(kind: str, source: Source) -> None:
    names = trained_names(run_in_memory(small_run(kind))[0])
    prefix = names[0].rpartition(".")[0] or names[0]
    start = section(kind, source(kind), frozen=[prefix])
    decayed = {} if kind == "fused_dqn" else {"optimizer": {**ADAMW, "learning_rate": 0.01}}
    _, first, after = run_in_memory(small_run(kind, start=start, **decayed))
    inside = [name for name in names if is_inside(name, inside=prefix)]
    assert inside
    assert all(torch.equal(first[name], after[name]) for name in inside)
    others = [name for name in names if name not in inside]
    assert any(not torch.equal(first[name], after[name]) for name in others)
    with pytest.raises(
        ConfigError, match=r"'start.frozen' names nowhere, which no trained parameter"
    ):
        run_in_memory(small_run(kind, start=section(kind, source(kind), frozen=["nowhere"])))


ADAMW = {
    "kind": "adamw", "learning_rate": 0.01, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.1,
}  # fmt: skip


@changes(ALL, "start.learning_rates", shown_by="supervised, ppo, fused_ppo, fused_dqn, solo_agent")
def test_a_prefix_learns_at_its_factor_of_the_learning_rate(kind: str, source: Source) -> None:
    trainer, first, after = run_in_memory(small_run(kind))
    name = max(trained_names(trainer), key=lambda one: float((after[one] - first[one]).norm()))
    moved = {}
    for rate in (1.0, 1e-3):
        start = section(kind, source(kind), learning_rates=[{"prefix": name, "rate": rate}])
        _, first, after = run_in_memory(small_run(kind, start=start))
        moved[rate] = float((after[name] - first[name]).norm())
    assert 0 < moved[1e-3] < 0.05 * moved[1.0]
    both = section(kind, source(kind), frozen=[name], learning_rates=start["learning_rates"])
    with pytest.raises(ConfigError, match=r"which 'start.frozen' freezes; name it in one"):
        run_in_memory(small_run(kind, start=both))


@changes(RL, "start.normaliser", shown_by="ppo, dqn")
def test_the_running_moments_go_on_from_those_of_the_other_run(kind: str, source: Source) -> None:
    run, counts = source(kind), {}
    for is_taken in (False, True):
        start = section(kind, run, normaliser=is_taken)
        trainer, _, _ = run_in_memory(small_run(kind, start=start))
        counts[is_taken] = trainer.agent.normaliser.state_dict()["observed"]["count"]
    there = state_of(run)["agent"]["normaliser"]["observed"]["count"]
    # The first observations, seen before the moments are taken, are not counted.
    assert counts[True] == counts[False] + there - small_run(kind).num_envs
    with pytest.raises(ConfigError, match="normaliser"):
        run_in_memory(small_run(kind, normalise=None, start=section(kind, run, normaliser=True)))


@changes(f"{OFF_POLICY}, fused_dqn", "start.replay", shown_by="dqn, fused_dqn")
def test_the_transitions_of_the_other_run_are_learned_from(kind: str, source: Source) -> None:
    run, totals = source(kind), {}
    for is_taken in (False, True):
        start = section(kind, run, replay=is_taken)
        trainer, _, _ = run_in_memory(small_run(kind, start=start))
        if kind == "dqn":
            totals[is_taken] = trainer.replay_buffer.total
        else:
            totals[is_taken] = int(trainer.learners["host"].replay.total_pushed)
    state = state_of(run)
    there = state["replay_buffer" if kind == "dqn" else "host_replay"]["total"]
    assert totals[True] > int(np.asarray(there)) > 0
    assert totals[True] > totals[False]


def test_the_record_of_what_was_taken_is_kept_with_its_digest(
    source: Source, tmp_path: Path
) -> None:
    start = section("supervised", source("supervised"))
    run = ludus.build_trainer(small_run("supervised", start=start)).fit(
        root=str(tmp_path), name="a"
    )
    note = json.loads(Path(str(run.run_dir), "run.json").read_text())["start"]
    lines = Path(str(run.run_dir), "events.jsonl").read_text().splitlines()
    event = next(e for e in map(json.loads, lines) if e["event"] == "started_from")
    assert (note["taken"], note["kind"], len(note["sha256"])) == (4, "supervised", 64)
    assert event["sha256"] == note["sha256"]
    assert event["reason"].endswith("(supervised): 4 of its 4 weights")


@pytest.mark.parametrize("kind", ["supervised", "sac", "ppo", "fused_dqn"])
def test_frozen_bits_stay_in_compiled_updates_too(
    kind: str, source: Source, compiled_calls: list[None]
) -> None:
    names = trained_names(run_in_memory(small_run(kind, engine="eager"))[0])
    start = section(kind, source(kind), frozen=[names[0]])
    _, first, after = run_in_memory(small_run(kind, start=start, engine="compiled"))
    assert compiled_calls
    assert torch.equal(first[names[0]], after[names[0]])
    assert any(not torch.equal(first[name], after[name]) for name in names[1:])
