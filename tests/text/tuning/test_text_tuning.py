"""A model learns from the lines of a file, supervised or by preferences, and is saved as a directory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, logsigmoid

import ludus
from ludus.core.errors import ConfigError, LudusError
from ludus.text.models.language_model import LanguageModel, load_model
from ludus.text.models.new_model import NewModelConfig, make_model
from ludus.text.tuning.majority import NUM_WORDS, answer, majority_lines
from ludus.text.tuning.tokens import make_batch
from tests.command_line import Ludus, in_process
from tests.text.tuning.small import DPO, NEW_MODEL, chat, of_lines, small_tuning, write_lines


def fit(root: Path, **changed: Any) -> Any:
    """Return the trainer and the directory of a run."""
    trainer = ludus.build_trainer(small_tuning(**changed))
    result = trainer.fit(root=str(root))
    return trainer, Path(str(result.run_dir)), result


def records(directory: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]


def prepared(**changed: Any) -> Any:
    trainer: Any = ludus.build_trainer(small_tuning(**changed))
    trainer.prepare(max_steps=None)
    return trainer


def whole_logits(trainer: Any, table: Any) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Return inputs' logits, targets and mask of each sequence, one at a time and without padding."""
    found = []
    for start, length in zip(table.starts.tolist(), table.lengths.tolist(), strict=True):
        tokens, mask = (
            table.tokens[start : start + length],
            table.is_trained[start : start + length],
        )
        logits = trainer.model.module(tokens[None, :-1], None)[0]
        found.append((logits, tokens[1:], mask[1:]))
    return found


def test_the_loss_is_the_mean_over_all_learned_tokens_of_a_batch() -> None:
    trainer = prepared(batch_size=56)
    trainer.train_data.start(0)
    result = trainer.model.training_step(trainer.train_data.next(), 0)
    sequences = whole_logits(trainer, trainer.tables["train"])
    logits = torch.cat([one[mask] for one, _, mask in sequences])
    targets = torch.cat([target[mask] for _, target, mask in sequences])
    assert result["loss"].item() == pytest.approx(cross_entropy(logits, targets).item(), rel=1e-5)
    is_right = (logits.argmax(-1) == targets).float().mean().item()
    assert result["token_accuracy"].item() == pytest.approx(is_right)


def test_the_dpo_loss_is_that_of_its_definition_and_the_reference_that_of_the_start() -> None:
    trainer = prepared(batch_size=56, method=DPO)
    trainer.reference.compute()
    reference = trainer.reference.log_probs["train"].clone()
    with torch.no_grad():
        for weight in trainer.model.module.parameters():
            weight.add_(
                torch.randn(weight.shape, generator=torch.Generator().manual_seed(1)) * 0.05
            )
    trainer.train_data.start(0)
    result = trainer.model.training_step(trainer.train_data.next(), 0)
    sums, nll, num_chosen = [], 0.0, 0
    for index, (logits, target, mask) in enumerate(whole_logits(trainer, trainer.tables["train"])):
        log_probs = logits.log_softmax(-1).gather(1, target[:, None])[:, 0][mask]
        sums.append(log_probs.sum())
        if index % 2 == 0:
            nll, num_chosen = nll - log_probs.sum(), num_chosen + len(log_probs)
    policy = torch.stack(sums).view(-1, 2)
    margins = (policy - reference)[:, 0] - (policy - reference)[:, 1]
    loss = -logsigmoid(0.5 * margins).mean() + nll / num_chosen
    assert result["loss"].item() == pytest.approx(loss.item(), rel=1e-4)
    assert result["margin"].item() == pytest.approx(margins.mean().item(), rel=1e-3, abs=1e-4)
    assert result["preference_accuracy"].item() == pytest.approx(
        (margins > 0).float().mean().item()
    )
    plain = prepared(batch_size=56, method={**DPO, "nll_coef": 0.0})
    plain.model.module.load_state_dict(trainer.model.module.state_dict())
    plain.model.reference_B2 = reference
    plain.train_data.start(0)
    found = plain.model.training_step(plain.train_data.next(), 0)["loss"].item()
    assert found == pytest.approx(-logsigmoid(0.5 * margins).mean().item(), rel=1e-4)


