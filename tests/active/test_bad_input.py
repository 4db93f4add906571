"""What a user may get wrong is one sentence before work starts, and what a run has is not lost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import TensorDataset

import ludus
from ludus.active.trainers.active import ActiveTrainer
from ludus.core.errors import LudusError
from tests.active.conftest import file_of, small_active
from tests.command_line import MODEL, Ludus


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"queries": 200}, "'queries' is 200, and the pool has 106 examples; use at most 106"),
        ({"initial_labels": 107}, "'initial_labels' is 107, and the pool has 106 examples"),
        (
            {"model": {**MODEL, "outputs": 2}},
            "the classes of this run are the whole numbers from 0",
        ),
        ({"class_weights": [1.0, 2.0]}, "give one for each"),
        ({"features_layer": "no.such", "strategy": {"kind": "core_set"}}, "no.such"),
        (
            {"features_layer": "layers.0", "strategy": {"kind": "uniform"}},
            "neither 'strategy' nor 'selection' looks at features; set it to null",
        ),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_is_written(
    changes: dict[str, Any], problem: str, call: Ludus
) -> None:
    assert problem in call("train", file_of(Path("a.yaml"), **changes)).refusal()
    assert not Path("runs/wines").exists()


NUMBERS = ["loss=mse", "calibration=null", "strategy={kind: uniform}"]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["max_rounds=0"], "'max_rounds' must be greater than"),
        (["queries=-1"], "'queries' must be greater than"),
        (["n_query=3"], "Did you mean 'queries'"),
        (["strategy.kind=margins"], "margin"),
        (["oracle.kind=nobody"], "nobody"),
        (["round_start=hot"], "cold"),
        (["selection=logme", "initial_labels=0"], "set 'initial_labels' to 1 or more"),
        (["model.outputs=1"], "'model.outputs' is 1, but cross_entropy needs one output a class"),
        (["max_opt_steps=5"], "'max_opt_steps' counts over all rounds"),
        (
            [
                *NUMBERS,
                "stopping={max_labels: null, target_accuracy: 0.5, stable_share: null, "
                "stable_rounds: 1}",
            ],
            "'stopping.target_accuracy' is for classes, and the loss is mse; set it to null, and stop",
        ),
        (
            [
                *NUMBERS,
                "stopping={max_labels: 20, target_accuracy: null, stable_share: 0.9, "
                "stable_rounds: 1}",
            ],
            "'stopping.stable_share' is for classes",
        ),
        (
            [
                "stopping={max_labels: 20, target_accuracy: null, stable_share: null, "
                "stable_rounds: 2}",
            ],
            "'stopping.stable_rounds' is 2, and 'stopping.stable_share' is null",
        ),
    ],
)
def test_a_wrong_key_is_told_with_what_would_be_right(
    words: list[str], problem: str, call: Ludus
) -> None:
    assert problem in call("train", file_of(Path("a.yaml")), *words).refusal()


def given(inputs: torch.Tensor, targets: torch.Tensor, **changes: Any) -> Any:
    config = small_active(
        data=None, evaluate_every_epochs=0, evaluation__keep=0, calibration=None, **changes
    )
    pool = TensorDataset(inputs, targets)
    return ActiveTrainer(config, train_loader=lambda: pool)


@pytest.mark.parametrize(
    ("inputs", "targets", "problem"),
    [
        (torch.zeros(0, 13), torch.zeros(0, dtype=torch.int64), "the pool is empty"),
        (torch.randn(20, 13), torch.ones(20, dtype=torch.int64), "all 20 examples of the pool are"),
        (torch.randn(20, 13), torch.full((20,), -1), "the label of row 0 is -1; the classes"),
        (torch.randn(20, 13), torch.full((20,), 3), "the label of row 0 is 3; the classes"),
    ],
)
def test_a_pool_that_cannot_teach_is_refused(
    inputs: torch.Tensor, targets: torch.Tensor, problem: str, tmp_path: Path
) -> None:
    with pytest.raises(LudusError, match=problem):
        given(inputs, targets).fit(root=str(tmp_path))
    assert not any(tmp_path.iterdir())


def test_a_finished_run_is_made_longer_by_rounds(call: Ludus) -> None:
    call("train", file_of(Path("a.yaml")))
    call("train", file_of(Path("b.yaml"), max_rounds=5), "--run", "whole")
    longer = call("resume", "runs/wines", "max_rounds=5", "--json").json
    assert (longer["counters"]["round"], longer["counters"]["labels"]) == (5, 22)
    metrics = [Path("runs", name, "metrics.jsonl").read_bytes() for name in ("wines", "whole")]
    assert metrics[0] == metrics[1]
    assert "may be raised, not lowered" in call("resume", "runs/wines", "max_rounds=2").refusal()
    assert "queries" in call("resume", "runs/wines", "queries=9").refusal()


def test_a_pool_that_is_used_up_ends_the_rounds_and_says_so(call: Ludus) -> None:
    config = file_of(Path("a.yaml"), initial_labels=100, queries=5, max_rounds=9)
    told = call("train", config, "--json").json
    assert (told["counters"]["labels"], told["counters"]["round"]) == (106, 3)
    events = Path("runs/wines/events.jsonl").read_text()
    assert "asked for no more: all 106 examples of the pool are labelled" in events


def test_an_edited_journal_is_refused_by_its_line(call: Ludus) -> None:
    call("train", file_of(Path("a.yaml"), max_rounds=1))
    journal = Path("runs/wines/journals/labels.jsonl")
    journal.write_text(json.dumps({"key": "answer-0", "record": {"rows": [1]}}) + "\n")
    told = call("resume", "runs/wines", "max_rounds=2").refusal()
    assert "the record 'answer-0' in journals/labels.jsonl holds no rows with their labels" in told
    journal.write_text("nothing\n")
    assert (
        "line 1 of journals/labels.jsonl is damaged"
        in call("resume", "runs/wines", "max_rounds=2").refusal()
    )


def test_every_command_knows_an_active_run(call: Ludus) -> None:
    config = file_of(Path("a.yaml"))
    lines = [line.split()[0] for line in call("plan", config).out.splitlines() if line.strip()]
    assert [name for name in lines if name in ("round", "query", "label", "test")] == [
        "round", "query", "label", "test"
    ]  # fmt: skip
    assert "How many examples each later round asks for" in call("explain", config, "queries").out
    assert call("new", "active").out == Path(ludus.__file__).parents[1].joinpath(
        "configs/active.yaml"
    ).read_text()  # fmt: skip
    call("train", config)
    assert "has nothing to film" in call("play", "runs/wines").refusal()
    call("export", "runs/wines").refusal()
    assert "test/accuracy" in call("eval", "runs/wines", "--json").json["metrics"]
    assert "labels 14" in call("runs").out
    assert call("report", "runs/wines", "--out", "page.html").code == 0
    page = Path("page.html").read_text()
    assert page.count("<figcaption>class_share</figcaption>") == 1


def test_the_class_balance_of_each_round_is_logged(call: Ludus) -> None:
    call("train", file_of(Path("a.yaml")))
    rows = [json.loads(line) for line in Path("runs/wines/metrics.jsonl").read_text().splitlines()]
    shares = [
        [row[f"pool/class_share/{at}"] for at in range(3)]
        for row in rows
        if "pool/class_share/0" in row
    ]
    assert len(shares) == 3
    assert all(sum(one) == pytest.approx(1) for one in shares)
    assert all(share * 6 == pytest.approx(round(share * 6)) for share in shares[0])
