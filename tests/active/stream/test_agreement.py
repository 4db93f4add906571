"""Edge and datacenter share one split of the data, and a datacenter trains what an edge can be given."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ludus.active.programs.stream import StandaloneProgram
from ludus.active.stream.config import RetrainingConfig
from ludus.active.stream.link import DirectLink
from ludus.active.stream.wire import Message
from ludus.config.sections import validate
from ludus.core.errors import ConfigError, LudusError
from ludus.supervised.datasets import make_sources
from tests.active.stream.streams import (
    DATA,
    INTRODUCTION,
    center,
    edge,
    estimation,
    retraining,
    standalone,
)

OTHER = {
    "seed": {"seed": 1},
    "data": {"data": {**DATA, "test_fraction": 0.5}},
    "seed' and 'data": {"seed": 1, "data": {**DATA, "test_fraction": 0.5}},
}


def pixels(examples: Any) -> list[bytes]:
    return [row.numpy().tobytes() for row in examples.tensors[0]]


@pytest.mark.parametrize("named", OTHER)
def test_an_edge_that_splits_the_data_otherwise_is_refused(named: str, tmp_path: Path) -> None:
    one = edge(tmp_path, DirectLink(center(tmp_path)), **OTHER[named])
    with pytest.raises(LudusError, match=f"'{named}' of the edge and of the datacenter's.*agree"):
        one.run()
    assert not (tmp_path / "edge/stream.jsonl").exists()


@pytest.mark.parametrize("key", ["seed", "data"])
def test_an_edge_that_does_not_say_how_it_splits_the_data_is_refused(
    key: str, tmp_path: Path
) -> None:
    header = {name: value for name, value in INTRODUCTION.items() if name != key}
    with pytest.raises(LudusError, match="make the two files agree"):
        center(tmp_path).answer(Message("handshake", header, {}))


@pytest.mark.parametrize("key", ["seed", "data"])
def test_both_in_one_file_split_the_data_alike(key: str) -> None:
    data = standalone()
    data["edge"] |= OTHER[key]
    told = f"'edge.{key}' and 'datacenter.training.{key}' are not the same"
    with pytest.raises(ConfigError, match=told):
        validate(StandaloneProgram.Config, data, source="test")


def test_nothing_that_streams_by_is_tested_on(tmp_path: Path) -> None:
    split = {"seed": 3, "data": {**DATA, "test_fraction": 0.4}}
    one = center(tmp_path, training={**retraining()["training"], **split})
    streamed = edge(tmp_path, DirectLink(one), state_estimation=estimation(99.0), **split)
    streamed.run()
    seen = set(pixels(streamed._examples.dataset))
    no_loaders = dict.fromkeys(("train", "validation", "test"))
    sources, _ = make_sources(one.config.training, no_loaders, has_evaluator=False)
    assert len(seen) > 500
    for name in ("validation", "test"):
        assert len(sources[name]) > 100
        assert not seen & set(pixels(sources[name]))


FIVE = [
    {"name": "five", "model": {**retraining()["training"]["model"], "outputs": 5}, "weights": None}
]


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"new_head": 10, "model": None, "candidates": FIVE}, "'training.new_head' would give"),
        (
            {"strategy": {"kind": "committee_kl", "members": 2, "shortlist": None}},
            "'training.strategy' trains a committee",
        ),
        (
            {"round_start": "checkpoint", "starting_checkpoint": "runs/a/models/best"},
            "'training.round_start' is checkpoint",
        ),
        (
            {"oracle": {"kind": "human", "class_names": None}},
            "'training.oracle.kind' is human, and samples come with their labels",
        ),
        (
            {"loss": "mse", "strategy": {"kind": "uniform"}},
            "'training.loss' is mse, and a stream is of classes",
        ),
        ({"data": None}, "'training.data' is null"),
    ],
)  # fmt: skip
def test_a_training_that_no_edge_could_use_is_refused_before_it_begins(
    changes: dict[str, Any], told: str
) -> None:
    data = retraining(training={**retraining()["training"], **changes})
    with pytest.raises(ConfigError, match=told):
        validate(RetrainingConfig, data, source="test")
