"""Train a real network with Lightning, eagerly or compiled."""

from typing import Any

import lightning
import torch

from benchmarks import _real_work as shared


class Learner(lightning.LightningModule):
    """The network, its loss and its optimizer."""

    def __init__(self, network: torch.nn.Module, watch: shared.Stopwatch) -> None:
        super().__init__()
        self.network, self._watch = network, watch

    def training_step(self, batch: Any, index: int) -> torch.Tensor:
        """Return the loss of a batch."""
        inputs, targets = batch
        return shared.loss_fn(self.network(inputs), targets)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return AdamW, unfused: Lightning refuses to clip the gradients of a fused one."""
        return shared.make_optimizer(self.network, fused=False)

    def on_train_batch_end(self, *given: object) -> None:
        """Count the step."""
        if self._watch():
            self.trainer.should_stop = True


def measure(work: str, device: str, compiled: bool) -> dict[str, float]:
    """Return the rate, the memory and the time to the first step."""
    shared.be_exact()
    todo = shared.WORKS[device][work]
    watch = shared.Stopwatch(todo, device)
    learner: Any = Learner(shared.make_network(todo, device), watch)
    if compiled:
        learner.network = torch.compile(learner.network)
    trainer = lightning.Trainer(
        accelerator="gpu" if device == "cuda" else "cpu", devices=1, precision="bf16-mixed",
        gradient_clip_val=shared.MAX_GRAD_NORM, max_epochs=1, logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        limit_train_batches=shared.NUM_WARM_STEPS + todo.num_steps,
    )  # fmt: skip
    loader: Any = Loader(todo, device)
    trainer.fit(learner, loader)
    assert watch.answer is not None
    return watch.answer


class Loader:
    """The batches, which are on the device already."""

    def __init__(self, work: shared.Work, device: str) -> None:
        self._work, self._device = work, device

    def __iter__(self) -> Any:
        return shared.batches(self._work, self._device)
