"""What each key of fine-tuning does."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import ludus
from ludus.core.errors import ConfigError
from ludus.text.models.new_model import NewModelConfig, make_model
from tests.keys.runs import SGD, Outcome, differ, run, tiny
from tests.keys.table import changes, shown_elsewhere
from tests.text.tuning.small import DPO, NEW_MODEL, chat, of_lines, write_lines

KIND = "text_tuning"
TABLE = {"kind": "table", "values": [0.001]}

_lora = "text/tuning/test_lora.py::test_adapters_are_as_their_keys_say"
shown_elsewhere(
    _lora, KIND, "lora", "lora.kind", "lora.r", "lora.alpha", "lora.dropout", "lora.target_modules",
    "lora.modules_to_save", "lora.bias",
)  # fmt: skip


def way(outcome: Outcome, step: int = 0) -> torch.Tensor:
    """Return how far the weights moved in a step."""
    return outcome.moments[step + 1]["model"] - outcome.moments[step]["model"]


def shapes(outcome: Outcome) -> dict[str, tuple[int, ...]]:
    named = outcome.trainer.model.module.named_parameters()
    return {name: tuple(weight.shape) for name, weight in named}


@changes(KIND, "name")
def test_the_run_is_stored_under_its_name(kind: str, tmp_path: Path) -> None:
    result = ludus.build_trainer(tiny(kind, name="mine")).fit(root=str(tmp_path))
    assert result.run_dir == str(tmp_path / "mine")


@changes(KIND, "seed")
def test_another_seed_draws_another_order(kind: str) -> None:
    first, second = (run(kind, seed=seed).batches[0][0].tolist() for seed in (0, 1))
    assert first != second


@changes(KIND, "settings.workers")
def test_no_process_loads_lines(kind: str) -> None:
    with pytest.raises(ConfigError, match=r"'settings.workers' is 2, but .* set it to 0"):
        tiny(kind, **{"settings.workers": 2})


@changes(KIND, "model")
def test_the_model_of_the_directory_is_tuned(kind: str, tmp_path: Path) -> None:
    made = make_model(NewModelConfig(**{**NEW_MODEL, "seed": 7}), tmp_path / "tiny")
    outcome = run(kind, model=str(tmp_path / "tiny"), new_model=None)
    own = torch.cat([weight.detach().flatten() for weight in made.module.parameters()])
    assert torch.equal(outcome.moments[0]["model"].sort().values, own.sort().values)


@changes(KIND, "new_model", "new_model.kind")
def test_without_a_directory_a_new_model_is_made(kind: str) -> None:
    assert type(run(kind).trainer.model.module).__name__ == "Llama"
    with pytest.raises(ConfigError, match=r"new_model.kind"):
        tiny(kind, new_model={**NEW_MODEL, "kind": "gpt"})


@changes(
    KIND, "new_model.width", "new_model.num_layers", "new_model.num_heads",
    "new_model.num_kv_heads", "new_model.mlp_width", "new_model.context",
)  # fmt: skip
def test_the_new_model_has_the_shape_that_is_described(kind: str) -> None:
    model = {"width": 24, "num_layers": 2, "num_heads": 3, "num_kv_heads": 1, "mlp_width": 20}
    outcome = run(kind, new_model={**NEW_MODEL, **model, "context": 40}, max_epochs=1)
    found = shapes(outcome)
    assert found["model.embed_tokens.weight"] == (264, 24)
    assert found["model.layers.1.mlp.up_proj.weight"] == (20, 24)
    assert found["model.layers.0.self_attn.q_proj.weight"] == (24, 24)
    assert found["model.layers.0.self_attn.k_proj.weight"] == (8, 24)
    assert not any("layers.2" in name for name in found)
    assert outcome.trainer.language_model.context == 40
    with pytest.raises(ConfigError, match="context of the model is 20"):
        Outcome(tiny(kind, new_model={**NEW_MODEL, "context": 20}))


@changes(KIND, "new_model.seed", "new_model.embedding_std")
def test_the_weights_of_a_new_model_are_drawn_by_its_seed_and_spread(kind: str) -> None:
    first, other, wide = (
        run(kind, new_model={**NEW_MODEL, **more}).moments[0]["model"]
        for more in ({}, {"seed": 1}, {"embedding_std": 0.2})
    )
    assert not torch.equal(first, other)
    count = 264 * 16
    ratio = wide[:count].std() / first[:count].std()
    assert float(ratio) == pytest.approx(10.0)


@changes(KIND, "data")
def test_the_examples_are_those_of_the_files_or_of_the_task(kind: str, tmp_path: Path) -> None:
    train = write_lines(tmp_path / "train.jsonl", [chat("q", "a")] * 5)
    held_out = write_lines(tmp_path / "held_out.jsonl", [chat("q", "b")] * 3)
    outcome = run(kind, data=of_lines(train, held_out))
    targets = {one for batch in outcome.batches for one in batch.targets.tolist()}
    assert targets == {ord("a"), 260}
    assert len(outcome.trainer.tables["validation"]) == 3
    assert outcome.counters["examples"] == 10
    small = {"kind": "majority", "examples": 20, "validation_examples": 4}
    assert run(kind, data=small).counters["examples"] == 40


@changes(KIND, "method")
def test_the_method_is_the_one_that_is_named(kind: str) -> None:
    plain, preferring = run(kind), run(kind, method=DPO)
    assert "train/epoch_margin" not in plain.records[-1].scalars
    assert "train/epoch_margin" in preferring.records[-1].scalars
    # With beta so small each pair counts alike, and little.
    assert differ(preferring, run(kind, method={**DPO, "beta": 0.01}))
    bare = run(kind, method={**DPO, "nll_coef": 0.0}, log_every_opt_steps=1)
    whole = run(kind, method=DPO, log_every_opt_steps=1)
    nll = whole.curve("train/nll")[0]
    half = run(kind, method={**DPO, "nll_coef": 0.5}, log_every_opt_steps=1)
    losses = [one.curve("train/loss")[0] for one in (bare, half, whole)]
    assert losses[1:] == pytest.approx([losses[0] + nll / 2, losses[0] + nll])


@changes(KIND, "batch_size")
def test_batches_hold_so_many_examples(kind: str) -> None:
    assert [len(batch.rows) for batch in run(kind, max_epochs=1).batches] == [16, 16, 16, 8]
    assert [len(b.rows) for b in run(kind, max_epochs=1, batch_size=50).batches] == [50, 6]
    pairs = run(kind, max_epochs=1, method=DPO).batches
    assert [len(batch.inputs) for batch in pairs] == [32, 32, 32, 16]


@changes(KIND, "max_epochs", "max_opt_steps")
def test_the_run_is_so_many_epochs_long_or_so_many_steps(kind: str) -> None:
    assert run(kind).counters["opt_steps"] == 8
    assert run(kind, max_epochs=3).counters["epoch"] == 3
    assert run(kind, max_opt_steps=5).counters["opt_steps"] == 5


@changes(KIND, "accumulate")
def test_so_many_batches_make_a_step_and_their_gradients_are_averaged(kind: str) -> None:
    data = {"kind": "majority", "examples": 64, "validation_examples": 8}
    slow = {"optimizer": {**SGD, "learning_rate": 0.1}, "max_epochs": 1, "data": data}
    halves, whole = run(kind, accumulate=2, **slow), run(kind, batch_size=32, **slow)
    assert halves.counters["opt_steps"] == whole.counters["opt_steps"] == 2
    # Every answer of the task is one of two of the same length.
    assert torch.allclose(halves.weights, whole.weights, atol=1e-5)


@changes(KIND, "max_grad_norm")
def test_a_gradient_that_is_too_long_is_shortened(kind: str) -> None:
    for limit in (0.01, 0.001):
        outcome = run(kind, optimizer=SGD, max_grad_norm=limit)
        assert float(way(outcome).norm()) == pytest.approx(limit, rel=1e-3)
    assert float(way(run(kind, optimizer={**SGD, "learning_rate": 0.1})).norm()) > 0.01


@changes(KIND, "optimizer")
def test_weights_move_by_the_optimizer_that_is_named(kind: str) -> None:
    slow, fast = (way(run(kind, optimizer={**SGD, "learning_rate": rate})) for rate in (0.01, 0.1))
    assert torch.allclose(fast, 10 * slow, rtol=1e-2, atol=1e-6)
    moved = way(run(kind)).abs()
    rate = tiny(kind).optimizer.learning_rate
    assert float(moved[moved > 0].median()) == pytest.approx(rate, rel=0.05)


@changes(KIND, "learning_rate_schedule")
def test_the_learning_rate_follows_its_schedule(kind: str) -> None:
    falling = {"kind": "linear", "warmup_steps": 0, "final": 0.0, "total_steps": 4}
    outcome = run(kind, learning_rate_schedule=falling, log_every_opt_steps=1)
    rate = outcome.config.optimizer.learning_rate
    expected = [rate * (1 - n / 4) for n in range(5)]
    assert outcome.curve("train/learning_rate")[:5] == pytest.approx(expected)
    assert torch.equal(outcome.moments[4]["model"], outcome.moments[-1]["model"])


@changes(KIND, "precision")
def test_the_precision_is_the_one_that_is_named(kind: str) -> None:
    exact, rough = run(kind), run(kind, precision="bfloat16")
    assert differ(exact, rough)
    assert torch.allclose(exact.weights, rough.weights, atol=0.05)
    pure = run(kind, precision="bfloat16_pure").trainer.model.module
    assert pure.output_weight.dtype == torch.bfloat16


@changes(KIND, "evaluate_every_epochs")
def test_the_validation_examples_are_measured_so_often(kind: str) -> None:
    found = run(kind, max_epochs=5, evaluate_every_epochs=2)
    assert found.at("validation/epoch_loss") == [8, 16, 20]
    assert run(kind, evaluate_every_epochs=0).at("validation/epoch_loss") == []


@changes(KIND, "evaluation.metric", "evaluation.mode", "evaluation.keep")
def test_the_best_models_by_the_metric_are_kept(kind: str) -> None:
    by_loss = {"evaluation.metric": "train/epoch_loss", "max_epochs": 4}
    assert run(kind, **by_loss).kept == {}
    lowest = run(kind, **by_loss, **{"evaluation.keep": 1}).result.best
    highest = run(kind, **by_loss, **{"evaluation.keep": 1, "evaluation.mode": "max"}).result.best
    assert lowest["score"] < highest["score"]
    three = run(kind, **by_loss, **{"evaluation.keep": 3}).result
    assert len(three.runners_up) == 2
    other = run(kind, **{**by_loss, "evaluation.metric": "train/epoch_token_accuracy"},
                **{"evaluation.keep": 1}).result.best  # fmt: skip
    assert other["metric"] == "train/epoch_token_accuracy"


@changes(
    KIND, "evaluation.patience", "evaluation.min_delta", "evaluation.stopping_metric",
    "evaluation.stopping_mode",
)  # fmt: skip
def test_a_run_that_gets_no_better_ends_early(kind: str) -> None:
    patient = {"evaluation.patience": 2, "max_epochs": 6}
    assert run(kind, **patient).counters["epoch"] == 6
    assert run(kind, **patient, **{"evaluation.min_delta": 100.0}).counters["epoch"] == 3
    other = {"evaluation.stopping_metric": "train/epoch_loss", "evaluation.stopping_mode": "max"}
    assert run(kind, **patient, **other).counters["epoch"] == 3


@changes(KIND, "evaluation.target")
def test_a_run_ends_once_its_target_is_reached(kind: str) -> None:
    target = {"evaluation.metric": "validation/epoch_loss", "max_epochs": 6}
    assert run(kind, **target, **{"evaluation.target": 100.0}).counters["epoch"] == 1
    assert run(kind, **target, **{"evaluation.target": -1.0}).counters["epoch"] == 6


@changes(KIND, "keep_every_epochs")
def test_the_weights_are_kept_so_often(kind: str) -> None:
    assert [*run(kind, max_epochs=3, keep_every_epochs=2).kept] == [
        "models/epoch_2",
        "models/epoch_3",
    ]


@changes(KIND, "log_every_opt_steps")
def test_metrics_of_training_are_logged_so_often(kind: str) -> None:
    assert run(kind).at("train/loss") == [4, 8]
    assert run(kind, log_every_opt_steps=3).at("train/loss") == [3, 4, 6, 8]
