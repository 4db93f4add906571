"""The agent of a run, rebuilt with one env in place of all, and no replay: for `ludus.load`."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ludus.core.abilities import Program, Supplied, made, ungiven
from ludus.core.errors import LudusError
from ludus.envs.config import env_name, make_env
from ludus.nn.swapped_weights import restored
from ludus.rl.agent import Agent
from ludus.rl.evaluation.env import EvaluationEnv
from ludus.rl.export import policy_program
from ludus.rl.policy import Policy
from ludus.session.device import resolve_device

if TYPE_CHECKING:
    from ludus.rl.trainer import RLTrainer

_NEEDED = {"model": "network", "agent": "agent", "trainer": "trainer class"}
"""The roles of what a script may give that an agent acts by."""


class KeptAgent:
    """An agent with nothing to learn from."""

    def __init__(self, trainer: RLTrainer) -> None:
        """Build it for the spaces of one env, which is closed again."""
        self._section = trainer.config.env
        trainer.device = resolve_device(trainer.config.settings.device)
        env = make_env(self._section)
        one = EvaluationEnv(
            env, seed=trainer.config.seed, stream="load", title=env_name(self._section)
        )
        try:
            one.begin(0)  # whether there are masks is known only after a reset
        finally:
            env.close()
        self._spec, self._spaces = one.spec, (env.observation_space, env.action_space)
        self._agent = trainer.make_agent(self._spec)
        if not isinstance(self._agent, Agent):
            own = type(getattr(self._agent, "own", self._agent)).__name__
            raise LudusError(
                f"the agent {own} is the script's own, which alone knows how it acts; load its state in the"
                " script"
            )

    def weights_of(self, state: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the policy weights in a saved state; the agent is not changed."""
        with restored(self._agent, what=["state"]):
            self._agent.load_state_dict(state["agent"])
            return dict(self._agent.weights())

    def loaded(self, weights: Mapping[str, Any], about: Mapping[str, Any]) -> Policy:
        """Return a policy with these weights."""
        self._agent.load_weights(weights)
        make = functools.partial(make_env, self._section)
        return Policy(self._agent, self._spec, *self._spaces, make)

    def programs(
        self, weights: Mapping[str, Any], about: Mapping[str, Any]
    ) -> Mapping[str, Program]:
        """Return the greedy policy with these weights, from an observation to an action."""
        self._agent.load_weights(weights)
        return {"": policy_program(self._agent)}


def kept(trainer: RLTrainer, given: Supplied) -> KeptAgent:
    """Return the agent of a trainer that is not prepared; a method of it."""
    if given.network is not None:
        trainer.set_model(made(given.network))
    for role, what in _NEEDED.items():
        if role not in given.by_script or (role == "model" and given.network is not None):
            continue
        if role == "model":
            raise ungiven(what, trainer.config.name)
        raise ungiven(what, trainer.config.name, remedy="")
    return KeptAgent(trainer)
