"""Time one training step of a tiny network, in ludus, in its peers and in plain PyTorch loops.

The work is the same everywhere: Linear(64, 64), ReLU, Linear(64, 10), batches of 64 out of 6,400
random examples in memory, a new permutation every epoch, cross-entropy, Adam at 1e-3, and the loss
logged every 50 steps. Every system sees the same batches and starts from the same weights.

The time is taken inside one training call, between the ends of two known steps that lie a whole
number of epochs apart, so set-up, warming and teardown are outside it. Where the user writes the
step (plain loop, Ignite, Accelerate) the step itself takes the time; elsewhere a hook of the
library does (Lightning's `on_train_batch_end`, HF's `on_step_end`). Each system is used as its
documentation shows, with the cheapest data path it accepts, no progress bar, no clipping, and a
checkpoint only after the last step.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from benchmarks._harness import Case, Role, Row, measure
from benchmarks._supervised_work import (
    BATCH_SIZE,
    LEARNING_RATE,
    LOG_EVERY,
    NUM_EPOCHS,
    Batches,
    LossLog,
    Stopwatch,
    make_adam,
    make_network,
)


def run(rounds: int) -> list[Row]:
    """Return microseconds per step in the steady state, for every system that is installed."""
    return measure(
        [
            _case("raw", "reference", "_raw", {"fused": False}),
            _case("raw_fused", "reference", "_raw", {"fused": True}),
            _case("ignite", "peer", "_ignite", requires="pytorch-ignite"),
            _case("accelerate", "peer", "_accelerate", requires="accelerate"),
            _case("hf_trainer", "peer", "_hf_trainer", requires="transformers"),
            _case("lightning", "peer", "_lightning", requires="lightning"),
            _case("ludus", "ludus", "_ludus", {"engine": "tape"}),
            _case("ludus_compiled", "ludus", "_ludus", {"engine": "compiled"}),
        ],
        rounds,
    )


def _case(
    system: str,
    role: Role,
    function: str,
    arguments: dict[str, bool] | None = None,
    *,
    requires: str | None = None,
) -> Case:
    """Return the case of one system on this benchmark's only work."""
    return Case(
        work="tiny MLP step",
        system=system,
        unit="us/step",
        role=role,
        module=__name__,
        function=function,
        arguments=arguments or {},
        requires=(requires,) if requires else (),
    )


def _raw(fused: bool) -> float:
    """Time a plain PyTorch loop."""
    network, batches, log, stopwatch = make_network(), Batches(), LossLog(), Stopwatch()
    optimizer = make_adam(network, fused=fused)
    step = 0
    for _ in range(NUM_EPOCHS):
        for inputs, labels in batches:
            optimizer.zero_grad()
            loss = cross_entropy(network(inputs), labels)
            loss.backward()
            optimizer.step()
            step += 1
            if step % LOG_EVERY == 0:
                log(step, loss.item())
            stopwatch()
    torch.save(network.state_dict(), "network.pt")
    return stopwatch.microseconds_per_step()


def _ignite() -> float:
    """Time Ignite's engine, whose step function the user writes."""
    from ignite.engine import Engine, Events

    network, log, stopwatch = make_network(), LossLog(), Stopwatch()
    optimizer = make_adam(network)

    def train_step(engine: Engine, batch: tuple[Tensor, Tensor]) -> Tensor:
        inputs, labels = batch
        optimizer.zero_grad()
        loss = cross_entropy(network(inputs), labels)
        loss.backward()
        optimizer.step()
        stopwatch()
        return loss

    trainer = Engine(train_step)

    @trainer.on(Events.ITERATION_COMPLETED(every=LOG_EVERY))
    def log_loss(engine: Engine) -> None:
        log(engine.state.iteration, engine.state.output.item())

    trainer.run(Batches(), max_epochs=NUM_EPOCHS)
    torch.save(network.state_dict(), "network.pt")
    return stopwatch.microseconds_per_step()


def _accelerate() -> float:
    """Time a plain loop over what Accelerate has prepared."""
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    bare_network = make_network()
    log, stopwatch = LossLog(), Stopwatch()
    network, optimizer, batches = accelerator.prepare(
        bare_network, make_adam(bare_network), Batches()
    )
    step = 0
    for _ in range(NUM_EPOCHS):
        for inputs, labels in batches:
            optimizer.zero_grad()
            loss = cross_entropy(network(inputs), labels)
            accelerator.backward(loss)
            optimizer.step()
            step += 1
            if step % LOG_EVERY == 0:
                log(step, loss.item())
            stopwatch()
    torch.save(accelerator.unwrap_model(network).state_dict(), "network.pt")
    return stopwatch.microseconds_per_step()


