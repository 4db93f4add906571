"""Choose the engine that executes an agent's update."""

from __future__ import annotations

from ludus.nn.engines.choice import Chosen, EngineKey, Subject, Tell, choose_engine
from ludus.nn.engines.unsaved import PlainState
from ludus.rl.agent import Agent


def choose_update(
    agent: Agent, wanted: EngineKey, *, is_long: bool, has_begun: bool, tell: Tell
) -> Chosen:
    """Let an engine execute the agent's update from now on; return which, and what to tell.

    Raise ConfigError where one is asked for by name that cannot.
    """
    modules = agent.modules()
    agent.plain_state = PlainState(*modules)
    subject = Subject(agent._update, agent, modules, agent.device, agent.example_inputs)
    chosen = choose_engine(wanted, subject, is_long=is_long, has_begun=has_begun, tell=tell)
    agent.update = chosen.by(agent._update)
    return chosen
