"""Call a network with a batch, and find the loss and the logits in its output.

A torch network takes tensors by position; a Hugging Face model takes the tensors of a dict by keyword and
returns an object with `loss` and `logits`. Which of the two applies is read once, from the signature of
`forward`.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ludus.core.errors import LudusError

LABELS = "labels"
"""The key of the targets in a dict, as Hugging Face's collators name it."""
_OUTPUTS = ("logits", "out")
"""The attributes of a structured output that hold the predictions: transformers' name, and torchvision's."""
_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class Signature:
    """Calls a network according to the signature of its `forward`: with a dict whole, or by keywords."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        found = list(inspect.signature(module.forward).parameters.values())
        self._names = {one.name for one in found if one.kind in _NAMED}
        self._takes_any = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in found)
        needed = [one for one in found if one.default is inspect.Parameter.empty]
        self._required = {one.name for one in needed if one.kind in _NAMED}
        self._takes_one = len(self._required) < 2

    def call(self, inputs: object) -> Any:
        """Return the network's output for a tensor, or for a dict, unpacked if `forward` takes its keys."""
        # A tensor is no Mapping, but isinstance is slower with an abstract class than with a plain one.
        if isinstance(inputs, Tensor):
            return self.module(inputs)
        if isinstance(inputs, Mapping) and self._takes_keywords({*inputs}):
            return self.module(**inputs)
        return self.module(inputs)

    def call_whole(self, batch: object) -> Any:
        """Return the output of a network that computes its own loss, for a batch with its targets."""
        return self.module(*batch) if isinstance(batch, list | tuple) else self.call(batch)

    def _takes_keywords(self, given: set[str]) -> bool:
        if self._required <= given and (self._takes_any or given <= self._names):
            return True
        if self._takes_one and not self._names & given:
            return False
        lacking, unknown = sorted(self._required - given), sorted(given - self._names)
        what = f"needs {', '.join(lacking)}" if lacking else f"does not take {', '.join(unknown)}"
        raise LudusError(
            f"a batch is a dict of {', '.join(sorted(given))}, but the forward of"
            f" {type(self.module).__name__} {what}; let the loader's collate_fn name what it takes"
        )


def split_batch(batch: object) -> tuple[Any, Any]:
    """Return the inputs and the targets of a batch: a pair, or a dict with `labels`."""
    if isinstance(batch, tuple | list) and len(batch) == 2:
        return batch[0], batch[1]
    if isinstance(batch, Mapping):
        if LABELS not in batch:
            raise LudusError(
                f"a batch is a dict of {', '.join(map(str, batch))}, without '{LABELS}'; let the loader's"
                f" collate_fn name the targets so, or set 'loss' to from_model if the model computes its own"
            )
        return {key: value for key, value in batch.items() if key != LABELS}, batch[LABELS]
    raise LudusError(
        f"a batch is a {type(batch).__name__}; make it a pair of inputs and targets, or a dict with"
        f" '{LABELS}'"
    )


def outputs_in(said: object) -> Tensor:
    """Return the predictions in a network's output: the tensor itself, or its `logits`."""
    found = said if isinstance(said, Tensor) else unwrapped(said)
    if isinstance(found, Tensor):
        return found
    raise LudusError(
        f"the model returned {_kind(said)} without 'logits'; return a tensor of outputs, or a dict or an"
        " object that holds them as 'logits'"
    )


def unwrapped(said: object) -> Any:
    """Return the `logits` in a network's output, or the whole output if it has none."""
    if isinstance(said, Tensor):
        return said
    for name in _OUTPUTS:
        found = _part(said, name)
        if isinstance(found, Tensor):
            return found
    return said


def loss_in(said: object) -> Tensor:
    """Return the loss in a network's output: its `loss`, or the one number that it returned."""
    found = said if isinstance(said, Tensor) else _part(said, "loss")
    if isinstance(found, Tensor) and found.numel() == 1:
        return found.reshape(())
    if isinstance(found, Tensor):
        what = f"a tensor of shape {tuple(found.shape)} as the loss; return its mean"
    elif found is None and not isinstance(said, tuple):
        what = (
            f"{_kind(said)} without a 'loss'; give it the targets (transformers models take them as"
            f" '{LABELS}'), or name one of ludus's losses"
        )
    else:
        what = f"{_kind(said)}; return a dict or an object with 'loss'"
    raise LudusError(f"'loss' is from_model, but the model returned {what}")


def correct_in(said: object, batch: object) -> Tensor | None:
    """Return the number of correct classes; None unless logits are (N, C) and labels integers (N,)."""
    if not isinstance(batch, Mapping) or isinstance(said, Tensor):
        return None
    logits, labels = _part(said, "logits"), batch.get(LABELS)
    if not (isinstance(logits, Tensor) and isinstance(labels, Tensor)):
        return None
    is_plain = logits.ndim == 2 and logits.shape[1] > 1 and labels.shape == logits.shape[:1]
    if not is_plain or labels.dtype.is_floating_point or labels.dtype == torch.bool:
        return None
    return (logits.detach().argmax(1) == labels).sum()


def _part(said: object, name: str) -> Any:
    return said.get(name) if isinstance(said, Mapping) else getattr(said, name, None)


def _kind(said: object) -> str:
    if said is None:
        return "nothing"
    if isinstance(said, Mapping):
        return f"a {type(said).__name__} of {', '.join(map(str, said)) or 'nothing'}"
    return f"a {type(said).__name__}"
