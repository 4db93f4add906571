"""What each key of supervised training does."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import ludus
from ludus.core.errors import ConfigError
from ludus.fit.update import ModelUpdate
from tests.keys.runs import SGD, Outcome, differ, run, tiny
from tests.keys.table import changes
from tests.supervised.conftest import MLP, WINE

SUPERVISED = "supervised, active"
"""An active run of one round, all of whose pool is labelled, fits as supervised training does."""


@changes(SUPERVISED, "experiment")
def test_the_experiment_stands_in_the_names_of_saved_models(kind: str) -> None:
    outcome = run(kind, experiment="mine", keep_every_epochs=1)
    assert list(outcome.kept) == ["models/mlp_wine_mine_epoch_1", "models/mlp_wine_mine_epoch_2"]


@changes(SUPERVISED, "data")
def test_the_data_set_that_is_named_is_learned_from(kind: str) -> None:
    other = run(kind, data={**WINE, "kind": "breast_cancer"}, **{"model.inputs": 30})
    assert (run(kind).trainer.dataset_name, other.trainer.dataset_name) == ("wine", "breast_cancer")
    assert other.batches[0][0].shape[1] == 30
    with pytest.raises(ConfigError, match="'data' is null and no train_loader was given"):
        Outcome(tiny(kind, data=None))


@changes(SUPERVISED, "model")
def test_the_network_that_is_described_is_trained(kind: str) -> None:
    assert len(run(kind, model={**MLP, "widths": [5]}).weights) == 13 * 5 + 5 + 5 * 3 + 3
    assert len(run(kind).weights) == 13 * 8 + 8 + 8 * 3 + 3
    with pytest.raises(ConfigError, match="model"):
        Outcome(tiny(kind, model=None))


@changes(SUPERVISED, "loss")
def test_the_loss_that_is_named_is_minimised(kind: str) -> None:
    found = {}
    numbers = {"data": {**WINE, "kind": "diabetes"}, "model": {**MLP, "inputs": 10, "outputs": 1}}
    numbers |= {"strategy": {"kind": "uniform"}} if kind == "active" else {}
    for loss in ("mse", "l1", "smooth_l1"):
        outcome = run(kind, loss=loss, **numbers)
        inputs, targets = outcome.batches[0]
        before = first_outputs(outcome, inputs)[:, 0]
        expected = getattr(
            torch.nn.functional, f"{loss}_loss" if "_" in loss or loss != "l1" else "l1_loss"
        )
        found[loss] = expected(before, targets)
        logged = run(kind, loss=loss, log_every_opt_steps=1, **numbers).curve("train/loss")[0]
        assert logged == pytest.approx(float(found[loss]), rel=1e-5)
    assert len({float(value) for value in found.values()}) == 3
    assert "train/epoch_accuracy" in run(kind).records[0].scalars
    classes = run(kind, log_every_opt_steps=1)
    inputs, targets = classes.batches[0]
    entropy = torch.nn.functional.cross_entropy(first_outputs(classes, inputs), targets)
    assert classes.curve("train/loss")[0] == pytest.approx(float(entropy), rel=1e-5)


def first_outputs(outcome: Any, inputs: torch.Tensor) -> torch.Tensor:
    """Return what the network said before it learned anything."""
    flat, module = outcome.trainer.flat, outcome.trainer.model.module
    weights = flat.by_name([outcome.moments[0]["model"]])
    return torch.func.functional_call(module, weights, (inputs,)).detach()


@changes(SUPERVISED, "batch_size", "drop_last")
def test_batches_hold_so_many_examples_and_the_last_may_be_left_out(kind: str) -> None:
    sizes = [len(batch[0]) for batch in run(kind, max_epochs=1).batches]
    assert sizes == [16] * 6 + [10]
    assert [len(b[0]) for b in run(kind, max_epochs=1, batch_size=50).batches] == [50, 50, 6]
    assert [len(b[0]) for b in run(kind, max_epochs=1, drop_last=True).batches] == [16] * 6


@changes(SUPERVISED, "max_epochs")
def test_the_data_is_gone_through_so_often(kind: str) -> None:
    assert (run(kind).counters["epoch"], run(kind, max_epochs=3).counters["epoch"]) == (2, 3)


@changes("supervised", "max_opt_steps")
def test_the_run_stops_after_so_many_steps_even_within_an_epoch(kind: str) -> None:
    assert run(kind, max_opt_steps=9).counters["opt_steps"] == 9
    assert run(kind).counters["opt_steps"] == 14


@changes(SUPERVISED, "accumulate")
def test_so_many_batches_make_a_step_and_their_gradients_are_averaged(kind: str) -> None:
    slow = {"optimizer": {**SGD, "learning_rate": 0.1}, "drop_last": True, "max_epochs": 1}
    halves, whole = run(kind, accumulate=2, **slow), run(kind, batch_size=32, **slow)
    assert halves.counters["opt_steps"] == whole.counters["opt_steps"] == 3
    assert torch.allclose(halves.weights, whole.weights, atol=1e-5)


@changes(SUPERVISED, "max_grad_norm")
def test_a_gradient_that_is_too_long_is_shortened(kind: str) -> None:
    for limit in (0.01, 0.001):
        outcome = run(kind, optimizer=SGD, max_grad_norm=limit)
        way = outcome.moments[1]["model"] - outcome.moments[0]["model"]
        assert float(way.norm()) == pytest.approx(limit, rel=1e-3)
    free = run(kind, optimizer={**SGD, "learning_rate": 0.1})
    assert float((free.moments[1]["model"] - free.moments[0]["model"]).norm()) > 0.01


@changes(SUPERVISED, "optimizer")
def test_weights_move_by_the_optimizer_that_is_named(kind: str) -> None:
    ways = []
    for rate in (0.1, 0.01):
        outcome = run(kind, optimizer={**SGD, "learning_rate": rate})
        ways.append(outcome.moments[1]["model"] - outcome.moments[0]["model"])
    assert torch.allclose(ways[0], 10 * ways[1], rtol=1e-2, atol=1e-6)
    adam = run(kind)
    way = (adam.moments[1]["model"] - adam.moments[0]["model"]).abs()
    assert float(way.median()) == pytest.approx(adam.config.optimizer.learning_rate, rel=0.05)


@changes(SUPERVISED, "parameter_groups")
def test_groups_have_a_rate_of_their_own_or_are_frozen(kind: str) -> None:
    """The first layer has 13 * 8 + 8 weights; without groups both layers take whole steps."""

    def ways(*groups: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
        outcome = run(kind, optimizer=SGD, parameter_groups=list(groups))
        way = outcome.moments[1]["model"] - outcome.moments[0]["model"]
        return way[:112], way[112:]

    body, head = ways()
    slow, same = ways({"prefix": "layers.0", "rate": 0.5, "frozen": False})
    assert torch.allclose(slow, body / 2, rtol=1e-2, atol=1e-6)
    assert torch.allclose(same, head, rtol=1e-3, atol=1e-7)
    still, same = ways({"prefix": "layers.0", "rate": 1.0, "frozen": True})
    assert not still.any()
    assert torch.allclose(same, head, rtol=1e-3, atol=1e-7)


@changes(SUPERVISED, "learning_rate_schedule")
def test_the_learning_rate_follows_its_schedule(kind: str) -> None:
    falling = {"kind": "linear", "warmup_steps": 0, "final": 0.0, "total_steps": 8}
    outcome = run(kind, learning_rate_schedule=falling, log_every_opt_steps=1)
    rates = outcome.curve("train/learning_rate")
    rate = outcome.config.optimizer.learning_rate
    assert rates[:9] == pytest.approx([rate * (1 - n / 8) for n in range(9)])
    assert torch.equal(outcome.moments[8]["model"], outcome.moments[-1]["model"])
    assert not torch.equal(outcome.moments[7]["model"], outcome.moments[8]["model"])


@changes(SUPERVISED, "gradient_checkpointing")
def test_what_named_modules_compute_is_not_kept_and_the_numbers_are_the_same(kind: str) -> None:
    assert torch.equal(run(kind, gradient_checkpointing=["layers"]).weights, run(kind).weights)
    sizes = []
    for names in ([], ["layers"]):
        outcome = run(kind, gradient_checkpointing=names, engine="eager")
        kept: list[torch.Tensor] = []
        hooks = torch.autograd.graph.saved_tensors_hooks(
            lambda t, k=kept: k.append(t) or t, lambda t: t
        )
        with hooks:
            outcome.trainer.update.learner.forward(outcome.batches[0], 0)
        sizes.append(sum(one.numel() for one in kept))
    assert sizes[1] < sizes[0]
    with pytest.raises(ConfigError, match="the network has no module of that name"):
        Outcome(tiny(kind, gradient_checkpointing=["body"]))


@changes(SUPERVISED, "precision")
def test_the_network_computes_in_the_precision_and_weights_stay_float32(kind: str) -> None:
    for precision in ("bfloat16", "float16"):
        outcome = run(kind, precision=precision)
        assert outcome.weights.dtype == torch.float32
        assert differ(outcome, run(kind))
        assert torch.allclose(outcome.weights, run(kind).weights, atol=0.02)
    if kind == "active":
        with pytest.raises(ConfigError, match="bfloat16_pure is not for models that are asked"):
            tiny(kind, precision="bfloat16_pure")
        return
    pure = run(kind, precision="bfloat16_pure")
    assert pure.weights.dtype == torch.bfloat16
    assert torch.allclose(pure.weights.float(), run(kind).weights, atol=0.05)


@changes(SUPERVISED, "tf32")
def test_on_the_cpu_tf32_changes_nothing_and_a_run_says_so(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it sets on CUDA is in tests/session/test_device.py, and what that does in tests/gpu."""
    outcome = run(kind, tf32=True)
    assert torch.equal(outcome.weights, run(kind).weights)
    said: list[str] = []
    for value in (False, True):
        monkeypatch.setattr(outcome.trainer, "config", tiny(kind, tf32=value))
        monkeypatch.setattr(outcome.trainer.run, "tell", lambda text, event: said.append(text))
        outcome.trainer.open()
        assert ("'tf32' is true, which does nothing on cpu" in said) is value