def test_only_tokens_of_the_assistant_teach(tmp_path: Path) -> None:
    """A gradient reaches the last hidden states just where a token of the assistant is predicted."""
    first, second = chat("ab", "c"), chat("d", "ef", "g", "h")
    second["messages"][1]["weight"] = 0
    path = write_lines(tmp_path / "lines.jsonl", [first, second])
    trainer = prepared(data=of_lines(path), evaluate_every_epochs=0)
    hidden: list[Tensor] = []

    def keep(module: object, inputs: object, output: Tensor) -> None:
        output.retain_grad()
        hidden.append(output)

    trainer.model.module.model.norm.register_forward_hook(keep)
    batch = make_batch(trainer.tables["train"], torch.tensor([0, 1]), device=torch.device("cpu"))
    trainer.model.training_step(batch, 0)["loss"].backward()
    assert hidden[0].grad is not None
    taught = (hidden[0].grad.abs().sum(-1) > 0).nonzero().tolist()
    # bos user a b end assistant c end; bos user d end assistant e f end user g end assistant h end
    assert taught == [[0, 5], [0, 6], [1, 11], [1, 12]]


def test_a_model_learns_the_majority_task_and_its_directory_is_what_was_learned(
    tmp_path: Path,
) -> None:
    model = {**NEW_MODEL, "width": 32, "num_heads": 4, "num_kv_heads": 4, "mlp_width": 64}
    data = {"kind": "majority", "examples": 512, "validation_examples": 128}
    _, directory, result = fit(
        tmp_path, new_model=model, data=data, max_epochs=20, evaluate_every_epochs=20,
        **{"optimizer.learning_rate": 0.01},
    )  # fmt: skip
    found = records(directory)[-1]
    assert found["validation/epoch_loss"] < 0.05
    assert found["validation/epoch_token_accuracy"] > 0.98
    tuned = load_model(directory / "tuned", name="tuned")
    assert isinstance(tuned, LanguageModel)
    prompt = tuned.tokenizer.encode_chat(
        [ludus.text.ChatMessage("user", "aaabaabbaba")], add_generation_prompt=True
    )
    for _ in range(6):
        logits = tuned.logits(torch.tensor([prompt]))
        prompt.append(int(logits[0, -1].argmax()))
    assert tuned.tokenizer.decode(prompt[-6:]) == answer("aaabaabbaba")
    assert result.counters["tokens"] == 20 * 512 * 22


def test_preferences_are_learned(tmp_path: Path) -> None:
    data = {"kind": "majority", "examples": 256, "validation_examples": 64}
    _, directory, result = fit(
        tmp_path, data=data, method=DPO, max_epochs=4, log_every_opt_steps=1,
        **{"optimizer.learning_rate": 0.01},
    )  # fmt: skip
    found = [record for record in records(directory) if "train/margin" in record]
    assert found[0]["train/margin"] == pytest.approx(0.0, abs=1e-4)
    assert found[-1]["train/margin"] > 0
    assert records(directory)[-1]["validation/epoch_preference_accuracy"] > 0.5
    assert result.counters["tokens"] == 4 * 256 * 44


def test_the_shipped_file_runs_for_three_steps_from_any_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    config = ludus.example("text_tuning").replace(**{"settings.display": "none"})
    result = ludus.build_trainer(config).fit(max_steps=3, root=str(tmp_path))
    assert result.counters["opt_steps"] == 3
    assert load_model(Path(str(result.run_dir)) / "tuned", name="x").context == 256


