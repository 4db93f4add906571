"""Let an engine that takes tensors alone execute an update of whole batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter, itemgetter
from typing import Any

from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_unflatten

from ludus.nn.engines.choice import Executed, Executor
from ludus.nn.engines.gate import GLOBAL_HOOKS, HOOKS, TENSOR_HOOKS

# After so many changes of the network's settings, each of which costs a slow update, it is called eagerly.
_MAX_CHANGES = 20
_FIXED = (bool, int, float, str, type(None))
_of_weight = attrgetter("requires_grad", *TENSOR_HOOKS)


class OnBatches:
    """An update of a batch and some tensors, executed as a function of all their tensors.

    There is one such function for each structure of a batch: a tensor, a list, a dict, or any of these
    inside others. A batch that holds anything but tensors is given to the update itself.

    A script may change the network between two updates (its mode, what is frozen, a dropout
    probability, a hook): then the functions are made anew.
    """

    def __init__(
        self, update: Executed, by: Executor, modules: Sequence[nn.Module], *, copies: bool
    ) -> None:
        """`copies` says that the engine overwrites results at the next call, so they are copied."""
        self._update = update
        self._by = by
        self._copies = copies
        self._functions: dict[object, Executed] = {}
        self._settings = Settings(modules)
        self._num_changes = 0

    def __call__(self, batch: Any, *more: Tensor | None) -> Any:
        """Return what the update returns."""
        if self._settings.have_changed():
            self._functions = {}
            self._num_changes += 1
        kind = batch.__class__
        structure: object = (kind, len(batch)) if kind is tuple or kind is list else None
        leaves = batch if structure is not None else (batch,)
        for leaf in leaves:
            if leaf.__class__ is not Tensor:
                leaves, structure = tree_flatten(batch)
                if not all(leaf.__class__ is Tensor or leaf is None for leaf in leaves):
                    return self._update(batch, *more)
                break
        function = self._functions.get(structure)
        if function is None:
            if self._num_changes > _MAX_CHANGES or self._settings.has_hooks:
                return self._update(batch, *more)
            function = self._functions[structure] = self._by(_of_leaves(self._update, batch))
        result = function(*leaves, *more)
        if not self._copies:
            return result
        if result.__class__ is tuple:
            return tuple([value.clone() for value in result])
        return result.clone()


def _of_leaves(update: Executed, batch: object) -> Callable[..., Any]:
    """Return the update as a function of the tensors of such a batch, one after another."""
    leaves, spec = tree_flatten(batch)
    count = len(leaves)

    def of_leaves(*tensors: object) -> Any:
        return update(tree_unflatten(tensors[:count], spec), *tensors[count:])

    return of_leaves


class Settings:
    """What decides, beside tensors, what a network computes: modes, numbers of layers, what is frozen."""

    def __init__(self, modules: Sequence[nn.Module]) -> None:
        self._parts = [part for module in modules for part in module.modules()]
        self._weights = [weight for module in modules for weight in module.parameters()]
        self._look()

    def _look(self) -> None:
        self._read = [_scalars(part) for part in self._parts]
        self._hooks = [vars(part)[name] for part in self._parts for name in HOOKS]
        self._weights_before = [*map(_of_weight, self._weights)]
        self._hooks += [
            hooks for _, *own in self._weights_before for hooks in own if hooks is not None
        ]
        self._hooks += GLOBAL_HOOKS
        self.has_hooks = any(self._hooks)
        """Whether a module or a parameter has hooks, which only an eager call calls."""
        self._before = [read(own) for read, own in self._read]

    def have_changed(self) -> bool:
        """Return whether anything is otherwise than at the last call."""
        if (
            [read(own) for read, own in self._read] == self._before
            and any(self._hooks) is self.has_hooks
            and [*map(_of_weight, self._weights)] == self._weights_before
        ):
            return False
        self._look()
        return True


def _scalars(part: nn.Module) -> tuple[Callable[[Any], Any], dict[str, Any]]:
    """Return what reads the numbers and words among a module's attributes, and what it reads them from."""
    own = vars(part)
    return itemgetter(*[name for name, value in own.items() if isinstance(value, _FIXED)]), own
