"""Choose how an agent's update is computed: compiled, taped, or called plainly every time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from ludus.core.errors import LudusError
from ludus.nn.engines.compiled import why_not_traced
from ludus.nn.engines.gate import decide, is_plain, why_not_repeatable
from ludus.nn.engines.unsaved import PlainState, is_foreign
from ludus.rl.agent import Agent


def choose_update(
    agent: Agent, wanted: bool | Literal["auto"], *, is_long: bool
) -> tuple[bool, list[str]]:
    """Let the agent compile its update, or tape it; return whether it is compiled, and what to tell.

    Raise ConfigError where it is to be compiled and cannot be. What is neither torch's nor ludus's,
    and does not say that it is repeatable, is called plainly.
    """
    modules = agent.modules()
    agent.plain_state = PlainState(*modules)

    def why_not() -> str | None:
        if (reason := why_not_repeatable(agent, modules)) is not None or is_plain(modules):
            return reason
        return why_not_traced(agent._update, agent.example_inputs())

    is_compiled, notes = decide(wanted, is_long=is_long, why_not=why_not)
    plain = agent.update
    (agent.compile if is_compiled else agent.record)()
    is_vouched = any(is_foreign(type(part)) for module in modules for part in module.modules())
    if agent.update is not plain and is_vouched:
        agent.update = _watched_once(agent, agent.update)
    return is_compiled, notes


def _watched_once(agent: Agent, update: Callable[..., Any]) -> Callable[..., Any]:
    """Return the update, which at its first call shows whether networks keep their word."""

    def first(*inputs: Any) -> Any:
        state = PlainState(*agent.modules(), saved_too=True)
        result = update(*inputs)
        if changed := state.changed():
            raise LudusError(
                f"{changed[0]}, yet says that it is_repeatable; only what it does to tensors is"
                " repeated, so keep such state in buffers, or take 'is_repeatable' out"
            )
        agent.update = update
        return result

    return first
