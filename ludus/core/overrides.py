"""Refuse a trainer's method that looks like an override but is never called.

`hooks.py` refuses misspelt hooks; this covers the rest: `_train` or `training_step` in a trainer whose
plan has no such method, the name of a stage, or a near miss of an overridable name.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection
from types import FunctionType

from ludus.core.errors import HookError
from ludus.core.mentions import is_mentioned
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
HOOKS_ELSEWHERE = "on_"
"""Prefix of hooks in other libraries."""
OVERRIDABLE = (
    "plan", "parts", "prepare", "observers", "open", "close", "best", "more_bests", "runners_up",
    "inexact_because", "migrated", "evaluate", "train_step", "collect_rollout", "_train", "_roll_out",
)  # fmt: skip
"""Methods that may be overridden if the class has them; a near miss of one of these is a misspelling."""
_NEAR = 0.85


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
    known = [one for one in OVERRIDABLE if one in there]
    if close := difflib.get_close_matches(name, known, n=1, cutoff=_NEAR):
        return f"call it {close[0]}, or give it another name"
    own: Callable[[str], str | None] | None = getattr(trainer, "instead_of", None)
    if own is not None and (told := own(name)) is not None:
        return told
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
