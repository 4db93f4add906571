"""One update of a Model: gradient accumulation over batches, and sums over the epoch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ludus.core import states
from ludus.core.errors import LudusError
from ludus.fit.more_metrics import MORE, MoreMetrics
from ludus.nn.ema import TOTAL, without_total
from ludus.nn.engines.batches import OnBatches
from ludus.nn.engines.choice import Chosen, Subject
from ludus.nn.engines.guarded import GuardedCall
from ludus.nn.engines.module_guard import Executed
from ludus.nn.engines.unsaved import PlainState
from ludus.nn.flat import Vectors, copy_all
from ludus.nn.learner import Forward, Learner
from ludus.nn.memory_format import MemoryFormat, with_channels_last
from ludus.nn.model import Model
from ludus.nn.recompute import Recomputed
from ludus.nn.update import Update

COMPILED = "compiled"
"""The state key of compilation; present if the network is called through the compiler."""


class StepModule(nn.Module):
    """Wraps `training_step` as a forward pass, so that it can be called with other weights."""

    def __init__(
        self,
        model: Model,
        memory_format: MemoryFormat = "contiguous",
        recomputed: Recomputed | None = None,
    ) -> None:
        super().__init__()
        self.module = model.module
        self._has_channels_last = memory_format == "channels_last"
        self._recomputed = recomputed
        # In a list, so that torch does not register the Model as a child of this module.
        self._model = [model]

    def forward(self, batch: object, batch_idx: int) -> dict[str, Tensor]:
        """Return the result of the model's training_step."""
        if self._has_channels_last:
            batch = with_channels_last(batch)
        if self._recomputed is None:
            return self._model[0].training_step(batch, batch_idx)
        with self._recomputed.on():
            return self._model[0].training_step(batch, batch_idx)


