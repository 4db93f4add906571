"""Fast inference of a network: without gradients, in one precision, for many games at once.

A chain of linear layers and ReLUs is called layer by layer, with bias and ReLU fused into the matrix
product; the inputs of the first layer and the outputs of the last are padded to a width that suits tensor
cores. Where neither width nor type changes, the layer's own weights are used. Any other module is called as
it is, or for bfloat16 a copy of it.

Shapes: B games, W columns of the padded input, A moves.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from copy import deepcopy
from typing import Literal

import torch
from torch import Tensor, nn

from ludus.nn.learner import Learner

Precision = Literal["float32", "tf32", "bfloat16"]
"""tf32: float32 numbers whose products have 10 bits of mantissa, on the tensor cores of a GPU."""
_ALIGNED = 16
"""Rows for tensor cores are padded to a multiple of this many bytes."""
_FEWEST = 32
"""On a GPU a product with fewer columns than this takes longer than one with this many."""


class Inference:
    """Values of a network, by a copy of the weights that `refresh` updates."""

    def __init__(self, net: nn.Module, *, inputs: int, precision: Precision) -> None:
        """`inputs` is the number of input features."""
        self.precision = precision
        self.dtype = torch.bfloat16 if precision == "bfloat16" else torch.float32
        self._net = net
        self._chain = linear_chain(net)
        self._inputs = inputs
        self.width = inputs if self._chain is None else self._padded(inputs)
        """The number of input columns: the features, then zeros."""
        if self._chain is None:
            self._copy = net if self.dtype == torch.float32 else _lowered(net)
        else:
            self._copies = [self._make_layer(layer) for layer, _ in self._chain]

    @property
    def is_current(self) -> bool:
        """Whether the network still consists of the same layers, all of kinds that are called one by one."""
        return self._chain is not None and linear_chain(self._net) == self._chain

    def _padded(self, width: int) -> int:
        if self.precision == "float32":
            return width
        step = _ALIGNED // self.dtype.itemsize
        return -(-width // step) * step

    def _make_layer(self, layer: nn.Linear) -> tuple[Tensor, Tensor] | None:
        """Return buffers for a copy of a layer; None where the layer is used directly."""
        assert self._chain is not None
        is_first, is_last = layer is self._chain[0][0], layer is self._chain[-1][0]
        weight, (outputs, inputs) = layer.weight, layer.weight.shape
        if is_first:
            inputs = self.width
        if is_last and weight.is_cuda:
            outputs = max(self._padded(outputs), _FEWEST)
        if (
            (outputs, inputs) == weight.shape
            and weight.dtype == self.dtype
            and layer.bias is not None
        ):
            return None
        copy = weight.new_zeros(outputs, inputs, dtype=self.dtype)
        return copy, weight.new_zeros(outputs, dtype=self.dtype)

    def values(self, obs_BO: Tensor) -> Tensor:
        """Return (B, A) values of observations, by the weights of the last `refresh`."""
        obs_BW = obs_BO
        if (self.width, self.dtype) != (obs_BO.shape[1], obs_BO.dtype):
            obs_BW = obs_BO.new_zeros(len(obs_BO), self.width, dtype=self.dtype)
            obs_BW[:, : self._inputs] = obs_BO
        with matmuls_in(self.precision):
            return self(obs_BW)

    @torch.no_grad()
    def refresh(self) -> None:
        """Copy the network's current weights; may be captured in a CUDA graph."""
        own: list[Tensor] = []
        theirs: list[Tensor] = []
        if self._chain is not None:
            for copy, (layer, _) in zip(self._copies, self._chain, strict=True):
                if copy is None:
                    continue
                outputs, inputs = layer.weight.shape
                own.append(copy[0][:outputs, :inputs])
                theirs.append(layer.weight)
                if layer.bias is not None:
                    own.append(copy[1][:outputs])
                    theirs.append(layer.bias)
        elif self._copy is not self._net:
            own = [*self._copy.parameters(), *self._copy.buffers()]
            theirs = [*self._net.parameters(), *self._net.buffers()]
        if own:
            torch._foreach_copy_(own, theirs)

    @torch.no_grad()
    def __call__(self, obs_BW: Tensor) -> Tensor:
        """Return (B, A) values, in the dtype of the computation."""
        if self._chain is None:
            values_BA: Tensor = self._copy(obs_BW)
            return values_BA
        x = obs_BW
        for copy, (layer, has_relu) in zip(self._copies, self._chain, strict=True):
            weight, bias = (layer.weight, layer.bias) if copy is None else copy
            if has_relu and x.is_cuda:
                x = torch._addmm_activation(bias, x, weight.t())
            else:
                x = torch.nn.functional.linear(x, weight, bias)
                x = x.relu_() if has_relu else x
        return x[:, : self._chain[-1][0].out_features]


class Acting:
    """A learner's current network: on CUDA by fused layers where it is a chain of linear layers, else
    called."""

    def __init__(self, learner: Learner, *, inputs: int, precision: Precision) -> None:
        """`inputs` is the number of input features."""
        self._learner, self._precision = learner, precision
        self._fused: Inference | None = None
        if learner.flat.device.type == "cuda":
            self._fused = Inference(learner.module, inputs=inputs, precision=precision)
        self._is_steady = False

    def values(self, obs_BO: Tensor) -> Tensor:
        """Return (B, A) the value of each move."""
        if self._fused is not None and self._fused.is_current:
            if not self._is_steady:
                self._fused.refresh()
            return self._fused.values(obs_BO)
        with torch.no_grad(), matmuls_in(self._precision):
            values_BA: Tensor = self._learner(obs_BO)
            return values_BA

    @contextlib.contextmanager
    def steady(self) -> Iterator[None]:
        """Read the weights once for many calls of `values` inside the block, in which the network must not
        change."""
        if self._fused is not None and self._fused.is_current:
            self._fused.refresh()
        self._is_steady = True
        try:
            yield
        finally:
            self._is_steady = False


def linear_chain(net: nn.Module) -> list[tuple[nn.Linear, bool]] | None:
    """Return the linear layers of a network, each with whether a ReLU follows; None if it has
    other layers."""
    chain: list[tuple[nn.Linear, bool]] = []
    for layer in _flat(net):
        if type(layer) is nn.Linear:
            chain.append((layer, False))
        elif type(layer) is nn.ReLU and chain and not chain[-1][1]:
            chain[-1] = chain[-1][0], True
        elif type(layer) is not nn.Flatten or chain:
            return None
    is_whole = all(
        not layer._forward_hooks and not layer._forward_pre_hooks for layer in net.modules()
    )
    return chain if chain and is_whole else None


@contextlib.contextmanager
def matmuls_in(precision: Precision) -> Iterator[None]:
    """Set the precision of float32 matrix products inside the block, and restore it after."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def _flat(net: nn.Module) -> Iterator[nn.Module]:
    if type(net) is nn.Sequential:
        for layer in net:
            yield from _flat(layer)
    else:
        yield net


def _lowered(net: nn.Module) -> nn.Module:
    """Return a copy in bfloat16, except the statistics of batch norms, which need more precision."""
    copy = deepcopy(net).to(torch.bfloat16).eval()
    for layer in copy.modules():
        if isinstance(layer, nn.modules.batchnorm._BatchNorm):
            layer.float()
    return copy
