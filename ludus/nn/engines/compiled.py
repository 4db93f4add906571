"""Compile a method so that a call costs little more than the compiled code itself."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import warnings
from collections.abc import Callable, Iterator, Sequence
from types import FunctionType, MethodType
from typing import Any

import torch
from torch import Tensor, nn

from ludus.core.errors import LudusError
from ludus.nn.engines.gate import one_attention
from ludus.nn.engines.graph import CapturedCode, leaves_of
from ludus.process.signals import ended_at_once
from ludus.store.cache import cache_folder

BACKEND = "inductor"  # the backend that compiles a trace; tests set it to eager
CACHE_VARIABLE = "TORCHINDUCTOR_CACHE_DIR"
NOT_FOLLOWED = (
    "the network reads weights from a list, a dict or a closure of its own, where no others can be put in"
    " their place; read them from the layers in forward, or keep them in an nn.ParameterList"
)
"""The error for a network that cannot be called with other weights than its own."""


def compile_method(
    method: object, device: torch.device, *, tell: Callable[[str], None] | None = None
) -> Callable[..., Any]:
    """Compile a method whose result depends only on its owner and on its tensor arguments.

    The tensors of the owner that it reads or changes must always be the same objects. It returns None, a
    tensor, or a tuple of tensors. Arguments that are tensors, None, or lists of these take the fast path; any
    others go through torch's compiler at every call. It never falls back to eager. On CUDA the compiled code
    of tensors alone is captured as a CUDA graph; if it cannot be, `tell` is called with the reason, and the
    code runs uncaptured.
    """
    compiled = CompiledMethod(method, device)
    return CapturedCode(compiled, device, tell) if device.type == "cuda" else compiled


def why_no_compiler(device: torch.device) -> str | None:
    """Return why nothing can be compiled for this device on this machine, or None if it can."""
    if BACKEND != "inductor":
        return None
    if device.type == "cpu" and find_cpp() is None:
        return "torch's compiler needs g++, which is not here (apt-get install g++)"
    if device.type == "cuda" and importlib.util.find_spec("triton") is None:
        return "torch's compiler needs triton, which is not installed (pip install triton)"
    return None


def find_cpp() -> str | None:
    """Return the path of torch's C++ compiler, or None if there is none."""
    return shutil.which(os.environ.get("CXX", "g++")) or shutil.which("clang++")


def why_not_traced(method: object, arguments: Sequence[Any]) -> str | None:
    """Return why torch's compiler cannot compile this method as one graph, or None if it can.

    The method is traced with these arguments, not run: nothing is changed and no random number drawn.
    """
    from torch._dynamo.exc import BackendCompilerFailed, TorchDynamoException

    def stop(traced: object, inputs: Sequence[Any]) -> Any:
        raise _Traced(_why_not_followed(inputs))

    compiled = torch.compile(own_code(method), dynamic=False, fullgraph=True, backend=stop)
    try:
        with compiling():
            compiled(*arguments)
    except BackendCompilerFailed as error:
        if isinstance(error.inner_exception, _Traced):
            return error.inner_exception.why_not
        return first_line(error)
    except TorchDynamoException as error:
        return first_line(error)
    return None


class _Traced(Exception):
    """Raised when the trace is done, to stop before compiling it."""

    def __init__(self, why_not: str | None) -> None:
        self.why_not = why_not


def _why_not_followed(inputs: Sequence[Any]) -> str | None:
    """Return why a trace would not train every weight: it reads a weight as well as the vector behind it.

    Everything is computed from the vectors, which replace the weights registered in a module; a weight that
    is read from elsewhere gets neither a gradient nor swapped values.
    """
    tensors = [one for one in inputs if isinstance(one, Tensor) and one.layout == torch.strided]
    weights = [one for one in tensors if isinstance(one, nn.Parameter) and one.requires_grad]
    vectors = {one.untyped_storage().data_ptr() for one in tensors if one.__class__ is Tensor}
    is_apart = any(weight.untyped_storage().data_ptr() in vectors for weight in weights)
    return NOT_FOLLOWED if is_apart else None


def use_lasting_cache() -> None:
    """Keep compiled code in the cache folder of ludus, unless another one is set.

    So a resumed run compiles in seconds, even after a reboot, unlike with torch's default in the temporary
    directory. Not in the run's folder: compiled code is code, and a run directory may come from anywhere.
    """
    if (place := os.environ.get(CACHE_VARIABLE)) is not None:
        from torch._inductor.runtime.cache_dir_utils import default_cache_dir

        # Torch itself sets the variable to its default when its compiler is imported.
        if place != default_cache_dir():
            return
    try:
        folder = cache_folder() / "compiled"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except (OSError, RuntimeError):
        # Without a home or write access, torch uses its default.
        return
    if os.access(folder, os.W_OK):
        os.environ[CACHE_VARIABLE] = str(folder)


@contextlib.contextmanager
def compiling() -> Iterator[None]:
    """Compile deterministically, and ignore warnings, which may be errors.

    Inductor chooses between reductions by timing them unless `deterministic` is set, and they differ in the
    last bit: a resumed run would not match the interrupted one. It also warns on import about torch's own
    code, which would end a run whose warnings are errors.
    """
    use_lasting_cache()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch._inductor import config

        with config.patch(deterministic=True), one_attention():
            yield


_CONTEXT = "Developer debug context: "


