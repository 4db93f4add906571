"""Train a real network with Hugging Face's Trainer, eagerly or compiled."""

from typing import Any

import torch
from transformers import Trainer, TrainerCallback, TrainingArguments

from benchmarks import _real_work as shared


class Learner(torch.nn.Module):
    """Returns the loss, as such models do."""

    def __init__(self, network: torch.nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, inputs: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return the loss of a batch."""
        return {"loss": shared.loss_fn(self.network(inputs), labels)}


class Count(TrainerCallback):
    """Counts steps."""

    def __init__(self, watch: shared.Stopwatch) -> None:
        self._watch = watch

    def on_step_end(self, args: Any, state: Any, control: Any, **given: object) -> None:
        """Stop when there were enough."""
        if self._watch():
            control.should_training_stop = True


class Fed(Trainer):
    """Takes batches that are on the device already."""

    feed: Any = None

    def get_train_dataloader(self) -> Any:
        """Return the batches."""
        return self.feed


class Feed(torch.utils.data.IterableDataset[Any]):
    """The batches by name, for ever."""

    def __init__(self, work: shared.Work, device: str) -> None:
        self._work, self._device = work, device

    def __iter__(self) -> Any:
        for inputs, labels in shared.batches(self._work, self._device):
            yield {"inputs": inputs, "labels": labels}


def measure(work: str, device: str, compiled: bool) -> dict[str, float]:
    """Return the rate, the memory and the time to the first step."""
    shared.be_exact()
    todo = shared.WORKS[device][work]
    watch = shared.Stopwatch(todo, device)
    options = TrainingArguments(
        output_dir="out", bf16=True, max_grad_norm=shared.MAX_GRAD_NORM, max_steps=10**6,
        learning_rate=shared.LEARNING_RATE, weight_decay=shared.WEIGHT_DECAY,
        optim="adamw_torch_fused", torch_compile=compiled, report_to=[], logging_strategy="no",
        save_strategy="no", disable_tqdm=True, use_cpu=device == "cpu",
    )  # fmt: skip
    model = Learner(shared.make_network(todo, device))
    trainer = Fed(model=model, args=options, callbacks=[Count(watch)])
    trainer.feed = torch.utils.data.DataLoader(Feed(todo, device), batch_size=None)
    trainer.train()
    assert watch.answer is not None
    return watch.answer