@changes(SUPERVISED, "engine")
@pytest.mark.filterwarnings("ignore:.*torch.jit.script_method:DeprecationWarning")
def test_updates_are_compiled_if_asked_or_if_the_run_is_long_enough(
    kind: str, compiled_calls: list[None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = run(kind, engine="tape")
    assert compiled_calls == []
    compiled = Outcome(tiny(kind, engine="compiled"))
    assert len(compiled_calls) == compiled.counters["opt_steps"] == 14
    assert torch.allclose(compiled.weights, plain.weights, atol=1e-3)
    for threshold, is_compiled in ((15, False), (14, True)):
        monkeypatch.setattr(ModelUpdate, "worth_compiling", threshold)
        trainer: Any = ludus.build_trainer(tiny(kind, engine="auto"))
        trainer.set_logger(ludus.Logger({"backends": []}))
        trainer.prepare(max_steps=None)
        assert trainer.config.engine == ("compiled" if is_compiled else "tape")


@changes(SUPERVISED, "ema_decay")
def test_a_running_mean_that_forgets_so_slowly_is_kept(kind: str) -> None:
    outcome = run(kind, ema_decay=0.75, keep_every_epochs=2)
    mean, total = torch.zeros(()), 0.0
    for moment in outcome.moments[1:]:
        mean, total = 0.75 * mean + 0.25 * moment["model"], 0.75 * total + 0.25
    mean = mean / total
    assert torch.allclose(outcome.trainer.update.ema[0], mean, atol=1e-5)
    kept = torch.cat([t.flatten() for t in next(iter(outcome.kept.values())).values()])
    assert torch.allclose(kept, mean, atol=1e-5)
    assert torch.equal(outcome.weights, run(kind).weights)


@changes(SUPERVISED, "evaluate_every_epochs")
def test_a_model_is_validated_every_so_many_epochs_and_after_the_last(kind: str) -> None:
    def validated(interval: int) -> list[int]:
        """Return the optimisation steps at which the model is validated; an epoch has seven."""
        outcome = run(kind, max_epochs=5, evaluate_every_epochs=interval)
        return outcome.at("validation/epoch_loss")

    assert validated(1) == [7, 14, 21, 28, 35]
    assert validated(2) == [14, 28, 35]
    assert validated(9) == [35]
    assert validated(0) == []


# Watching. At a rate of zero, or nearly so, nothing ever gets better; at this one everything does.
IDLE = {"optimizer": {**SGD, "learning_rate": 1e-12}, "max_epochs": 6}
STOPPING = {"metric": "train/epoch_loss", "patience": 2, "min_delta": 0.001}


def judged(**section: Any) -> dict[str, Any]:
    """Return changes of the section `evaluation`."""
    return {f"evaluation.{key}": value for key, value in section.items()}


@changes(SUPERVISED, "evaluation.patience")
def test_a_run_stops_after_so_many_epochs_without_a_better_value(kind: str) -> None:
    assert run(kind, **IDLE).counters["epoch"] == 6
    for patience in (2, 3):
        stopped = run(kind, **judged(**{**STOPPING, "patience": patience}), **IDLE)
        # In a run of rounds this ends the epochs of one, and the run goes on.
        status = "stopped" if kind == "supervised" else "finished"
        assert (stopped.result.status, stopped.counters["epoch"]) == (status, 1 + patience)


@changes(SUPERVISED, "evaluation.patience")
def test_patience_counts_evaluations_and_not_epochs(kind: str) -> None:
    section = judged(metric="validation/epoch_loss", patience=1, min_delta=9.0)
    idle = {**IDLE, "max_epochs": 9}
    assert run(kind, **section, **idle).counters["epoch"] == 2
    assert run(kind, **section, **idle, evaluate_every_epochs=3).counters["epoch"] == 6


@changes(SUPERVISED, "evaluation.metric")
def test_the_metric_that_is_named_is_watched(kind: str) -> None:
    stopped = run(kind, **judged(**{**STOPPING, "metric": "validation/epoch_accuracy"}), **IDLE)
    assert stopped.counters["epoch"] == 3
    if kind == "supervised":
        assert "validation/epoch_accuracy has not improved" in str(stopped.result.reason)


@changes(SUPERVISED, "evaluation.stopping_metric", "evaluation.stopping_mode")
def test_patience_may_go_by_another_metric_than_the_best_model(kind: str) -> None:
    """The loss falls from epoch to epoch: by it as a minimum no run stops, by it as a maximum every one."""
    falling = judged(keep=1, metric="validation/epoch_accuracy", patience=1)
    other = judged(stopping_metric="train/epoch_loss", stopping_mode="max")
    stopped = run(kind, max_epochs=5, **falling, **other)
    assert stopped.counters["epoch"] == 2
    assert stopped.trainer.best()["metric"] == "validation/epoch_accuracy"
    other = judged(stopping_metric="train/epoch_loss")
    assert run(kind, max_epochs=5, **falling, **other).counters["epoch"] == 5
    same = judged(patience=1, metric="train/epoch_loss", mode="max")
    assert run(kind, max_epochs=5, **same).counters["epoch"] == 2


@changes(SUPERVISED, "evaluation.target")
def test_the_epochs_end_once_the_metric_reaches_the_target(kind: str) -> None:
    losses = run(kind, max_epochs=5).curve("train/epoch_loss")
    for keep in (0, 1):
        section = judged(metric="train/epoch_loss", target=losses[2], keep=keep)
        stopped = run(kind, max_epochs=5, **section)
        assert stopped.counters["epoch"] == 3
        if kind == "supervised":
            assert "train/epoch_loss reached" in str(stopped.result.reason)
    section = judged(metric="train/epoch_loss", mode="max", target=losses[0])
    assert run(kind, max_epochs=5, **section).counters["epoch"] == 1


@changes(SUPERVISED, "evaluation.mode", "evaluation.min_delta")
def test_better_is_less_or_more_and_by_more_than_the_delta(kind: str) -> None:
    def epochs(**section: Any) -> int:
        return run(kind, max_epochs=6, **judged(**{**STOPPING, **section})).counters["epoch"]

    assert epochs() == 6
    assert epochs(mode="max") == 3
    assert epochs(min_delta=99.0) == 3


@changes(SUPERVISED, "evaluation.metric", "evaluation.mode")
def test_the_best_model_by_the_metric_is_kept(kind: str) -> None:
    def best(**section: Any) -> Any:
        return run(kind, max_epochs=4, **judged(keep=1, **section)).trainer.best()

    assert run(kind, max_epochs=4).trainer.best() is None
    least = best(metric="train/epoch_loss")
    assert (least["metric"], least["mode"], least["counters"]["epoch"]) == (
        "train/epoch_loss",
        "min",
        4,
    )
    assert best(metric="train/epoch_loss", mode="max")["counters"]["epoch"] == 1
    assert best(metric="validation/epoch_accuracy")["mode"] == "max"


@changes(SUPERVISED, "evaluation.keep")
def test_so_many_of_the_best_models_are_kept(kind: str) -> None:
    for keep in (1, 3):
        best = judged(metric="train/epoch_loss", keep=keep)
        trainer = run(kind, max_epochs=4, **best).trainer
        found = [trainer.best(), *trainer.runners_up()]
        assert [one["counters"]["epoch"] for one in found] == [4, 3, 2][:keep]


@changes(SUPERVISED, "keep_every_epochs")
def test_weights_are_saved_every_so_many_epochs_and_at_the_end(kind: str) -> None:
    names = list(run(kind, max_epochs=5, keep_every_epochs=2).kept)
    assert [name.rpartition("_")[2] for name in names] == ["2", "4", "5"]
    assert run(kind).kept == {}


@changes(SUPERVISED, "log_every_opt_steps")
def test_the_mean_of_the_metrics_is_written_after_so_many_steps(kind: str) -> None:
    assert run(kind, log_every_opt_steps=5).at("train/loss") == [5, 7, 10, 14]
    assert run(kind).at("train/loss") == [7, 14]


@changes(SUPERVISED, "seed")
def test_another_seed_is_another_run_and_the_same_one_the_same(kind: str) -> None:
    assert differ(run(kind, seed=1), run(kind))
    assert torch.equal(Outcome(tiny(kind)).weights, run(kind).weights)


@changes(SUPERVISED, "name")
def test_the_name_changes_nothing(kind: str) -> None:
    assert torch.equal(Outcome(tiny(kind, name="another")).weights, run(kind).weights)


@changes(SUPERVISED, "memory_format")
def test_convolutions_lie_in_memory_as_it_says(kind: str) -> None:
    images = {"data": {**WINE, "kind": "digits", "standardise": False}}
    network = {
        "kind": "cnn", "channels": 1, "height": 8, "width": 8, "blocks": [4, 4], "outputs": 10,
        "activation": "relu", "dropout": 0.0,
    }  # fmt: skip
    for key, is_last in (("channels_last", True), ("contiguous", False), ("auto", False)):
        trainer: Any = ludus.build_trainer(tiny(kind, **images, model=network, memory_format=key))
        trainer.set_logger(ludus.Logger({"backends": []}))
        trainer.prepare(max_steps=None)
        second = [one for one in trainer.model.module.modules() if isinstance(one, nn.Conv2d)][1]
        assert (second.weight.stride(1) == 1) is is_last
        assert trainer.config.memory_format == ("channels_last" if is_last else "contiguous")
