"""On the same pairs and weights the loss of preferences is that of TRL's DPOTrainer."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
import torch

import ludus
from ludus.text.models.language_model import save_model
from ludus.text.models.new_model import NewModelConfig, make_model
from tests.text.tuning.small import NEW_MODEL, of_lines, small_tuning, write_lines

pytestmark = pytest.mark.slow


def test_the_loss_of_preferences_with_its_cross_entropy_is_that_of_trl(tmp_path: Path) -> None:
    pairs = [
        {
            "prompt": [{"role": "user", "content": f"{i}?"}],
            "chosen": [{"role": "assistant", "content": "yes" * i}],
            "rejected": [{"role": "assistant", "content": "no"}],
        }
        for i in range(1, 5)
    ]
    start = make_model(NewModelConfig(**NEW_MODEL), tmp_path / "start")
    path = write_lines(tmp_path / "pairs.jsonl", pairs)
    trainer = ludus.build_trainer(
        small_tuning(
            model=str(tmp_path / "start"), new_model=None, data=of_lines(path), batch_size=4,
            method={"kind": "dpo", "beta": 0.5, "nll_coef": 1.0}, evaluate_every_epochs=0,
        )
    )  # fmt: skip
    trainer.prepare(max_steps=None)
    trainer.reference.compute()
    with torch.no_grad():
        for one, other in zip(
            trainer.model.module.parameters(), start.module.parameters(), strict=True
        ):
            one.add_(torch.randn(one.shape, generator=torch.Generator().manual_seed(1)) * 0.1)
            other.copy_(one)
    save_model(start, tmp_path / "moved")
    trainer.train_data.start(0)
    found = trainer.model.training_step(trainer.train_data.next(), 0)
    assert found["loss"].item() == pytest.approx(
        trl_loss(tmp_path / "moved", tmp_path / "start", pairs, tmp_path), rel=1e-4
    )


def trl_loss(model: Path, reference: Path, pairs: list[dict[str, object]], root: Path) -> float:
    """Return the loss of one batch of all pairs."""
    with warnings.catch_warnings():
        # What TRL and its own imports say while they are loaded is not ours to mend.
        warnings.simplefilter("ignore")
        from datasets import Dataset
        from transformers import AutoModelForCausalLM, AutoTokenizer
        from trl import DPOConfig, DPOTrainer

        policy, start = (
            AutoModelForCausalLM.from_pretrained(one, dtype=torch.float32)
            for one in (model, reference)
        )
        options = DPOConfig(
            output_dir=str(root / "trl"), beta=0.5, loss_type=["sigmoid", "sft"],
            loss_weights=[1.0, 1.0], per_device_train_batch_size=4, report_to=[], use_cpu=True,
            bf16=False, gradient_checkpointing=False, disable_tqdm=True, max_length=None,
        )  # fmt: skip
        theirs = DPOTrainer(
            model=policy, ref_model=start, args=options, train_dataset=Dataset.from_list(pairs),
            processing_class=AutoTokenizer.from_pretrained(model),
        )  # fmt: skip
        batch = next(iter(theirs.get_train_dataloader()))
        loss: float = theirs.compute_loss(policy.eval(), batch).item()
        return loss
