"""Build a scenario instance from parameters: datasets, agents and environments, each with its own seed.

HyperParameters -> Scenario      -> datasets
                -> ProtocolHandler
                -> each agent, seeded by its name, with the heads that `trainer_type` needs
                -> CombinedAgents -> environments for training, evaluation and testing
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn

from ludus.arena.agents.agent import Agent, check_solo, check_trainer_type
from ludus.arena.agents.combined import CombinedAgents
from ludus.arena.config import ExperimentParameters, ExperimentSettings
from ludus.arena.protocol import ProtocolHandler
from ludus.arena.scenario import Datasets, ObservationSizes, Scenario, ScenarioInstance
from ludus.arena.solo.alone import Alone, NoEpisodes
from ludus.config.registry import find
from ludus.seeds import derive, forked
from ludus.session.device import resolve_device


def build_scenario_instance(
    params: ExperimentParameters,
    settings: ExperimentSettings | None = None,
    *,
    device: torch.device | None = None,
    trainer_type: str | None = None,
    num_envs: int | None = None,
    num_judged: int | None = None,
    num_steps: int | None = None,
    use_shared_body: bool | None = None,
) -> ScenarioInstance:
    """Return everything that a trainer needs of an experiment, as its parameters describe it.

    Defaults follow from them: the device from `settings`, theirs unless given; the type of the trainer from
    the class of their kind; `num_envs`, `num_steps` and `use_shared_body` from `rl`, and `num_judged`, the
    episodes of an evaluation, from `evaluation`.
    """
    rl, evaluation = getattr(params, "rl", None), getattr(params, "evaluation", None)
    if device is None:
        device = resolve_device((settings or params.settings).device)
    if trainer_type is None:
        trainer_type = getattr(find("trainer", params.kind), "trainer_type", "rl")
    if use_shared_body is None:
        use_shared_body = getattr(rl, "shared_body", True)
    envs = getattr(rl, "rollouts_per_iteration", 1) if num_envs is None else num_envs
    judged = getattr(evaluation, "episodes", 1) if num_judged is None else num_judged
    if num_steps is None:
        num_steps = getattr(rl, "steps_per_env_per_iteration", None)
    scenario: Scenario = find("scenario", params.scenario.kind)(params.scenario)  # type: ignore[attr-defined]
    handler, datasets = params.handler(), scenario.make_datasets(params.seed)
    if isinstance(handler, Alone):
        every = (datasets.train, datasets.validation, datasets.test)
        datasets = Datasets(*(dataset.to(device) for dataset in every))
    agents = _combined(params, handler, scenario, datasets, trainer_type, use_shared_body)
    made = {}
    for name, size in {"train": envs, "validation": judged, "test": envs}.items():
        made[f"{name}_environment"] = (
            NoEpisodes(handler.agent_names)
            if isinstance(handler, Alone)
            else scenario.make_environment(
                name,
                datasets,
                handler,
                num_envs=size,
                num_steps=num_steps,
                seed=params.seed,
                device=device,
            )
        )
    return ScenarioInstance(
        datasets=datasets,
        protocol_handler=handler,
        agents=agents.to(device),
        device=device,
        scenario=scenario,
        **made,
    )


def _combined(
    params: ExperimentParameters,
    handler: ProtocolHandler,
    scenario: Scenario,
    datasets: Datasets,
    trainer_type: str,
    use_shared_body: bool,
) -> CombinedAgents:
    """Return all agents as one actor, on the CPU."""
    seen = {name: scenario.seen_by(name, datasets, handler) for name in handler.agent_names}
    members = make_agents(
        params, handler, seen, trainer_type=trainer_type, use_shared_body=use_shared_body
    )
    names, own = scenario.data_names(datasets), {} if handler.has_rounds else seen
    return CombinedAgents(members, handler, names, own=own)


def make_agents(
    params: ExperimentParameters,
    handler: ProtocolHandler,
    seen: Mapping[str, ObservationSizes],
    *,
    trainer_type: str,
    use_shared_body: bool,
) -> dict[str, Agent]:
    """Return the agents by name, in the order of the protocol.

    The weights of each depend on the seed and its name alone: adding another agent changes nothing.
    """
    members: dict[str, Agent] = {}
    # Agents that share another's body are built last, when that body exists.
    for name in sorted(handler.agent_names, key=lambda one: _lender(params, one) is not None):
        section, lender = params.agents[name], _lender(params, name)
        check_trainer_type(find("arena_agent", section.kind), section.kind, trainer_type)
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
