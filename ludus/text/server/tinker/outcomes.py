"""Outcomes of requests: a JSON result, the log-probabilities of a forward pass, samples, or an error."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

Category = Literal["user", "server"]
StopReason = Literal["stop", "length"]


@dataclass(frozen=True)
class JsonOutput:
    """The result of a request that answers with plain JSON."""

    value: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        """Return the body of the answer."""
        return dict(self.value)


@dataclass(frozen=True)
class ForwardOutput:
    """The log-probabilities of the targets of a batch, datum after datum, and its metrics."""

    logprobs: npt.NDArray[np.float32]
    lengths: tuple[int, ...]
    """The number of targets of each datum."""
    metrics: Mapping[str, float]
    """Each name ends with how the metrics of several batches are combined, such as `loss:sum`."""

    def to_json(self) -> dict[str, Any]:
        """Return the body of the answer."""
        ends = np.cumsum([0, *self.lengths])
        outputs = [
            {"logprobs": tensor_json(self.logprobs[ends[n] : ends[n + 1]])}
            for n in range(len(self.lengths))
        ]
        return {
            "loss_fn_output_type": "ArrayRecord",
            "loss_fn_outputs": outputs,
            "metrics": dict(self.metrics),
        }


@dataclass(frozen=True)
class SampledTokens:
    """One sample: its tokens, the token that stopped it included, and their log-probabilities."""

    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    stop_reason: StopReason


@dataclass(frozen=True)
class SampleOutput:
    """The samples of a request, and the log-probabilities of its prompt if they were asked for."""

    samples: tuple[SampledTokens, ...]
    prompt_logprobs: tuple[float, ...] | None
    """NaN for the first token, which nothing precedes."""

    def to_json(self) -> dict[str, Any]:
        """Return the body of the answer."""
        sequences = [
            {
                "stop_reason": sample.stop_reason,
                "tokens": list(sample.tokens),
                "logprobs": list(sample.logprobs),
            }
            for sample in self.samples
        ]
        prompt = self.prompt_logprobs
        scores = None if prompt is None else [None if math.isnan(one) else one for one in prompt]
        return {"type": "sample", "sequences": sequences, "prompt_logprobs": scores}


@dataclass(frozen=True)
class Failure:
    """The request failed; whether by a mistake of the user, or of the server."""

    error: str
    category: Category = "user"

    def to_json(self) -> dict[str, Any]:
        """Return the body of the answer."""
        return {"error": self.error, "category": self.category}


Outcome = JsonOutput | ForwardOutput | SampleOutput | Failure


def tensor_json(values: npt.NDArray[Any]) -> dict[str, Any]:
    """Return a vector of floats as the API writes tensors in JSON."""
    return {"data": values.tolist(), "dtype": "float32", "shape": [len(values)]}
