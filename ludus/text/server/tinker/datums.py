"""Examples of a training batch: token sequences with the inputs of their loss, checked before use."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ludus.core.errors import nearest
from ludus.text.server.tinker.requests import (
    DatumBody,
    ForwardBackwardInput,
    RequestRefused,
    Tensor,
)

LOSSES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "cross_entropy": (("weights",), ()),
    "importance_sampling": (("logprobs", "advantages"), ()),
    "ppo": (("logprobs", "advantages"), ("clip_low_threshold", "clip_high_threshold")),
}
"""Each loss with the inputs it takes besides `target_tokens`, and the keys of its config."""
_OPTIONAL = {"weights"}


@dataclass(frozen=True)
class Datum:
    """One sequence: position i of `tokens` predicts `targets[i]`."""

    tokens: list[int]
    targets: list[int]
    inputs: Mapping[str, list[float]]
    """Numbers for each target, by name."""


@dataclass(frozen=True)
class DatumBatch:
    """A batch that fits a model, and its loss."""

    loss: str
    config: Mapping[str, float]
    datums: list[Datum]

    def to_json(self) -> dict[str, Any]:
        """Return it as plain JSON values."""
        rows = [[one.tokens, one.targets, dict(one.inputs)] for one in self.datums]
        return {"loss": self.loss, "config": dict(self.config), "datums": rows}

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> DatumBatch:
        """Return the batch that `to_json` wrote."""
        return cls(found["loss"], found["config"], [Datum(*row) for row in found["datums"]])


def read_batch(given: ForwardBackwardInput, *, context: int, vocab_size: int) -> DatumBatch:
    """Return the batch; raise RequestRefused, naming the datum, if the model cannot be trained on it."""
    if given.loss_fn not in LOSSES:
        raise RequestRefused(
            f"this server has no loss {given.loss_fn!r}; choose one of {', '.join(LOSSES)}."
            f"{_meant(given.loss_fn)}"
        )
    names, keys = LOSSES[given.loss_fn]
    if not given.data:
        raise RequestRefused("the batch holds no datum; send at least one")
    datums = []
    for number, datum in enumerate(given.data):
        what = f"datum {number}"
        datums.append(_read_datum(datum, what, names, loss=given.loss_fn))
        _check_tokens(datums[-1], what, context=context, vocab_size=vocab_size)
    return DatumBatch(given.loss_fn, _read_config(given, keys), datums)


def _meant(name: str) -> str:
    found = nearest(name, LOSSES)
    return found if found.startswith(" Did") else ""


def _read_config(given: ForwardBackwardInput, keys: Sequence[str]) -> dict[str, float]:
    found = dict(given.loss_fn_config or {})
    for key, value in found.items():
        if key not in keys:
            raise RequestRefused(
                f"loss_fn_config has {key!r}, which the loss {given.loss_fn} does not take"
            )
        if not isinstance(value, float) or not math.isfinite(value) or value < 0:
            raise RequestRefused(
                f"loss_fn_config.{key} is {value!r}; it must be a number of 0 or more"
            )
    return {key: float(value) for key, value in found.items()}


def _read_datum(datum: DatumBody, what: str, names: Sequence[str], *, loss: str) -> Datum:
    tokens = datum.model_input.ints(what)
    given = datum.loss_fn_inputs
    if "target_tokens" not in given:
        raise RequestRefused(
            f"{what} has no 'target_tokens', the token that each position shall predict"
        )
    for name in given:
        if name != "target_tokens" and name not in names:
            raise RequestRefused(
                f"{what} has {name!r}, which the loss {loss} does not take; it takes target_tokens,"
                f" {', '.join(names)}"
            )
    targets = [int(one) for one in _read_vector(given["target_tokens"], f"{what}.target_tokens")]
    if not targets or len(targets) != len(tokens):
        raise RequestRefused(
            f"{what} has {len(tokens)} input tokens and {len(targets)} target_tokens; it needs as many of"
            " both, at least one: the sequence without its last token, and without its first"
        )
    inputs = {}
    for name in names:
        if name not in given and name in _OPTIONAL:
            inputs[name] = [1.0] * len(targets)
            continue
        if name not in given:
            raise RequestRefused(
                f"{what} has no {name!r}, which the loss {loss} needs for each target"
            )
        inputs[name] = _read_floats(given[name], f"{what}.{name}", length=len(targets))
    return Datum(tokens, targets, inputs)


def _read_vector(tensor: Tensor, what: str) -> list[int] | list[float]:
    is_vector = tensor.shape is None or tensor.shape == [len(tensor.data)]
    if tensor.sparse_crow_indices is not None or not is_vector:
        raise RequestRefused(
            f"{what} has the shape {tensor.shape}; this server takes one number for each position"
        )
    return tensor.data


def _read_floats(tensor: Tensor, what: str, *, length: int) -> list[float]:
    found = [float(one) for one in _read_vector(tensor, what)]
    if len(found) != length:
        raise RequestRefused(f"{what} has {len(found)} numbers for {length} target tokens")
    for place, value in enumerate(found):
        if not math.isfinite(value):
            raise RequestRefused(
                f"{what} is {value} at position {place}; it must be a finite number"
            )
    return found


def _check_tokens(datum: Datum, what: str, *, context: int, vocab_size: int) -> None:
    if len(datum.tokens) > context:
        raise RequestRefused(
            f"{what} has {len(datum.tokens)} tokens; the model reads at most {context}"
        )
    for name, tokens in (("model_input", datum.tokens), ("target_tokens", datum.targets)):
        if not 0 <= min(tokens) <= max(tokens) < vocab_size:
            wrong = next(token for token in tokens if not 0 <= token < vocab_size)
            raise RequestRefused(
                f"{what}.{name} has the token {wrong}; the vocabulary has {vocab_size}"
            )
