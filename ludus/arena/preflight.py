"""Checks before a run begins, so that mistakes in a loss module become clear errors."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from traceback import extract_tb

import torch
from torch import Tensor, nn

from ludus.arena.agents.combined import CombinedAgents
from ludus.arena.libraries import TensorDict
from ludus.arena.objectives.objective import KEYS
from ludus.arena.playing.columns import SEPARATOR
from ludus.arena.playing.environment import Environment
from ludus.arena.playing.rollout import roll_out, rows_of, sampled
from ludus.core.errors import ConfigError, LudusError
from ludus.nn.swapped_weights import restored
from ludus.seeds import derive

_MAKE_IT = "call loss_module.make_value_estimator(ValueEstimators.GAE, gamma=..., lmbda=...)"


def tried(
    agents: CombinedAgents, environment: Environment, *, seed: int, device: torch.device
) -> TensorDict:
    """Return the episodes of one iteration, not used for learning; empty statistics are initialised by
    them."""
    choose = sampled(derive(seed, "arena/tried"), device)
    with restored(agents):
        rollouts = roll_out(agents, environment, environment.begin(0), choose)
    if fresh := agents.fresh:
        agents.observe(environment.filled(rows_of(rollouts)), fresh)
    return rollouts


def made_loss_module(make: Callable[[], object], owner: str) -> tuple[nn.Module, nn.Module | None]:
    """Return the loss module and the estimator that a trainer makes, after checking their types."""
    try:
        found = make()
    except Exception as error:
        names = {frame.name for frame in extract_tb(error.__traceback__)}
        if "_default_value_estimator" in names:
            raise ConfigError(
                f"{owner}._get_loss_module_and_gae reads loss_module.value_estimator before it is made;"
                f" {_MAKE_IT} first"
            ) from error
        if isinstance(error, KeyError) and "make_value_estimator" in names:
            raise ConfigError(
                f"{owner}._get_loss_module_and_gae makes an estimator that looks for what no rollout has"
                f" ({error}); call loss_module.set_keys(**KEYS) first (ludus.arena.KEYS)"
            ) from error
        raise
    if not isinstance(found, tuple) or len(found) != 2:
        raise LudusError(
            f"{owner}._get_loss_module_and_gae returned {type(found).__name__}; return a loss module and its"
            " advantage estimator, or None in its place"
        )
    loss_module, gae = found
    if hasattr(gae, "deactivate_vmap"):
        # TorchRL's estimators call the critic under vmap, which does not support networks that draw random
        # numbers, read a value on the host or change a buffer.
        gae.deactivate_vmap = True
    for what, one in (("loss module", loss_module), ("advantage estimator", gae)):
        if not isinstance(one, nn.Module) and not (one is None and what != "loss module"):
            raise LudusError(
                f"{owner}._get_loss_module_and_gae returned a {type(one).__name__} as its {what}; return an"
                " instance of a subclass of ludus.Objective, and a module or None with it"
            )
    if gae is None and hasattr(getattr(loss_module, "tensor_keys", None), "advantage"):
        raise ConfigError(
            f"the loss module {type(loss_module).__name__} reads advantages, but has no value estimator;"
            f" {_MAKE_IT} and return loss_module.value_estimator with it"
        )
    return loss_module, gae


@contextlib.contextmanager
def checked_terms(loss_module: nn.Module, columns: Mapping[str, Tensor]) -> Iterator[None]:
    """Name the columns that a loss module is given, where it looks for another one."""
    keys = getattr(loss_module, "tensor_keys", None)
    for name in ("action", "sample_log_prob", "advantage", "value_target"):
        key = getattr(keys, name, None)
        path = key if isinstance(key, str) else SEPARATOR.join(key or ())
        # A default key that is missing is not read: by a loss without a critic, for example.
        if path and path not in columns and key != KEYS[name]:
            raise LudusError(
                f"{type(loss_module).__name__} looks for {key!r}, which is not in a minibatch; call"
                f" loss_module.set_keys({name}={KEYS[name]!r}), or set_arena_keys() of an Objective"
            )
    try:
        yield
    except KeyError as error:
        known = ", ".join(columns)
        raise LudusError(
            f"{type(loss_module).__name__} looks for what is not in a minibatch: {error}. There are {known};"
            " read one of these"
        ) from error
