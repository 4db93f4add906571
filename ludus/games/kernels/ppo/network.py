"""Two-layer tanh networks in a kernel: their weights as matrices, and tanh.

A network is six tensors one after the other in a flat vector: weight (out, in) and bias of each layer.

Shapes: M rows, F features, X first width, Y second width, Z outputs; FP and so on are padded to powers of two
of 16 or more.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def tanh(x, GPU: tl.constexpr):
    """Return tanh, by the GPU's instruction where there is one."""
    if GPU:
        y = tl.inline_asm_elementwise(
            "tanh.approx.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )
    else:
        y = 2.0 / (1.0 + tl.exp(-2.0 * x)) - 1.0
    return y


@triton.jit
def matrix(start, inputs, outputs, FP: tl.constexpr, ZP: tl.constexpr):
    """Return the weight of a layer as (in, out), 0 where it is padded, in float16."""
    row = tl.arange(0, FP)[:, None]
    column = tl.arange(0, ZP)[None, :]
    inside = (row < inputs) & (column < outputs)
    return tl.load(start + column * inputs + row, mask=inside, other=0.0).to(tl.float16)


@triton.jit
def matrix_back(start, inputs, outputs, FP: tl.constexpr, ZP: tl.constexpr):
    """Return the weight of a layer as (out, in), 0 where it is padded, in float16."""
    row = tl.arange(0, ZP)[:, None]
    column = tl.arange(0, FP)[None, :]
    inside = (row < outputs) & (column < inputs)
    return tl.load(start + row * inputs + column, mask=inside, other=0.0).to(tl.float16)


@triton.jit
def vector(start, size, P: tl.constexpr):
    """Return a bias as one row, 0 where it is padded."""
    column = tl.arange(0, P)
    return tl.load(start + column, mask=column < size, other=0.0)[None, :]


@triton.jit
def layers(
    start, outputs, F: tl.constexpr, X: tl.constexpr, Y: tl.constexpr,
    FP: tl.constexpr, XP: tl.constexpr, YP: tl.constexpr, ZP: tl.constexpr,
):  # fmt: skip
    """Return weight and bias of each layer of the network that begins there."""
    w1 = matrix(start, F, X, FP, XP)
    b1 = vector(start + F * X, X, XP)
    second = start + F * X + X
    w2 = matrix(second, X, Y, XP, YP)
    b2 = vector(second + X * Y, Y, YP)
    third = second + X * Y + Y
    w3 = matrix(third, Y, outputs, YP, ZP)
    b3 = vector(third + Y * outputs, outputs, ZP)
    return w1, b1, w2, b2, w3, b3


@triton.jit
def outputs_of(obs, w1, b1, w2, b2, w3, b3, GPU: tl.constexpr):
    """Return (M, Z) the outputs of a network for observations."""
    h1 = tanh(tl.dot(obs.to(tl.float16), w1) + b1, GPU)
    h2 = tanh(tl.dot(h1.to(tl.float16), w2) + b2, GPU)
    return tl.dot(h2.to(tl.float16), w3) + b3


@triton.jit
def await_last(GPU: tl.constexpr):
    """Wait for the kernel before this one; the next may already be launched (programmatic dependent
    launch)."""
    if GPU:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
