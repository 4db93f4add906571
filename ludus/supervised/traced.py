"""The network of a supervised model with example inputs, for its export as a program."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ludus.core.abilities import Program
from ludus.core.errors import ConfigError
from ludus.fit.preflight import first_batch
from ludus.nn.calling import outputs_in, split_batch
from ludus.nn.model import Inputs, Model
from ludus.supervised.config import SupervisedConfig
from ludus.supervised.datasets import make_datasets


class Outputs(nn.Module):
    """A network whose output is the tensor of predictions alone."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, *inputs: Tensor, **named: Tensor) -> Tensor:
        """Return the predictions."""
        return outputs_in(self.network(*inputs, **named))


def program(
    config: SupervisedConfig, model: Model, loaders: Mapping[str, Any], inputs: object = None
) -> Program:
    """Return the network on the CPU, with example inputs: given ones, or those of its training data."""
    if inputs is None:
        inputs = _first_inputs(config, loaders)
    elif not isinstance(inputs, Tensor | Mapping):
        raise ConfigError(
            f"inputs is a {type(inputs).__name__}; give a tensor, as the network's forward takes it, or a"
            " mapping of tensors by name"
        )
    network = copy.deepcopy(model.module).cpu().eval()
    named = {"input": inputs} if isinstance(inputs, Tensor) else dict(inputs)
    pair = {name: _two(one) for name, one in named.items()}
    is_by_name = not isinstance(inputs, Tensor)
    with torch.no_grad():
        found = network(**pair) if is_by_name else network(*pair.values())
    module = network if isinstance(found, Tensor) else Outputs(network).eval()
    return Program(module, pair, "output", is_by_name=is_by_name)


def _first_inputs(config: SupervisedConfig, loaders: Mapping[str, Any]) -> Inputs:
    """Return the inputs of the first batch of the training data."""
    device = torch.device("cpu")
    every = dict.fromkeys(("train", "validation", "test"), None) | dict(loaders)
    if config.data is None and every["train"] is None:
        raise ConfigError(
            "the data of this run were given by its script, so there is no example to trace the network with;"
            " give example inputs (inputs=torch.zeros(1, 64)), or the script (script=...; --script on the"
            " command line)"
        )
    data = make_datasets(config, every, device, has_evaluator=True).train
    try:
        batch = first_batch(data)
    finally:
        data.close()
    if batch is None:
        raise ConfigError(
            "the data of this run can be read only once, so there is no example to trace the network with;"
            " give example inputs (inputs=...)"
        )
    inputs: Inputs = split_batch(batch)[0]
    return inputs


def _two(examples: Tensor) -> Tensor:
    """Return two examples, as the tracer takes a batch of one for a constant."""
    return torch.cat([examples, examples])[:2].cpu()
