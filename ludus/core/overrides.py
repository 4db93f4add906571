"""Refuse a trainer's method that looks like an override but is never called.

`hooks.py` refuses misspelt hooks; this covers the rest: `_train` or `training_step` in a trainer whose
plan has no such method, the name of a stage, or a near miss of an overridable name.
"""

from __future__ import annotations

import ast
import difflib
import inspect
import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from types import CodeType, FrameType, FunctionType, ModuleType

from ludus.core.authors import is_of_user
from ludus.core.errors import HookError
from ludus.core.plan import Repeat, walk_nodes

ELSEWHERE = frozenset({
    "train", "train_step", "train_round", "train_loop", "train_epoch", "train_one_epoch", "train_batch",
    "training_step", "training_loop", "run_train_loop", "run_test_loop", "run_epoch", "run_step",
    "validation_step", "test_step", "eval_step", "predict_step", "optimizer_step", "fit_step", "step",
    "evaluate", "evaluation", "validate", "collect", "collect_rollout", "collect_rollouts", "roll_out",
    "rollout", "get_rollout", "update", "learn", "optimize", "loss", "compute_loss", "loss_fn",
    "configure_optimizers", "train_dataloader", "val_dataloader", "test_dataloader", "make_datasets",
    "build_model", "make_model", "setup", "teardown", "prepare_data", "forward", "backward", "zero_grad",
})  # fmt: skip
"""Names that users override in this and other training libraries, without leading underscores."""
OF_SERVICES = {"seed_generators": "seed", "log_in_memory": "log_in_memory"}
"""Methods of trainers in earlier versions -> the methods of their `services` that do the same."""
HOOKS_ELSEWHERE = "on_"
"""Prefix of hooks in other libraries."""
OVERRIDABLE = (
    "plan", "parts", "prepare", "observers", "open", "close", "best", "more_bests", "runners_up",
    "inexact_because", "migrated", "evaluate", "train_step", "collect_rollout", "_train", "_roll_out",
)  # fmt: skip
"""Methods that may be overridden if the class has them; a near miss of one of these is a misspelling."""
_NEAR = 0.85
_BY_NAME = {"getattr", "hasattr", "methodcaller", "attrgetter"}


def check_overrides(trainer: object, plan: Repeat) -> None:
    """Raise HookError for a method of a script's trainer that looks like an override and is never called.

    A method that the user's code refers to, in any file, may be called from there; helpers are left alone.
    A library class lists in `uncalled` the methods that it offers to scripts and that no run calls.
    """
    own = [cls for cls in type(trainer).__mro__ if not _is_of_library(cls)]
    there = {name for cls in type(trainer).__mro__ if cls not in own for name in vars(cls)}
    there -= {*getattr(trainer, "uncalled", ())}
    nodes = {node.name for node in walk_nodes(plan)}
    for cls in own:
        for name, value in vars(cls).items():
            is_method = isinstance(value, FunctionType | staticmethod | classmethod)
            if not is_method or name in there or name.startswith("__"):
                continue
            if (likeness := _likeness(name, nodes, there)) and not is_mentioned(name, own):
                raise HookError(
                    f"{cls.__name__}.{name} {likeness}, but nothing calls it, so it would do nothing;"
                    f" {_remedy(trainer, name, there, nodes)}"
                )


def _is_of_library(cls: type) -> bool:
    return cls.__module__.partition(".")[0] in ("ludus", "builtins", "abc", "typing")


def _likeness(name: str, nodes: Collection[str], there: Collection[str]) -> str | None:
    """Return what the name resembles, as the middle of a sentence; None for a helper."""
    bare = name.lstrip("_")
    if name in OF_SERVICES:
        return "was a method of trainers in earlier versions"
    if bare in ELSEWHERE or bare.startswith(HOOKS_ELSEWHERE):
        return "looks like a method that a run calls"
    if bare in nodes:
        return f"has the name of the node '{bare}' of the plan"
    known = [one for one in OVERRIDABLE if one in there]
    if close := difflib.get_close_matches(name, known, n=1, cutoff=_NEAR):
        return f"looks like {close[0]}"
    return None


def _remedy(trainer: object, name: str, there: Collection[str], nodes: Collection[str]) -> str:
    """Return the advice for the error message."""
    if name in OF_SERVICES:
        services = type(getattr(trainer, "services", None)).__name__
        return (
            f"override {OF_SERVICES[name]} in a class derived from {services}, and set `services` of the"
            " trainer's class to one of it"
        )
    known = [one for one in OVERRIDABLE if one in there]
    if close := difflib.get_close_matches(name, known, n=1, cutoff=_NEAR):
        return f"call it {close[0]}, or give it another name"
    own: Callable[[str], str | None] | None = getattr(trainer, "instead_of", None)
    if own is not None and (advice := own(name)) is not None:
        return advice
    if name.startswith(HOOKS_ELSEWHERE):
        words = name.split("_")
        when = "before" if {"start", "begin", "before"} & {*words} else "after"
        named = [word for word in words if word in nodes][-1:] or sorted(nodes)
        hooks = " or ".join(f"{when}_{node}" for node in named)
        return f"hooks are named after the nodes of the plan: call it {hooks}"
    return (
        f"put it in the plan, Stage(name=..., work=self.{name}), override one of {', '.join(known)}, or give"
        " it another name"
    )


