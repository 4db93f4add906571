"""Compile a method so that only the tensors it is given are looked at again at each call."""

from __future__ import annotations

from types import FunctionType, MethodType
from typing import Any

import torch

BACKEND = "inductor"
"""What compiles the traced code; tests set it to eager, which takes the trace as it is."""


def compile_method(method: Any, device: torch.device) -> Any:
    """Compile a method whose answer depends on its owner and on the tensors it is given alone.

    So only the tensors are checked at each call: new shapes are compiled anew, and looking again at
    every Python object on the way would cost as much as the work itself.
    """
    function = method.__func__
    # Torch keeps what it compiled with the code object. The owner's loss, layers and options are
    # in it and nobody checks them, so each owner needs a code object of its own.
    own = FunctionType(
        function.__code__.replace(), function.__globals__, closure=function.__closure__
    )
    options: dict[str, Any] = {"guard_filter_fn": torch.compiler.keep_tensor_guards_unsafe}
    if BACKEND == "inductor":
        # On the CPU the Python that calls the kernels would cost as much as they do.
        options["cpp_wrapper"] = device.type == "cpu"
    return torch.compile(
        MethodType(own, method.__self__),
        dynamic=False,
        fullgraph=True,
        backend=BACKEND,
        options=options,
    )
