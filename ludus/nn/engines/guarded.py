"""Call a network through torch's compiler with Dynamo's guards on, whoever wrote it.

The code of ludus's own networks is called without guards (compiled.py). A class from elsewhere may depend on
anything: guards look at each call whether its attributes, modes, hooks or layers are what was compiled, which
costs microseconds, and it is compiled again where they are not. Shapes are compiled one by one, and which of
them is saved, so that a resumed run executes the same code for the same batch.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule
from torch.utils._pytree import tree_leaves

from ludus.core import states
from ludus.core.errors import LudusError
from ludus.nn.engines import compiled
from ludus.nn.engines.cache import use_lasting_cache
from ludus.process.signals import ended_at_once

MAX_SHAPES = 8
"""How many shapes of batches are compiled; others are computed eagerly."""
_MAX_CHANGES = 16
"""At how many calls the network may be compiled again for what has changed in it."""

Forward = Callable[..., Any]
Tell = Callable[[str], None]


class GuardedCall:
    """A forward pass that is compiled for the first few shapes of its inputs; a part."""

    def __init__(self, forward: Forward, *, tell: Tell | None = None) -> None:
        """Without `tell`, what cannot be compiled is a LudusError; with it, it is called eagerly."""
        self._forward, self._tell = forward, tell
        use_lasting_cache()
        self._compiled = torch.compile(
            compiled.own_code(forward), dynamic=False, backend=self._build
        )
        self._shapes: dict[str, None] = {}
        self._why_eager: str | None = None
        self._is_told = False
        self._warm: set[str] = set()
        """The shapes that were compiled in this process; those of an earlier one are compiled again."""
        self._num_changes = 0
        self.num_graphs = 0
        """How many pieces of code were compiled so far."""
        self.breaks: list[str] = []
        """Why the first pass is in pieces, if it is: the reason and the line of code."""
        self._config = _dynamo_config()

    def __call__(self, *inputs: object) -> Any:
        """Return what the forward pass returns."""
        if self._why_eager is not None:
            return self._forward(*inputs)
        key = shapes_of(inputs)
        is_new = key not in self._shapes
        if is_new and len(self._shapes) >= MAX_SHAPES:
            self._tell_of_shapes(key)
            return self._forward(*inputs)
        num_graphs = self.num_graphs
        try:
            result = self._first(inputs) if is_new else self._again(inputs)
        except Exception as error:
            if not _is_of_compiler(error):
                raise
            self._give_up(why_not_compiled(error), error)
            return self._forward(*inputs)
        self._shapes[key] = None
        if self.num_graphs > num_graphs and key in self._warm:
            self._num_changes += 1
        self._warm.add(key)
        if self._num_changes > _MAX_CHANGES:
            self._give_up("the network changes again and again, and was compiled each time")
        return result

    def inexact_because(self) -> list[str]:
        """Return why a resumed run may compute a batch eagerly that this one computed by compiled code.

        A resume compiles what it meets again, whatever was compiled for it before, so its count of changes
        may be lower by one for each kill.
        """
        if self._num_changes <= _MAX_CHANGES // 2:
            return []
        return [
            f"the network was compiled again {self._num_changes} times for what changes in it, and after"
            f" {_MAX_CHANGES} times it is called eagerly, which a resumed run may count otherwise: set engine"
            " to eager"
        ]

    def _first(self, inputs: Sequence[object]) -> Any:
        with ended_at_once("the network is compiled"), compiled.compiling(), self._config:
            return self._compiled(*inputs)

    def _again(self, inputs: Sequence[object]) -> Any:
        try:
            with self._config:
                return self._compiled(*inputs)
        except Exception as error:
            if not _is_of_compiler(error):
                raise
            # It was to be compiled again, for something that has changed, and a warning may be an error.
            return self._first(inputs)

    def _give_up(self, why: str, error: Exception | None = None) -> None:
        if self._tell is None:
            raise LudusError(f"{why}; set engine to auto or eager") from error
        self._why_eager = why
        self._tell(f"the network is not compiled: {why}; it is called eagerly")

    def _tell_of_shapes(self, key: str) -> None:
        if not self._is_told and self._tell is not None:
            self._tell(
                f"batches came in more than {MAX_SHAPES} shapes, the last {key}: others than the first"
                f" {MAX_SHAPES} are computed eagerly; pad them to few lengths"
            )
        self._is_told = True

    @property
    def is_used(self) -> bool:
        """Whether compiled code is called."""
        return self._why_eager is None

    def _build(
        self, traced: GraphModule, inputs: Sequence[Tensor], **options: object
    ) -> Callable[..., Any]:
        self.num_graphs += 1
        reason = getattr(traced, "compile_subgraph_reason", None)
        if not self._warm and reason is not None and reason.graph_break:
            self.breaks.append(_shortened(reason.reason) + _line(reason.user_stack))
        run: Any = traced.forward
        if compiled.BACKEND == "inductor":
            with compiled.compiling():
                from torch._inductor.compile_fx import compile_fx

                run = compile_fx(traced, list(inputs))
        return run  # type: ignore[no-any-return]

    def state_dict(self) -> dict[str, Any]:
        """Return which shapes are compiled, and why none is where that is so."""
        return {
            "shapes": [*self._shapes],
            "why_eager": self._why_eager,
            "num_changes": self._num_changes,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Compile these shapes, and no others while there are so many."""
        states.check_keys(state, "shapes", "why_eager", "num_changes")
        shapes = states.rows(state, "shapes")
        with states.within("shapes"):
            known = [states.text(shapes, index) for index in range(len(shapes))]
        why = None if state["why_eager"] is None else states.text(state, "why_eager")
        num_changes = states.whole(state, "num_changes")
        self._shapes, self._why_eager = dict.fromkeys(known), why
        self._num_changes = num_changes