def _hf_trainer() -> float:
    """Time the Hugging Face Trainer with its default optimiser, a fused AdamW without decay."""
    from transformers import PrinterCallback, Trainer, TrainerCallback, TrainingArguments

    class Classifier(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = make_network()

        def forward(self, inputs: Tensor, labels: Tensor) -> dict[str, Tensor]:
            logits = self.network(inputs)
            return {"loss": cross_entropy(logits, labels), "logits": logits}

    class NamedBatches(Batches):
        def __iter__(self) -> Iterator[dict[str, Tensor]]:
            return ({"inputs": inputs, "labels": labels} for inputs, labels in super().__iter__())

    class InMemoryTrainer(Trainer):
        def get_train_dataloader(self) -> NamedBatches:
            return NamedBatches()

    class TimeSteps(TrainerCallback):
        def on_step_end(self, *_: Any, **__: Any) -> None:
            stopwatch()

    stopwatch = Stopwatch()
    options = TrainingArguments(
        output_dir=".",
        use_cpu=True,
        per_device_train_batch_size=BATCH_SIZE,
        num_train_epochs=NUM_EPOCHS,
        learning_rate=LEARNING_RATE,
        lr_scheduler_type="constant",
        max_grad_norm=0.0,
        logging_steps=LOG_EVERY,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )
    trainer = InMemoryTrainer(model=Classifier(), args=options, callbacks=[TimeSteps()])
    # The losses are kept in the trainer's own history; printing them too would only cost it time.
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    trainer.save_model("network")
    return stopwatch.microseconds_per_step()


def _lightning() -> float:
    """Time Lightning's Trainer with its CSV logger."""
    from lightning import LightningModule, Trainer
    from lightning.pytorch.loggers import CSVLogger

    class Classifier(LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.network = make_network()

        def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
            inputs, labels = batch
            loss = cross_entropy(self.network(inputs), labels)
            self.log("loss", loss)
            return loss

        def configure_optimizers(self) -> torch.optim.Adam:
            return make_adam(self)

        def on_train_batch_end(self, *_: Any) -> None:
            stopwatch()

    stopwatch = Stopwatch()
    trainer = Trainer(
        accelerator="cpu",
        max_epochs=NUM_EPOCHS,
        log_every_n_steps=LOG_EVERY,
        logger=CSVLogger("."),
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Classifier(), Batches())
    trainer.save_checkpoint("network.ckpt")
    return stopwatch.microseconds_per_step()


def _ludus(engine: str) -> float:
    """Time the supervised trainer of ludus, its update executed by this engine.

    Everything a user has is on: metrics.jsonl and TensorBoard every 50 steps, exact checkpoints in
    the background (one every 2,000 steps), non-finite guard, epoch accuracy, hooks, the display.
    """
    import ludus
    from ludus.data.batches.splits import Examples

    data = Batches()
    config = ludus.example("supervised").replace(
        data=None,
        model=None,
        batch_size=BATCH_SIZE,
        max_epochs=NUM_EPOCHS,
        max_grad_norm=None,
        ema_decay=None,
        engine=engine,
        evaluate_every_epochs=0,
        evaluation__patience=None,
        evaluation__keep=0,
        log_every_opt_steps=LOG_EVERY,
        optimizer=_ADAM,
        learning_rate_schedule={"kind": "constant", "warmup_steps": 0},
        **{
            "settings.threads": 1,
            "settings.display": "plain",
            "settings.checkpoint.every_opt_steps": 2000,
        },
    )
    stopwatch = Stopwatch()
    trainer = ludus.Trainer(config, train_loader=Examples(data.inputs, data.labels))
    trainer.set_model(make_network())
    trainer.add(_AfterStep(stopwatch))
    trainer.fit(show_on="stderr")
    return stopwatch.microseconds_per_step()


_ADAM = {
    "kind": "adam",
    "learning_rate": LEARNING_RATE,
    "beta1": 0.9,
    "beta2": 0.999,
    "eps": 1e-8,
    "weight_decay": 0.0,
}


class _AfterStep:
    """A user's callback: one hook, called after every step."""

    def __init__(self, stopwatch: Stopwatch) -> None:
        self._stopwatch = stopwatch

    def after_step(self) -> None:
        """Count the step."""
        self._stopwatch()
