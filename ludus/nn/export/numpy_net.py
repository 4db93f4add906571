"""A small network in NumPy alone: for one observation it is many times faster than torch.

Arrays are stored feature by feature, (D, N) rather than (N, D): then `weight @ x` needs no transposed matrix,
which is the faster product for every batch but the smallest.

Shapes: N observations, D features of each, O outputs.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import Tensor, nn

# A diverged network is reported by its trainer, not by every product with it.
warnings.filterwarnings("ignore", category=RuntimeWarning, module=re.escape(__name__))

Array = NDArray[np.float32]
Calls = list[Callable[[], object]]

_MAX_PLANS = 64
# The coefficients of Abramowitz and Stegun 7.1.26, which gives erf to 1.5e-7.
_ERF = (0.254829592, -0.284496736, 1.421413741, -1.453152027, 1.061405429)
_ERF_SCALE = 0.3275911


class NumpyStep(Protocol):
    """One layer: it adds its calls over fixed buffers to a plan."""

    def bind(self, x: Array, calls: Calls) -> Array:
        """Append the calls that turn x, (D,) or (D, N), into the returned array, which may be x itself."""
        ...


@dataclass(frozen=True)
class Linear:
    """weight @ x + bias, with a weight of shape (O, D)."""

    weight: Array
    bias: Array | None

    def bind(self, x: Array, calls: Calls) -> Array:
        """Append the product and the sum."""
        y = np.zeros((len(self.weight), *x.shape[1:]), np.float32)
        # The method, not np.matmul: it costs half a microsecond less a call.
        calls.append(partial(self.weight.dot, x, y))
        if self.bias is not None:
            calls.append(partial(np.add, y, _column(self.bias, y), y))
        return y


@dataclass(frozen=True)
class Relu:
    """max(x, 0); NaN stays NaN."""

    def bind(self, x: Array, calls: Calls) -> Array:
        """Append the maximum, over a flat view, which is faster than over two dimensions."""
        row = x.reshape(-1)
        calls.append(partial(np.maximum, row, np.zeros_like(row), out=row))
        return x


@dataclass(frozen=True)
class Tanh:
    """The hyperbolic tangent."""

    def bind(self, x: Array, calls: Calls) -> Array:
        """Append the tangent."""
        calls.append(partial(np.tanh, x, x))
        return x


@dataclass(frozen=True)
class Gelu:
    """GELU: x times the standard Gaussian CDF at x, or torch's tanh approximation of it."""

    by_tanh: bool

    def bind(self, x: Array, calls: Calls) -> Array:
        """Append one call of the formula."""
        a, b = np.empty_like(x), np.empty_like(x)
        calls.append(partial(_gelu_by_tanh if self.by_tanh else _gelu, x, a, b))
        return x


@dataclass(frozen=True)
class Silu:
    """SiLU: x times sigmoid(x)."""

    def bind(self, x: Array, calls: Calls) -> Array:
        """Append one call of the formula."""
        calls.append(partial(_silu, x, np.empty_like(x)))
        return x


@dataclass(frozen=True)
class LayerNorm:
    """Layer norm: the features of each observation are normalised, then scaled and shifted."""

    weight: Array | None
    bias: Array | None
    eps: float

    def bind(self, x: Array, calls: Calls) -> Array:
        """Append the normalisation and the affine map."""
        calls.append(partial(_normalise, x, np.empty_like(x), self.eps))
        return _scaled_and_shifted(x, self.weight, self.bias, calls)


@dataclass(frozen=True)
class BatchNorm:
    """Batch norm in eval mode: each feature is normalised by its running mean and variance."""

    mean: Array
    variance: Array
    weight: Array | None
    bias: Array | None
    eps: float

    def bind(self, x: Array, calls: Calls) -> Array:
        """Append the normalisation and the affine map; the running statistics are read at each call."""
        scale = np.empty_like(self.variance)
        calls.append(partial(np.add, self.variance, np.float32(self.eps), scale))
        calls.append(partial(np.sqrt, scale, scale))
        calls.append(partial(np.subtract, x, _column(self.mean, x), x))
        calls.append(partial(np.divide, x, _column(scale, x), x))
        return _scaled_and_shifted(x, self.weight, self.bias, calls)


class NumpyMlp:
    """A network of such steps, with buffers for every batch shape it has seen.

    It reads the weights at each call, so updates in place take effect at once. The result is its own buffer,
    which the next call overwrites.
    """

    def __init__(self, layers: Sequence[NumpyStep]) -> None:
        self.layers = list(layers)
        self._plans: dict[tuple[int, ...], tuple[Array, Calls, Array]] = {}

    def __call__(self, x_ND: NDArray[Any]) -> Array:
        """Return the outputs (N, O); observations of any shape are flattened to (D,)."""
        plan = self._plans.get(x_ND.shape)
        inputs, calls, outputs = self._plan(x_ND.shape) if plan is None else plan
        inputs[...] = x_ND
        for call in calls:
            call()
        return outputs

    def _plan(self, shape: tuple[int, ...]) -> tuple[Array, Calls, Array]:
        if len(self._plans) >= _MAX_PLANS:
            self._plans.clear()
        num, width = shape[0], math.prod(shape[1:])
        # A single observation is a plain vector: products and sums with it are faster than with a matrix.
        x = np.zeros((width,) if num == 1 else (width, num), np.float32)
        calls: Calls = []
        y = x
        for layer in self.layers:
            y = layer.bind(y, calls)
        outputs = y.reshape(1, -1) if num == 1 else y.T
        # The input is filled through a view in the caller's order and shape.
        self._plans[shape] = (x.T.reshape(shape), calls, outputs)
        return self._plans[shape]


