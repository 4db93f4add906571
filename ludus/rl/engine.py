"""Choose the engine that executes an agent's update."""

from __future__ import annotations

from ludus.core import Run
from ludus.nn.engines.choice import EngineKey, EngineName, Subject, choose_engine
from ludus.nn.engines.unsaved import PlainState
from ludus.rl.agent import Agent
from ludus.session.begun import has_begun


def choose_update(
    agent: Agent, wanted: EngineKey, run: Run, *, num_updates: int
) -> tuple[EngineName, list[str]]:
    """Set the engine of the agent's update; return its name and the notices for the user.

    Raise ConfigError if the engine named in the config cannot execute it.
    """
    modules = agent.modules()
    agent.plain_state = PlainState(*modules)
    chosen = choose_engine(
        wanted,
        Subject(agent.update, agent, modules, agent.device, agent.example_inputs),
        is_long=num_updates >= agent.worth_compiling,
        has_begun=has_begun(run.files),
        tell=lambda note: run.tell(note, event="engine"),
    )
    agent.execute = chosen.by(agent.update)
    return chosen.engine, chosen.notes