class ModelUpdate(Update):
    """Learns from one batch at a time; a part that holds everything learning changes.

    The Learner defines a step and when it is skipped; the loss and gradient norm that a step returns show
    that when they are logged, without waiting for the device at every step. `num_counted` are the examples
    of the epoch so far.
    """

    names_weights = True  # in weights.jsonl, where other updates are named by their learner
    worth_compiling = 200_000

    def __init__(
        self,
        model: Model,
        learner: Learner,
        *,
        accumulate: int,
        first_batch: Callable[[], object] = lambda: None,
    ) -> None:
        """The learner calls a StepModule of the model; `accumulate` is the number of batches of a step, and
        `first_batch` returns an example of them, or None."""
        self.model, self._first_batch = model, first_batch
        # Loss times examples, correct predictions, examples with a prediction.
        super().__init__(learner, ("loss", "correct", "answered"))
        self._accumulate = accumulate
        self._shows_norm = learner.precision != "float16"
        self.num_gathered = 0
        """Number of batches accumulated in the gradient for the next step."""
        self._totals = tuple(self.totals)
        self.more = MoreMetrics(self.totals.dtype)
        self.num_in_batch = 0
        """Number of examples in the last batch."""
        self._is_eager = True
        self._is_called = True
        """Whether autograd adds to `.grad` at each step; an engine that replays uses its vectors instead."""
        self._network: GuardedCall | None = None
        self._execute_accumulate: Executed = self.accumulate

    def execute_by(self, chosen: Chosen) -> None:
        """Execute `accumulate` and `update` by an engine from now on."""
        if chosen.used == "compiled" and (inputs := self.example_inputs()) is not None:
            self.more.find(self.model, inputs[0])
        self._is_eager = self._is_called = chosen.is_eager
        by = chosen.by
        if chosen.used in ("tape", "graph"):
            by = partial(OnBatches, by=chosen.by, copies=chosen.used == "tape")
        self._execute_accumulate, self.execute = by(self.accumulate), by(self.update)

    def call_network(self, call: GuardedCall) -> None:
        """Call the network and its loss through torch's compiler from now on."""
        self._is_eager, self._is_called, self._network = False, True, call
        self.learner.forward = call

    @property
    def ema(self) -> Vectors | None:
        """The averaged weights to evaluate, if any: the EMA's or the optimizer's."""
        ema = self.learner.ema
        return self.optimizer.evaluated if ema is None else ema.vectors

    def begin_mean(self) -> None:
        """Reset the averaged weights, if any, to the current weights."""
        if (ema := self.learner.ema) is not None:
            copy_all(ema.vectors, self.flat.vectors)
        self.optimizer.begin_mean()

    def subject(self) -> Subject:
        """Return the update; the model decides what it computes."""
        return super().subject()._replace(owner=self.model, others=[self.model])

    def note_plain_state(self) -> None:
        """Note the plain attributes of the model and its network, and the settings of torch's layers."""
        self.plain_state = PlainState(self.model, self.model.module, layers=self.model.module)

    def example_inputs(self) -> tuple[object, ...] | None:
        """Return inputs of `update`: a batch, the rate and, with accumulation, 1 / batches of a step."""
        batch = self._first_batch()
        return None if batch is None else (batch, *self._rate_and_scale(0.0, 1))

    def _rate_and_scale(self, learning_rate: float, num_batches: int) -> tuple[Tensor | None, ...]:
        if self._accumulate == 1:
            return *self.scalars(learning_rate), None
        return self.scalars(learning_rate, 1 / num_batches)

    def step(
        self, batch: object, batch_idx: int, *, learning_rate: float, is_last: bool
    ) -> dict[str, Any]:
        """Learn from a batch; `is_last` completes the step even with fewer accumulated batches."""
        count = self.num_in_batch = count_examples(batch)
        self.num_counted += count
        self.num_gathered += 1
        # An engine always replays with index 0: the update may not depend on it.
        index = (batch_idx,) if self._is_eager else ()
        if self.num_gathered < self._accumulate and not is_last:
            loss, *more = self._execute_accumulate(batch, *index)
            return {"train/loss": loss, **self.more.take(more, count)}
        numbers = self._rate_and_scale(learning_rate, self.num_gathered)
        found = self.execute(batch, *numbers, *index)
        self.num_gathered = 0
        metrics = {"train/loss": found[0]}
        if self._shows_norm:
            metrics["train/grad_norm"] = found[1]
        return metrics | self.more.take(found[2:], count) if len(found) > 2 else metrics

    def accumulate(self, batch: object, batch_idx: int = 0) -> tuple[Tensor, ...]:
        """Accumulate the gradient of one batch; return its loss and further metrics."""
        loss, result = self.learner.accumulate(_loss_fn(batch, batch_idx))
        self._count(loss, result, batch)
        return loss, *self.more.of(result)

    def update(
        self, batch: object, rate: Tensor, grad_scale: Tensor | None, batch_idx: int = 0
    ) -> tuple[Tensor, ...]:
        """Take a step with its last batch; return its loss, the gradient norm and further metrics."""
        loss_fn = _loss_fn(batch, batch_idx)
        loss, norm, result = self.learner.step(loss_fn, rate, grad_scale=grad_scale)
        self._count(loss, result, batch)
        return loss, norm, *self.more.of(result)

    def _count(self, loss: Tensor, result: Mapping[str, Tensor], batch: object) -> None:
        totals = self.totals if torch.compiler.is_compiling() else self._totals
        count = count_examples(batch)
        totals[0].add_(loss, alpha=count)
        if "correct" in result:
            totals[1].add_(result["correct"])
            totals[2].add_(count)

    def inexact_because(self) -> list[str]:
        """Return the reasons from a network that is compiled, or changes what no state_dict has."""
        compiled = [] if self._network is None else self._network.inexact_because()
        return [*compiled, *super().inexact_because()]

    def check(self) -> None:
        """Raise Diverged after too many consecutive overflows in half precision.

        Raise LudusError if a script has detached weights or gradients from the trained vectors.
        """
        self.learner.scaling.check()
        self.flat.check_trained(self.model.module)
        if self._is_called:
            self.flat.check_gradients()

    def close_epoch(self) -> dict[str, float]:
        """Return the mean loss and accuracy over the examples of this epoch, and reset the sums."""
        loss, correct, answered = self.totals.tolist()
        metrics: dict[str, float] = {}
        if self.num_counted:
            metrics["train/epoch_loss"] = loss / self.num_counted
        if answered:
            metrics["train/epoch_accuracy"] = correct / answered
        metrics |= self.more.close_epoch()
        self.totals.zero_()
        self.num_counted = 0
        return metrics

    def drop_unfinished(self) -> None:
        """Discard the batches of an unfinished step and epoch."""
        if self.num_gathered:
            self.flat.clear_gradients()
        self.num_gathered = 0
        self.close_epoch()

    def state_dict(self) -> dict[str, Any]:
        """Return everything but the weights and the optimizer, which are parts of their own."""
        return {
            **self.learner.step_state(),
            "gradient": self.flat.gradients_by_name() if self.num_gathered else None,
            "num_gathered": self.num_gathered,
            "totals": self.totals,
            "num_examples": self.num_counted,
            **self.more.state(),
            **({} if self._network is None else {COMPILED: self._network.state_dict()}),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a saved state in place."""
        names = ("gradient", "num_gathered", "totals", "num_examples")
        known = without_total(self.learner.step_state())
        optional = [MORE, COMPILED] if self.learner.ema is None else [TOTAL, MORE, COMPILED]
        states.check_keys(state, *known, *names, optional=optional)
        num_gathered = states.whole(state, "num_gathered", at_most=self._accumulate - 1)
        if num_gathered > 0:
            with states.within("gradient"):
                self.flat.check(state["gradient"], finite=False)
        elif state["gradient"] is not None:
            raise states.StateError("gradient", "is there, where this run has none")
        num_examples = states.whole(state, "num_examples")
        totals = states.like(state, "totals", self.totals)
        more = self.more.read(state)
        self.learner.load_step_state(state)
        self.more.load(*more)
        if self._network is not None and COMPILED in state:
            with states.within(COMPILED):
                self._network.load_state_dict(state[COMPILED])
        self.flat.clear_gradients()
        if num_gathered:
            self.flat.load_gradients(state["gradient"])
        self.num_gathered, self.num_counted = num_gathered, num_examples
        self.totals.copy_(totals)


def _loss_fn(
    batch: object, batch_idx: int
) -> Callable[[Forward], tuple[Tensor, dict[str, Tensor]]]:
    """Return the loss of a batch as a function of the model."""

    def loss_fn(forward: Forward) -> tuple[Tensor, dict[str, Tensor]]:
        result = forward(batch, batch_idx)
        if result.__class__ is not dict or "loss" not in result:
            result = _refuse_lossless(result)
        return result["loss"], result

    return loss_fn


def _refuse_lossless(result: object) -> dict[str, Tensor]:
    """Return a step's result as a dict; raise LudusError if it has no loss."""
    if isinstance(result, Mapping) and "loss" in result:
        return dict(result)
    found = "nothing" if result is None else f"a {type(result).__name__} without one"
    raise LudusError(f"training_step returned no 'loss' but {found}; return a dict with one")


def count_examples(batch: object) -> int:
    """Return the number of examples in a batch: the rows of its first tensor that has any."""
    # The common case, called several times per step.
    if batch.__class__ is tuple and batch and batch[0].__class__ is Tensor and batch[0].ndim:
        return int(batch[0].shape[0])
    tensor = _first_tensor(batch)
    if tensor is None:
        raise LudusError(
            f"a batch is a {type(batch).__name__} without a tensor whose rows are examples; let the"
            " loader's collate_fn make one"
        )
    return tensor.shape[0]


def _first_tensor(batch: object) -> Tensor | None:
    if isinstance(batch, Tensor):
        return batch if batch.ndim else None
    if not isinstance(batch, Mapping | list | tuple):
        return None
    values = batch.values() if isinstance(batch, Mapping) else batch
    return next((one for one in map(_first_tensor, values) if one is not None), None)
