"""From parameters to a scenario instance of agents that are alone: datasets and agents, no episodes."""

from __future__ import annotations

import torch

from ludus.arena.agents.combined import CombinedAgents
from ludus.arena.build import make_agents
from ludus.arena.scenario import Datasets, Scenario, ScenarioInstance
from ludus.arena.solo.alone import NoEpisodes
from ludus.arena.solo.parameters import SoloHyperParameters
from ludus.config.registry import find


def build_solo_instance(
    params: SoloHyperParameters, *, device: torch.device, trainer_type: str
) -> ScenarioInstance:
    """Return everything that a trainer of agents alone needs of an experiment, on the device."""
    scenario: Scenario = find("scenario", params.scenario.kind)(params.scenario)  # type: ignore[attr-defined]
    handler, made = params.handler(), scenario.make_datasets(params.seed)
    datasets = Datasets(made.train.to(device), made.validation.to(device), made.test.to(device))
    members = make_agents(
        params,
        handler,
        dict.fromkeys(handler.agent_names, scenario.seen(datasets.train, handler)),
        trainer_type=trainer_type,
        use_shared_body=True,
    )
    agents = CombinedAgents(members, handler, list(datasets.train.data)).to(device)
    nothing = NoEpisodes(handler.agent_names)
    return ScenarioInstance(
        datasets=datasets,
        protocol_handler=handler,
        agents=agents,
        train_environment=nothing,
        validation_environment=nothing,
        test_environment=nothing,
        device=device,
    )