def test_the_best_model_is_saved_and_not_the_last(tmp_path: Path) -> None:
    worst = {
        "evaluation.metric": "train/epoch_loss",
        "evaluation.mode": "max",
        "evaluation.keep": 1,
    }
    trainer, directory, result = fit(tmp_path, max_epochs=3, keep_every_epochs=1, **worst)
    assert result.best["model"].startswith("models/best-")
    first = ludus.load(str(directory), "epoch_1")
    tuned = load_model(directory / "tuned", name="tuned")
    assert torch.equal(tuned.module.output_weight, first.module.output_weight)
    last = trainer.model.module.output_weight
    assert not torch.equal(tuned.module.output_weight, last)


def test_a_run_stopped_early_saves_its_model_too(tmp_path: Path) -> None:
    target = {"evaluation.metric": "validation/epoch_loss", "evaluation.target": 100.0}
    _, directory, result = fit(tmp_path, max_epochs=3, **target)
    assert (result.status, result.counters["epoch"]) == ("stopped", 1)
    assert load_model(directory / "tuned", name="x").context == 64


def test_the_same_model_in_padded_batches_and_alone(tmp_path: Path) -> None:
    """What is evaluated does not depend on the length of others."""
    long, short = chat("a" * 40, "yes"), chat("a", "no")
    both = write_lines(tmp_path / "both.jsonl", [long, short])
    trainer = prepared(data=of_lines(both), evaluate_every_epochs=0)
    found = trainer.evaluators["train"].evaluate(trainer.model, None)["loss"]
    sequences = whole_logits(trainer, trainer.tables["train"])
    losses = [
        cross_entropy(one[mask], target[mask], reduction="sum") for one, target, mask in sequences
    ]
    assert found == pytest.approx(sum(losses).item() / (4 + 3), rel=1e-5)


def test_supervised_metrics_are_means_over_tokens_however_they_are_batched(tmp_path: Path) -> None:
    """The last batch holds few examples with many learned tokens."""
    lines = [chat("a", "b")] * 64 + [chat("a", "long answer" * 3)] * 3
    path = write_lines(tmp_path / "lines.jsonl", lines)
    trainer = prepared(data=of_lines(path), evaluate_every_epochs=0)
    found = trainer.evaluators["train"].evaluate(trainer.model, None)["loss"]
    sequences = whole_logits(trainer, trainer.tables["train"])
    logits = torch.cat([one[mask] for one, _, mask in sequences])
    targets = torch.cat([target[mask] for _, target, mask in sequences])
    assert found == pytest.approx(cross_entropy(logits, targets).item(), rel=1e-5)


def test_preferences_are_measured_against_the_model_of_the_start(tmp_path: Path) -> None:
    """Also by a trainer whose model has learned since."""
    trainer, directory, _ = fit(tmp_path, method=DPO, **{"optimizer.learning_rate": 0.02})
    logged = records(directory)[-1]
    found = trainer.evaluate_weights(trainer.weights())
    assert found["validation/epoch_margin"] != 0
    assert found == pytest.approx({name: logged[name] for name in found})