def shapes_of(inputs: Sequence[object]) -> str:
    """Return the types and shapes of all tensors in some inputs, in a word for each."""
    words = [
        f"{str(one.dtype).removeprefix('torch.')}{[*one.shape]}" if isinstance(one, Tensor) else "-"
        for one in tree_leaves(inputs)
    ]
    return " ".join(words)


def _dynamo_config() -> Any:
    """Return what lets Dynamo look at hooks too, and compile as often as is allowed here."""
    import torch._dynamo.config

    settings: Any = torch._dynamo.config
    limit = 2 * (MAX_SHAPES + _MAX_CHANGES)
    return settings.patch(skip_nnmodule_hook_guards=False, recompile_limit=limit)


def _is_of_compiler(error: Exception) -> bool:
    """Return whether the compiler failed, not the network itself."""
    from torch._dynamo.exc import TorchDynamoException
    from torch._inductor.exc import InductorError

    return isinstance(error, TorchDynamoException | InductorError)


_USER_LINE = re.compile(r'File "([^"]+)", line (\d+)')


def why_not_compiled(error: Exception) -> str:
    """Return a sentence with the cause and, where the compiler says it, the line of the user's code."""
    whole = str(error)
    place = ""
    if "from user code" in whole:
        found = _USER_LINE.findall(whole.split("from user code", 1)[1])
        own = [one for one in found if "/torch/" not in one[0]] or found
        place = f" at {own[-1][0]}:{own[-1][1]}" if own else ""
    return compiled.first_line(error) + place


def _shortened(reason: str) -> str:
    """Return the first line of what Dynamo says of a graph break."""
    lines = [line.strip() for line in reason.splitlines() if line.strip()]
    return lines[0][:160] if lines else "a graph break"


def _line(stack: Sequence[Any]) -> str:
    own = [frame for frame in stack or () if "/torch/" not in frame.filename]
    return f" ({own[-1].filename}:{own[-1].lineno})" if own else ""