def is_mentioned(name: str, classes: Collection[type]) -> bool:
    """Return whether these classes, or any loaded module of the user's, refer to this attribute.

    References inside the method itself and `super().<name>` do not count. A method on the call stack does.
    """
    own = [code for cls in classes for code in codes_of(vars(cls).get(name))]
    frames = [*_frames()]
    if any(frame.f_code in own for frame in frames):
        return True
    others = [value for cls in classes for key, value in vars(cls).items() if key != name]
    if any(name in code.co_names for value in others for code in codes_of(value)):
        return True
    return any(
        _speaks(module, name, classes, frames)
        for module in modules_of_user({cls.__module__.partition(".")[0] for cls in classes})
    )


def modules_of_user(packages: Collection[str]) -> list[ModuleType]:
    """Return the loaded modules that are the user's or belong to one of these packages."""
    return [
        module
        for key, module in list(sys.modules.items())
        if isinstance(module, ModuleType)
        and (key.partition(".")[0] in packages or key == "__main__" or _is_users(key, module))
    ]


def _is_users(key: str, module: ModuleType) -> bool:
    """Return whether a loaded module is the user's, and not one of a library under another name."""
    return is_of_user(key) and is_of_user(module.__name__)


def _frames() -> Iterator[FrameType]:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        yield frame
        frame = frame.f_back


def _speaks(
    module: ModuleType, name: str, classes: Collection[type], frames: Iterable[FrameType]
) -> bool:
    try:
        source = inspect.getsource(module)
        tree = ast.parse(source) if name in source else None
    except (OSError, TypeError, SyntaxError, ValueError):
        # An interactive prompt keeps no source, but the code it runs now can be read.
        codes = [frame.f_code for frame in frames if frame.f_globals is vars(module)]
        functions = [value for value in vars(module).values() if isinstance(value, FunctionType)]
        codes += [code for function in functions for code in codes_of(function)]
        return any(name in code.co_names for code in codes)
    if tree is None:
        return False
    here = {cls.__name__ for cls in classes if cls.__module__ == module.__name__}
    nodes = [*_nodes(tree, name, here)]
    calls = [node for node in nodes if isinstance(node, ast.Call) and _called(node) in _BY_NAME]
    is_computed = any(_called(call) == "getattr" and not _says(call) for call in calls)
    return (
        any(isinstance(node, ast.Attribute) and _is_use(node, name) for node in nodes)
        or any(name in _says(call) for call in calls)
        or (is_computed and any(isinstance(n, ast.Constant) and n.value == name for n in nodes))
    )


def _nodes(tree: ast.AST, name: str, classes: Collection[str]) -> Iterator[ast.AST]:
    """Yield all nodes of the tree except the methods of this name in the classes of these names."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        is_class = isinstance(node, ast.ClassDef) and node.name in classes
        waiting += [
            child
            for child in ast.iter_child_nodes(node)
            if not (
                is_class
                and isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
                and child.name == name
            )
        ]


def _is_use(node: ast.Attribute, name: str) -> bool:
    is_of_super = isinstance(node.value, ast.Call) and _called(node.value) == "super"
    return node.attr == name and isinstance(node.ctx, ast.Load) and not is_of_super


def _called(call: ast.Call) -> str:
    function = call.func
    return str(getattr(function, "id", None) or getattr(function, "attr", ""))


def _says(call: ast.Call) -> list[object]:
    """Return the string arguments of a call."""
    found = [one.value for one in call.args if isinstance(one, ast.Constant)]
    return [value for value in found if isinstance(value, str)]


def codes_of(value: object) -> Iterator[CodeType]:
    """Yield the code objects of a method or property, and of the functions nested in it."""
    if isinstance(value, property):
        for part in (value.fget, value.fset):
            yield from codes_of(part)
    if isinstance(value, staticmethod | classmethod):
        value = value.__func__
    if isinstance(value, FunctionType):
        value = inspect.unwrap(value)  # `prepare` and `plan` are wrapped by the library itself
    waiting = [value.__code__] if isinstance(value, FunctionType) else []
    while waiting:
        code = waiting.pop()
        yield code
        waiting += [one for one in code.co_consts if isinstance(one, CodeType)]
