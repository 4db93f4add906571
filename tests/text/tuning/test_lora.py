"""LoRA through PEFT: adapters over a frozen model, saved as a directory of their own."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
import torch

import ludus
from ludus.core.errors import ConfigError
from ludus.text.models.language_model import load_model
from ludus.text.models.new_model import NewModelConfig, make_model
from ludus.text.tuning.job import run_job
from ludus.text.tuning.job_config import TuningJob
from ludus.text.tuning.majority import majority_lines
from tests.text.tuning.small import DPO, NEW_MODEL, small_tuning

pytestmark = pytest.mark.slow

LORA = {
    "kind": "lora", "r": 4, "alpha": 8.0, "dropout": 0.0, "target_modules": ["q_proj", "v_proj"],
    "modules_to_save": [], "bias": "none",
}  # fmt: skip


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of a model."""
    directory = tmp_path_factory.mktemp("lora") / "tiny"
    make_model(NewModelConfig(**NEW_MODEL), directory)
    return directory


def prepared(base: Path, **changed: Any) -> Any:
    lora = {**LORA, **changed}
    trainer: Any = ludus.build_trainer(small_tuning(model=str(base), new_model=None, lora=lora))
    trainer.prepare(max_steps=None)
    return trainer


def trained(trainer: Any) -> dict[str, torch.Tensor]:
    named = trainer.model.module.named_parameters()
    return {name: weight for name, weight in named if weight.requires_grad}


def fit(root: Path, base: Path, **changed: Any) -> Path:
    changed = {"lora": LORA, "optimizer.learning_rate": 0.02, **changed}
    trainer = ludus.build_trainer(small_tuning(model=str(base), new_model=None, **changed))
    return Path(str(trainer.fit(root=str(root), resume=True).run_dir))


def test_adapters_are_as_their_keys_say(base: Path) -> None:
    trainer = prepared(base, r=3, alpha=6.0, dropout=0.5)
    weights = trained(trainer)
    assert {".".join(name.split(".")[-4:-2]) for name in weights} == {
        "q_proj.lora_A", "q_proj.lora_B", "v_proj.lora_A", "v_proj.lora_B"
    }  # fmt: skip
    assert {min(weight.shape) for weight in weights.values()} == {3}
    layer = next(m for m in trainer.model.module.modules() if hasattr(m, "lora_dropout"))
    assert (layer.scaling["default"], layer.lora_dropout["default"].p) == (2.0, 0.5)
    named = trained(prepared(base, target_modules=["up_proj"], modules_to_save=["norm"]))
    assert any("up_proj.lora_A" in name for name in named)
    assert any("norm.modules_to_save" in name for name in named)
    assert not any("q_proj" in name for name in named)
    assert any("q_proj.lora_A" in name for name in trained(prepared(base, target_modules=None)))
    with pytest.raises(ConfigError, match=r"'lora.modules_to_save' has nothing"):
        prepared(base, modules_to_save=["nothing"])
    with pytest.raises(ConfigError, match="lora"):
        prepared(base, target_modules=["nothing"])
    with pytest.raises(ConfigError, match=r"lora.bias"):
        prepared(base, bias="some")


def test_only_the_adapter_is_saved_and_it_loads_with_its_base(base: Path, tmp_path: Path) -> None:
    before = _digest(base)
    tuned = fit(tmp_path, base) / "tuned"
    assert _digest(base) == before
    assert not (tuned / "model.safetensors").exists()
    assert (tuned / "adapter_model.safetensors").stat().st_size < 10_000
    model = load_model(tuned, name="tuned")
    start = load_model(base, name="base")
    tokens = torch.tensor([[1, 2, 3]])
    assert not torch.allclose(model.logits(tokens), start.logits(tokens))
    kept = ludus.load(str(tuned.parent), "last")
    assert torch.allclose(kept.logits(tokens), model.logits(tokens))


def _digest(directory: Path) -> str:
    return hashlib.sha256((directory / "model.safetensors").read_bytes()).hexdigest()


@pytest.mark.parametrize("method", [{"kind": "supervised"}, DPO])
def test_a_run_with_adapters_and_dropout_is_resumed_exactly(
    method: Any, base: Path, tmp_path: Path
) -> None:
    changed = {"lora": {**LORA, "dropout": 0.3}, "method": method}

    class Killed(BaseException):
        """Stands for SIGKILL."""

    whole = fit(tmp_path / "whole", base, **changed)
    changed |= {"settings.checkpoint.every_stages": 2}
    config = small_tuning(
        model=str(base), new_model=None, **{"optimizer.learning_rate": 0.02, **changed}
    )
    trainer = ludus.build_trainer(config)
    train_step = trainer.train_step  # type: ignore[attr-defined]
    steps: list[None] = []

    def step(*given: Any) -> Any:
        if len(steps) == 5:
            raise Killed
        steps.append(None)
        return train_step(*given)

    trainer.train_step = step  # type: ignore[attr-defined]
    with pytest.raises(Killed):
        trainer.fit(root=str(tmp_path / "killed"))
    again = fit(tmp_path / "killed", base, **changed)
    name = "tuned/adapter_model.safetensors"
    assert (again / name).read_bytes() == (whole / name).read_bytes()


def test_dropout_is_off_where_a_model_is_measured(base: Path) -> None:
    trainer = prepared(base, dropout=0.5)
    with torch.no_grad():
        for weight in trained(trainer).values():
            weight.add_(0.1)
    evaluator = trainer.evaluators["validation"]
    first, second = (evaluator.evaluate(trainer.model, None)["loss"] for _ in range(2))
    assert first == second
    trainer.train_data.start(0)
    batch = trainer.train_data.next()
    losses = {trainer.model.training_step(batch, 0)["loss"].item() for _ in range(2)}
    assert len(losses) == 2


def test_an_adapter_is_trained_further_without_a_new_one(base: Path, tmp_path: Path) -> None:
    first = fit(tmp_path / "first", base) / "tuned"
    second = fit(tmp_path / "second", first, lora=None) / "tuned"
    one, two = ((d / "adapter_model.safetensors").read_bytes() for d in (first, second))
    assert one != two
    with pytest.raises(ConfigError, match="an adapter already"):
        fit(tmp_path / "third", first)


def test_a_job_with_adapters(base: Path, tmp_path: Path) -> None:
    from ludus.nn.transformers_models import LoraConfig

    lines = tmp_path / "lines.jsonl"
    lines.write_bytes(majority_lines(0, 32, method="supervised", seed=0))
    job = TuningJob(base, lines, "supervised", 0, n_epochs=1, lora=LoraConfig(**LORA))
    outcome = run_job(job, tmp_path / "job")
    assert outcome.directory is not None
    assert (outcome.directory / "adapter_config.json").is_file()
    assert load_model(outcome.directory, name="x").context == 64
