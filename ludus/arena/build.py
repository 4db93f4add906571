"""From parameters to a scenario instance: datasets, agents and environments, each with a seed of its own.

HyperParameters -> Scenario      -> datasets
                -> ProtocolHandler
                -> each agent, seeded by its name, with the heads that `trainer_type` asks for
                -> CombinedAgents -> environments for training, judging and testing
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn

from ludus.arena.agents.agent import Agent, check_solo
from ludus.arena.agents.combined import CombinedAgents
from ludus.arena.experiment import ExperimentParameters
from ludus.arena.protocol import ProtocolHandler
from ludus.arena.scenario import Scenario, ScenarioInstance, Seen
from ludus.config.registry import find
from ludus.seeds import derive, forked


def build_scenario_instance(
    params: ExperimentParameters,
    *,
    device: torch.device,
    trainer_type: str,
    num_envs: int,
    num_judged: int,
    num_steps: int | None = None,
    use_shared_body: bool,
) -> ScenarioInstance:
    """Return everything that a trainer of this type needs of an experiment.

    `num_steps` is how many steps each env takes in an iteration, where no protocol has rounds that say it.
    """
    scenario: Scenario = find("scenario", params.scenario.kind)(params.scenario)  # type: ignore[attr-defined]
    handler, datasets = params.handler(), scenario.make_datasets(params.seed)
    seen = {name: scenario.seen_by(name, datasets, handler) for name in handler.agent_names}
    members = make_agents(
        params, handler, seen, trainer_type=trainer_type, use_shared_body=use_shared_body
    )
    agents = CombinedAgents(
        members, handler, scenario.data_names(datasets), own={} if handler.has_rounds else seen
    ).to(device)
    sizes = {"train": num_envs, "validation": num_judged, "test": num_envs}
    made = {
        name: scenario.make_environment(
            name,
            datasets,
            handler,
            num_envs=size,
            num_steps=num_steps,
            seed=params.seed,
            device=device,
        )
        for name, size in sizes.items()
    }
    return ScenarioInstance(
        datasets=datasets,
        protocol_handler=handler,
        agents=agents,
        train_environment=made["train"],
        validation_environment=made["validation"],
        test_environment=made["test"],
        device=device,
    )


def make_agents(
    params: ExperimentParameters,
    handler: ProtocolHandler,
    seen: Mapping[str, Seen],
    *,
    trainer_type: str,
    use_shared_body: bool,
) -> dict[str, Agent]:
    """Return the agents by name, in the order of the protocol.

    The weights of each depend on the seed and its name alone: another agent beside it changes nothing.
    """
    members: dict[str, Agent] = {}
    # Those that share another's body come last, when it is there.
    for name in sorted(handler.agent_names, key=lambda one: _lender(params, one) is not None):
        section, lender = params.agents[name], _lender(params, name)
        body: nn.Module | None = None if lender is None else members[lender].get_submodule("body")
        with forked(derive(params.seed, f"arena/agent/{name}")):
            members[name] = find("arena_agent", section.kind)(
                section,
                seen[name],
                name=name,
                trainer_type=trainer_type,
                use_shared_body=use_shared_body,
                body=body,
            )
        if trainer_type == "solo_agent":
            check_solo(members[name], name)
    return {name: members[name] for name in handler.agent_names}


def _lender(params: ExperimentParameters, name: str) -> str | None:
    found: str | None = getattr(params.agents[name], "shares_body_of", None)
    return found