def test_another_starting_model_is_refused_when_a_run_goes_on(tmp_path: Path) -> None:
    model, changed = tmp_path / "tiny", {"new_model": None, "max_epochs": 1}
    make_model(NewModelConfig(**NEW_MODEL), model)
    fit(tmp_path, model=str(model), **changed)
    make_model(NewModelConfig(**{**NEW_MODEL, "seed": 1}), model)
    trainer = ludus.build_trainer(small_tuning(model=str(model), **{**changed, "max_epochs": 2}))
    with pytest.raises(LudusError, match="the starting model"):
        trainer.fit(root=str(tmp_path), resume=True)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of a finished run with preferences."""
    _, directory, _ = fit(tmp_path_factory.mktemp("finished"), method=DPO)
    return directory


def test_eval_says_which_examples_it_measured(
    finished: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    call, logged = in_process(monkeypatch, capsys), records(finished)[-1]
    found = evaluated(call, finished)
    assert set(found) == {
        f"validation/epoch_{name}"
        for name in ("loss", "token_accuracy", "preference_accuracy", "margin", "nll")
    }
    assert found["validation/epoch_loss"] == pytest.approx(logged["validation/epoch_loss"])
    data = {"kind": "majority", "examples": 56, "validation_examples": 0}
    _, directory, _ = fit(tmp_path, data=data, evaluate_every_epochs=0)
    assert set(evaluated(call, directory)) == {"train/epoch_loss", "train/epoch_token_accuracy"}


def evaluated(call: Ludus, directory: Path) -> dict[str, float]:
    """Return the metrics that `ludus eval` prints."""
    found: dict[str, float] = call("eval", str(directory), "--json").json["metrics"]
    return found


def test_a_run_that_is_loaded_is_a_language_model(finished: Path) -> None:
    model = ludus.load(str(finished), "last", expected=LanguageModel)
    tuned = load_model(finished / "tuned", name="tuned")
    tokens = torch.tensor([[1, 2, 3]])
    assert torch.equal(model.logits(tokens), tuned.logits(tokens))


def test_other_lines_are_refused_when_a_run_goes_on(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "lines.jsonl", [chat("a", "b"), chat("c", "d")])
    changed = {"data": of_lines(path), "evaluate_every_epochs": 0}
    fit(tmp_path, **changed)
    write_lines(path, [chat("a", "b"), chat("c", "e")])
    trainer = ludus.build_trainer(small_tuning(max_epochs=4, **changed))
    with pytest.raises(LudusError, match="data of training"):
        trainer.fit(root=str(tmp_path), resume=True)


def test_a_finished_run_is_made_longer_and_its_model_is_saved_again(tmp_path: Path) -> None:
    changed = {"evaluate_every_epochs": 0}
    _, directory, _ = fit(tmp_path, **changed)
    before = (directory / "tuned/model.safetensors").read_bytes()
    longer = ludus.build_trainer(small_tuning(max_epochs=4, **changed))
    longer.fit(root=str(tmp_path), resume=True)
    _, whole, _ = fit(tmp_path / "whole", max_epochs=4, **changed)
    after = (directory / "tuned/model.safetensors").read_bytes()
    assert after == (whole / "tuned/model.safetensors").read_bytes() != before


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"new_model": None}, "'model' and 'new_model' are both null"),
        ({"model": "somewhere"}, "'model' and 'new_model' are both given"),
        ({"data.validation_examples": 0}, "no validation examples"),
        ({"data.examples": 990}, "there are 990 words"),
        ({"evaluation.metric": "validation/loss", "evaluation.keep": 1}, "never writes"),
        ({"settings.workers": 2}, "'settings.workers' is 2"),
        (
            {"lora": {"kind": "lora", "r": 2, "alpha": 4.0, "dropout": 0.0, "target_modules": None,
                      "modules_to_save": [], "bias": "none"}},
            "'lora' is given with 'new_model'",
        ),
        ({"max_opt_steps": 99}, "would never be reached"),
        ({"model": "nowhere", "new_model": None}, "nowhere is not a directory here"),
        ({"data": {"kind": "lines", "path": "none.jsonl", "validation_path": None},
          "evaluate_every_epochs": 0}, "'data.path' is none.jsonl, which cannot be read"),
    ],
)  # fmt: skip
def test_a_config_with_a_mistake_is_refused_in_a_sentence(
    changed: dict[str, Any], told: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=told):
        ludus.build_trainer(small_tuning(**changed)).fit(root=str(tmp_path))
    assert not list(tmp_path.iterdir())


def test_words_of_the_majority_task_are_in_one_of_the_two_sets() -> None:
    whole = [majority_lines(0, 990, method="supervised", seed=seed) for seed in (0, 1)]
    assert sorted(whole[0].splitlines()) == sorted(whole[1].splitlines())
    assert whole[0] != whole[1]
    assert len(set(whole[0].splitlines())) == NUM_WORDS
    parts = [majority_lines(*part, method="supervised", seed=0) for part in ((0, 600), (600, 390))]
    assert b"".join(parts) == whole[0]
    assert (answer("aaaaaabbbbb"), answer("abbbbbbbbba")) == ("accept", "reject")