def numpy_steps(module: nn.Module) -> list[NumpyStep] | None:
    """Return the steps of a torch module in eval mode, on arrays that share its memory.

    Supported are nn.Sequential of Linear, ReLU, Tanh, GELU, SiLU, LayerNorm, BatchNorm1d, Dropout, Flatten
    and Identity, nested or not; None is returned for any other, or if the weights are not float32 on the CPU.
    Call it again after parameters moved to other memory (as FlatParameters moves them).
    """
    from torch import nn

    if type(module) is nn.Sequential:
        parts = [numpy_steps(layer) for layer in module]
        if any(part is None for part in parts):
            return None
        return [step for part in parts for step in part or ()]
    floats = [*module.parameters(), *(b for b in module.buffers() if b.is_floating_point())]
    for parameter in floats:
        if parameter.device.type != "cpu" or str(parameter.dtype) != "torch.float32":
            return None
    # Compared by exact type: a subclass may compute something else.
    kind, layer = type(module), cast(Any, module)
    if kind is nn.Linear:
        return [Linear(_shared(layer.weight), _shared_or_none(layer.bias))]
    if kind is nn.LayerNorm and len(layer.normalized_shape) == 1:
        weight, bias = _shared_or_none(layer.weight), _shared_or_none(layer.bias)
        return [LayerNorm(weight, bias, float(layer.eps))]
    if kind is nn.BatchNorm1d and layer.running_mean is not None:
        moments = _shared(layer.running_mean), _shared(layer.running_var)
        weight, bias = _shared_or_none(layer.weight), _shared_or_none(layer.bias)
        return [BatchNorm(*moments, weight, bias, float(layer.eps))]
    if kind is nn.GELU:
        return [Gelu(by_tanh=layer.approximate == "tanh")]
    if kind in (nn.Identity, nn.Dropout) or (
        kind is nn.Flatten and (layer.start_dim, layer.end_dim) == (1, -1)
    ):
        return []
    simple: dict[type[Any], NumpyStep] = {nn.ReLU: Relu(), nn.Tanh: Tanh(), nn.SiLU: Silu()}
    return [simple[kind]] if kind in simple else None


def _shared(parameter: Tensor) -> Array:
    array: Array = parameter.detach().numpy()
    return array


def _shared_or_none(parameter: Tensor | None) -> Array | None:
    return None if parameter is None else _shared(parameter)


def _column(vector: Array, like: Array) -> Array:
    """Return the vector in a shape that broadcasts over the observations."""
    return vector if like.ndim == 1 else vector[:, None]


def _scaled_and_shifted(x: Array, weight: Array | None, bias: Array | None, calls: Calls) -> Array:
    if weight is not None:
        calls.append(partial(np.multiply, x, _column(weight, x), x))
    if bias is not None:
        calls.append(partial(np.add, x, _column(bias, x), x))
    return x


def _silu(x: Array, a: Array) -> None:
    # The sigmoid by tanh, which cannot overflow.
    np.multiply(x, 0.5, a)
    np.tanh(a, a)
    np.add(a, 1.0, a)
    np.multiply(x, 0.5, x)
    np.multiply(x, a, x)


def _gelu(x: Array, a: Array, b: Array) -> None:
    # max(x, 0) - |x| * q, where q is the Gaussian tail beyond |x|: no cancellation.
    np.abs(x, a)
    np.multiply(a, _ERF_SCALE / math.sqrt(2), b)
    np.add(b, 1.0, b)
    np.divide(1.0, b, b)
    power = b * np.float32(_ERF[-1])
    for factor in _ERF[-2::-1]:
        np.add(power, factor, power)
        np.multiply(power, b, power)
    np.multiply(a, a, b)
    np.multiply(b, -0.5, b)
    np.exp(b, b)
    np.multiply(power, b, power)
    np.multiply(power, a, power)
    np.multiply(power, 0.5, power)
    np.maximum(x, 0.0, out=x)
    np.subtract(x, power, x)


def _gelu_by_tanh(x: Array, a: Array, b: Array) -> None:
    np.multiply(x, x, a)
    np.multiply(a, 0.044715, a)
    np.add(a, 1.0, a)
    np.multiply(a, x, a)
    np.multiply(a, math.sqrt(2 / math.pi), a)
    np.tanh(a, a)
    np.add(a, 1.0, a)
    np.multiply(x, 0.5, b)
    np.multiply(a, b, x)


def _normalise(x: Array, a: Array, eps: float) -> None:
    np.subtract(x, np.add.reduce(x, 0) / np.float32(len(x)), x)
    np.multiply(x, x, a)
    variance = np.add.reduce(a, 0) / np.float32(len(x))
    np.divide(x, np.sqrt(variance + np.float32(eps)), x)