def first_line(error: Exception) -> str:
    """Return a sentence with the root cause: the backend's error, not that the backend failed."""
    cause = error
    while isinstance(inner := getattr(cause, "inner_exception", None), Exception):
        cause = inner
    lines = [line.strip() for line in str(cause).splitlines() if line.strip()]
    summary = " ".join(lines[: 2 if lines[:1] and lines[0].endswith(":") else 1])
    # Errors of torch's tracer begin with a title; the cause is further below.
    context = [line.removeprefix(_CONTEXT) for line in lines if line.startswith(_CONTEXT)]
    summary = f"{summary}: {context[0][:160]}" if context else summary
    if cause is not error or not summary:
        summary = f"{type(cause).__name__}: {summary}" if summary else type(cause).__name__
    return f"torch's compiler cannot take the update whole ({summary})"


def own_code(method: Any) -> Callable[..., Any]:
    """Return the method with its own code object.

    Torch caches compiled code by code object. The owner's loss, layers and options are compiled in without
    guards, so no two owners may share a code object.
    """
    function = getattr(method, "__func__", method)
    own = FunctionType(
        function.__code__.replace(),
        function.__globals__,
        argdefs=function.__defaults__,
        closure=function.__closure__,
    )
    return MethodType(own, method.__self__) if function is not method else own


class CompiledMethod:
    """Goes through torch's compiler once for each kind of inputs, and straight to the compiled code later.

    Torch would check its guards on the owner and on global state at every call, which costs as much as a
    small update itself.
    """

    def __init__(self, method: object, device: torch.device) -> None:
        self._method = method
        self._device = device
        self._graphs: dict[tuple[Any, ...], _CompiledGraph] = {}
        self._called: Any = None
        self._compiled: dict[tuple[bool, ...], Callable[..., Any]] = {}

    def _compile(self, *arguments: object) -> Any:
        """Call through torch's compiler.

        Only tensor guards are kept, so torch would not notice that an argument which was a tensor is now
        None: each pattern of missing arguments has its own code object.
        """
        missing = tuple([value is None for value in leaves_of(arguments)])
        compiled = self._compiled.get(missing)
        if compiled is None:
            compiled = self._compiled[missing] = torch.compile(
                own_code(self._method),
                dynamic=False,
                fullgraph=True,
                backend=self._build,
                options={"guard_filter_fn": torch.compiler.keep_tensor_guards_unsafe},
            )
        with compiling():
            return compiled(*arguments)

    def __call__(self, *arguments: object) -> Any:
        """Return the result of the method."""
        leaves = leaves_of(arguments)
        try:
            # Compiled code assumes the strides of the first call: other strides or dtypes need other code.
            kinds = tuple([
                None if leaf is None else (leaf.shape, leaf.stride(), leaf.dtype)
                for leaf in leaves
            ])  # fmt: skip
        except (AttributeError, RuntimeError):
            return self._compile(*arguments)
        graph = self._graphs.get(kinds)
        if graph is None:
            return self._first(kinds, arguments, leaves)
        return graph(leaves)

    def _first(self, kinds: tuple[Any, ...], arguments: tuple[Any, ...], leaves: list[Any]) -> Any:
        """Call through torch's compiler, and record which compiled code ran."""
        from torch._dynamo.exc import TorchDynamoException

        self._called = None
        try:
            with ended_at_once("the update is compiled"):
                result = self._compile(*arguments)
        except TorchDynamoException as error:
            raise LudusError(f"{first_line(error)}; set engine to auto, tape or eager") from error
        if self._called is not None:
            graph = _CompiledGraph(self._called, leaves, result)
            if graph.is_understood:
                self._graphs[kinds] = graph
        return result

    def _build(
        self, traced: torch.fx.GraphModule, inputs: Sequence[Any], **options: object
    ) -> Callable[..., Any]:
        """Compile a trace; its first inputs and outputs are kept for `_first`."""
        if (reason := _why_not_followed(inputs)) is not None:
            raise LudusError(reason)
        run: Any = traced.forward
        if BACKEND == "inductor":
            from torch._inductor.compile_fx import compile_fx

            # On the CPU the Python wrapper around the kernels would cost as much as they do.
            patches = {"cpp_wrapper": self._device.type == "cpu"}
            run = compile_fx(traced, inputs, config_patches=patches)

        def remember(*given: object) -> Any:
            outputs = run(*given)
            self._called = (run, list(given), outputs)
            return outputs

        return remember


_Called = tuple[Callable[..., Any], list[Any], Sequence[Any]]


class _CompiledGraph:
    """Compiled code, its input tensors, and the positions of arguments and results among them."""

    def __init__(self, called: _Called, arguments: list[Any], result: object) -> None:
        self._run, self._inputs, outputs = called
        self._places = [
            (place, index)
            for place, value in enumerate(self._inputs)
            for index, argument in enumerate(arguments)
            if value is argument
        ]
        wanted = () if result is None else result if isinstance(result, tuple) else (result,)
        found = [[i for i, out in enumerate(outputs) if out is value] for value in wanted]
        self.is_understood = all(found)
        """Whether every result is one of the code's outputs."""
        self._results = [indices[0] for indices in found] if self.is_understood else []
        self._is_tuple = isinstance(result, tuple)

    def __call__(self, arguments: list[Any]) -> Any:
        inputs = self._inputs
        for place, index in self._places:
            inputs[place] = arguments[index]
        outputs = self._run(*inputs)
        if self._is_tuple:
            return tuple([outputs[index] for index in self._results])
        return outputs[self._results[0]] if self._results else None
