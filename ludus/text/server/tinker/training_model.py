"""TrainingModel: a language model with its learner, the gradient that waits, and the state of both."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ludus.core import states
from ludus.losses import language
from ludus.nn.learner import Forward, Learner
from ludus.nn.optimizers.adam import Adam
from ludus.nn.torch_optimizer import make_optimizer
from ludus.store.state_folder import read_state, write_state
from ludus.text.models.language_model import LanguageModel, write_files
from ludus.text.server.tinker.datums import Datum, DatumBatch
from ludus.text.server.tinker.lora import LoraShape, adapt, merged
from ludus.text.server.tinker.outcomes import ForwardOutput
from ludus.text.server.tinker.requests import AdamParams, RequestRefused

STATE = "training_state"
"""The directory of a saved model that holds what sampling does not need."""
WHAT = "the state of a training run"
_MAX_TOKENS = 16_384
"""The tokens, padding included, of one pass through the network."""
# Above 1, so that the weights after each step are checked: a request may ask for any learning rate.
_HIGHEST_RATE = 2.0


LossOf = Callable[[Forward], tuple[Tensor, Tensor]]
Compute = Callable[[LossOf], tuple[Tensor, Tensor]]
"""Returns a loss and its log-probabilities, from the loss as a function of the network."""


class TrainingModel:
    """Accumulates gradients of batches and takes steps along them; all weights, or LoRA adapters.

    Everything is computed without dropout, so a repeated request finds the same bytes.
    """

    def __init__(self, model: LanguageModel, lora: LoraShape | None) -> None:
        self.model = model
        if lora is not None:
            adapt(model.module, lora)
        self._params = AdamParams()
        self.learner = Learner(
            model.module, _config(self._params), max_grad_norm=None, highest_rate=_HIGHEST_RATE
        )
        self._num_batches = 0
        """The batches whose gradient waits for a step."""
        self._is_broken = False
        """Whether a batch failed since the last step, so that the gradient would lack it."""

    def forward(self, batch: DatumBatch) -> ForwardOutput:
        """Return the log-probabilities of a batch; no gradient."""
        with torch.no_grad():
            return self._run(batch, lambda loss: loss(self.learner.module))

    def forward_backward(self, batch: DatumBatch) -> ForwardOutput:
        """Add the gradient of a batch's loss, a sum over its tokens, to the one that waits."""
        found = self._run(batch, lambda loss: self.learner.accumulate(loss, in_train_mode=False))
        self._num_batches += 1
        return found

    def skip(self, kind: str) -> None:
        """Account for a request that failed: a step needs every batch that was sent for it."""
        if kind == "forward_backward":
            self._is_broken = True
        elif kind == "optim_step":
            self._num_batches, self._is_broken = 0, False
            self.learner.flat.clear_gradients()

    def _run(self, batch: DatumBatch, compute: Compute) -> ForwardOutput:
        datums = batch.datums
        lengths = [len(datum.targets) for datum in datums]
        found: list[Any] = [None] * len(datums)
        total = 0.0
        for places in _groups(lengths):
            chosen = [datums[place] for place in places]
            loss, log_probs_BT = compute(_LossOf(chosen, batch, self.model.device))
            total += float(loss)
            rows = log_probs_BT.float().cpu().numpy()
            for row, place in zip(rows, places, strict=True):
                found[place] = row[: lengths[place]]
        return ForwardOutput(np.concatenate(found), tuple(lengths), {"loss:sum": total})

    def optim_step(self, params: AdamParams) -> dict[str, float]:
        """Take one step along the gradient; raise RequestRefused if there is none or it is broken.

        In every case the gradient is cleared.
        """
        num_batches, is_broken = self._num_batches, self._is_broken
        self._num_batches, self._is_broken = 0, False
        if is_broken or num_batches == 0:
            self.learner.flat.clear_gradients()
            why = (
                "a forward_backward since the last step failed"
                if is_broken
                else "there is no gradient"
            )
            raise RequestRefused(
                f"no optimizer step was taken: {why}; send the batches, then optim_step again"
            )
        self._set_optimizer(params)
        step = self.learner.gradient_step
        step.max_grad_norm = params.grad_clip_norm if params.grad_clip_norm > 0 else None
        rate = torch.tensor(params.learning_rate, device=self.learner.flat.device)
        norm = float(step.take(self.learner.flat.gradients, rate, None))
        if not np.isfinite(norm):
            raise RequestRefused(
                "no optimizer step was taken: the gradient, or a weight after the step, would not be finite;"
                " lower the learning rate or the advantages"
            )
        return {"grad_norm": norm, "num_batches": float(num_batches)}

    def _set_optimizer(self, params: AdamParams) -> None:
        """Give the optimizer other constants; its moments stay."""
        if _config(params) == _config(self._params):
            return
        state = self.learner.optimizer.state_dict()
        self._params = params
        flat = self.learner.flat
        optimizer = make_optimizer(_config(params), self.learner.module, flat)
        optimizer.load_state_dict(state)
        self.learner.optimizer = self.learner.gradient_step.optimizer = optimizer

    def save_model(self, folder: Path) -> None:
        """Write the model, adapters merged, into an empty directory that `load_model` reads."""
        with merged(self.model.module):
            write_files(self.model, folder)

    def save(self, folder: Path) -> None:
        """Write the model and the state of training into an empty directory."""
        self.save_model(folder)
        write_state(folder / STATE, self.state_dict(with_gradient=False), what=WHAT)

    def load(self, folder: Path, *, with_optimizer: bool) -> None:
        """Load what `save` wrote; the gradient that waits is cleared."""
        saved, _ = read_state(folder / STATE, what=WHAT)
        own = self.state_dict(with_gradient=False)
        if not with_optimizer:
            saved = {**own, "weights": saved["weights"]}
            fresh = make_optimizer(_config(self._params), self.learner.module, self.learner.flat)
            saved["optimizer"] = fresh.state_dict()
        self.load_state_dict(saved)

    def state_dict(self, *, with_gradient: bool = True) -> dict[str, Any]:
        """Return all that later steps depend on: trained weights, moments, and the gradient that waits."""
        flat = self.learner.flat
        return {
            "weights": flat.by_name(flat.vectors),
            "optimizer": self.learner.optimizer.state_dict(),
            "adam": self._params.model_dump(exclude={"type"}),
            "gradient": flat.gradients_by_name() if with_gradient and self._num_batches else None,
            "num_batches": self._num_batches if with_gradient else 0,
            "is_broken": self._is_broken if with_gradient else False,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Copy a saved state in."""
        states.check_keys(
            state, "weights", "optimizer", "adam", "gradient", "num_batches", "is_broken"
        )
        flat = self.learner.flat
        self._set_optimizer(AdamParams(**state["adam"]))
        flat.load(flat.vectors, state["weights"])
        self.learner.optimizer.load_state_dict(state["optimizer"])
        flat.clear_gradients()
        if state["gradient"] is not None:
            flat.load_gradients(state["gradient"])
        self._num_batches = states.whole(state, "num_batches")
        self._is_broken = states.flag(state, "is_broken")


class _LossOf:
    """The loss of some datums as a function of the network; its aux is their log-probabilities."""

    def __init__(self, datums: Sequence[Datum], batch: DatumBatch, device: torch.device) -> None:
        self._batch = batch
        self._tokens_BT = _padded([one.tokens for one in datums], torch.int64, device)
        self._targets_BT = _padded([one.targets for one in datums], torch.int64, device)
        self._lengths_B = torch.tensor([len(one.targets) for one in datums], device=device)
        # Padding has weight and advantage 0, so it adds nothing to any loss.
        self._inputs = {
            name: _padded([one.inputs[name] for one in datums], torch.float32, device)
            for name in datums[0].inputs
        }

    def __call__(self, forward: Forward) -> tuple[Tensor, Tensor]:
        logits_BTV = forward(self._tokens_BT, self._lengths_B)
        log_probs_BT = language.token_log_probs(logits_BTV, self._targets_BT)
        given, config = self._inputs, self._batch.config
        if self._batch.loss == "cross_entropy":
            return language.cross_entropy(log_probs_BT, given["weights"]), log_probs_BT.detach()
        old, advantages = given["logprobs"], given["advantages"]
        if self._batch.loss == "importance_sampling":
            loss = language.importance_sampling(log_probs_BT, old, advantages)
        else:
            loss = language.ppo(
                log_probs_BT,
                old,
                advantages,
                clip_low=config.get("clip_low_threshold", 0.8),
                clip_high=config.get("clip_high_threshold", 1.2),
            )
        return loss, log_probs_BT.detach()


def _groups(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Yield the places of datums to compute together: of similar length, up to a number of tokens."""
    group: list[int] = []
    for place in sorted(range(len(lengths)), key=lambda place: (lengths[place], place)):
        if group and (len(group) + 1) * lengths[place] > _MAX_TOKENS:
            yield group
            group = []
        group.append(place)
    yield group


def _padded(rows: Sequence[Sequence[float]], dtype: torch.dtype, device: torch.device) -> Tensor:
    longest = max(map(len, rows))
    whole = [[*row, *[0] * (longest - len(row))] for row in rows]
    return torch.tensor(whole, dtype=dtype, device=device)


def _config(params: AdamParams) -> Adam:
    return Adam(
        kind="adamw",
        learning_rate=1.0,
        beta1=params.beta1,
        beta2=params.beta2,
        eps=params.eps,
        weight_decay=params.weight_decay,
    )
