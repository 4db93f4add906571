"""Call any network through torch's compiler with Dynamo's guards on.

The code of ludus's own networks is called without guards (compiled.py). A third-party class may depend on
anything: at each call guards check that its attributes, modes, hooks and layers are those it was compiled
for, which costs microseconds, and otherwise it is recompiled. Shapes are compiled one by one, and the list of
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
from ludus.process.signals import ended_at_once

MAX_SHAPES = 8
"""The number of batch shapes that are compiled; others run eagerly."""
_MAX_CHANGES = 16
"""The number of calls at which a changed network may be recompiled."""

Forward = Callable[..., Any]
Tell = Callable[[str], None]


class GuardedCall:
    """A forward pass that is compiled for the first few shapes of its inputs; a part."""

    def __init__(self, forward: Forward, *, tell: Tell | None = None) -> None:
        """Without `tell`, a failure to compile is a LudusError; with it, the pass is called eagerly."""
        self._forward, self._tell = forward, tell
        compiled.use_lasting_cache()
        self._compiled = torch.compile(
            compiled.own_code(forward), dynamic=False, backend=self._build
        )
        self._shapes: dict[str, None] = {}
        self._why_eager: str | None = None
        self._has_warned = False
        self._warm: set[str] = set()
        """The shapes compiled in this process; those of an earlier process are compiled again."""
        self._num_changes = 0
        self.num_graphs = 0
        """The number of graphs compiled so far."""
        self.breaks: list[str] = []
        """The graph breaks of the first pass, if any: the reason and the line of code."""
        self._config = _dynamo_config()

    def __call__(self, *inputs: object) -> Any:
        """Return the result of the forward pass."""
        if self._why_eager is not None:
            return self._forward(*inputs)
        key = shapes_of(inputs)
        is_new = key not in self._shapes
        if is_new and len(self._shapes) >= MAX_SHAPES:
            self._warn_of_shapes(key)
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

        A resumed run compiles every shape it meets again, even if it was compiled before, so its count of
        changes may be lower by one for each kill.
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
            # It was being recompiled after a change, and warnings may be errors: `_first` ignores them.
            return self._first(inputs)

    def _give_up(self, why: str, error: Exception | None = None) -> None:
        if self._tell is None:
            raise LudusError(f"{why}; set engine to auto or eager") from error
        self._why_eager = why
        self._tell(f"the network is not compiled: {why}; it is called eagerly")

    def _warn_of_shapes(self, key: str) -> None:
        if not self._has_warned and self._tell is not None:
            self._tell(
                f"batches came in more than {MAX_SHAPES} shapes, the last {key}: others than the first"
                f" {MAX_SHAPES} are computed eagerly; pad them to few lengths"
            )
        self._has_warned = True

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
        """Return the compiled shapes, and why none is compiled if that is so."""
        return {
            "shapes": [*self._shapes],
            "why_eager": self._why_eager,
            "num_changes": self._num_changes,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Compile these shapes, and no further ones beyond MAX_SHAPES."""
        states.check_keys(state, "shapes", "why_eager", "num_changes")
        shapes = states.rows(state, "shapes")
        with states.within("shapes"):
            known = [states.text(shapes, index) for index in range(len(shapes))]
        why = None if state["why_eager"] is None else states.text(state, "why_eager")
        num_changes = states.whole(state, "num_changes")
        self._shapes, self._why_eager = dict.fromkeys(known), why
        self._num_changes = num_changes


def shapes_of(inputs: Sequence[object]) -> str:
    """Return the dtypes and shapes of all tensors in some inputs, a word for each."""
    words = [
        f"{str(one.dtype).removeprefix('torch.')}{[*one.shape]}" if isinstance(one, Tensor) else "-"
        for one in tree_leaves(inputs)
    ]
    return " ".join(words)


def _dynamo_config() -> Any:
    """Return a patch of Dynamo's config that adds guards on hooks and raises the recompile limit."""
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
    """Return a sentence with the cause and, if the compiler reports it, the line of the user's code."""
    whole = str(error)
    place = ""
    if "from user code" in whole:
        found = _USER_LINE.findall(whole.split("from user code", 1)[1])
        own = [one for one in found if "/torch/" not in one[0]] or found
        place = f" at {own[-1][0]}:{own[-1][1]}" if own else ""
    return compiled.first_line(error) + place


def _shortened(reason: str) -> str:
    """Return the first line of Dynamo's reason for a graph break."""
    lines = [line.strip() for line in reason.splitlines() if line.strip()]
    return lines[0][:160] if lines else "a graph break"


def _line(stack: Sequence[Any]) -> str:
    own = [frame for frame in stack or () if "/torch/" not in frame.filename]
    return f" ({own[-1].filename}:{own[-1].lineno})" if own else ""
