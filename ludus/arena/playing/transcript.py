"""Transcript of an episode as text: messages by channel, the decision, and the rewards."""

from __future__ import annotations

from ludus.arena.agents.combined import CombinedAgents
from ludus.arena.evaluation import ProtocolEvaluation
from ludus.arena.libraries import TensorDict
from ludus.arena.playing.environment import Environment, MessageEnvironment, ProtocolMoment
from ludus.arena.playing.rollout import roll_out
from ludus.arena.scenario import Scenario
from ludus.config.registry import find
from ludus.config.sections import kind_of

_VERDICTS = ("rejects", "accepts", "goes on")


def transcript(agents: CombinedAgents, evaluation: ProtocolEvaluation, index: int) -> list[str]:
    """Return test episode number `index` as lines."""
    environment = evaluation.instance.test_environment
    iteration, place = divmod(index, environment.num_envs)
    if isinstance(environment, MessageEnvironment):
        data = environment.data_index(iteration)
        moment, place = environment.begin_with(data[place : place + 1], index), 0
    else:
        moment = environment.begin(iteration)
    rollouts = roll_out(agents, environment, moment, evaluation.choose("play", index))[place]
    if isinstance(environment, MessageEnvironment):
        lines = _message_lines(environment, evaluation, moment, rollouts)
    else:
        lines = _step_lines(environment, rollouts)
    rewards_A = rollouts["next", "agents", "reward"].squeeze(-1).sum(0).tolist()
    gains = zip(environment.agent_names, rewards_A, strict=True)
    return [*lines, f"rewards: {', '.join(f'{name} {gain:+g}' for name, gain in gains)}"]


def _message_lines(
    environment: MessageEnvironment,
    evaluation: ProtocolEvaluation,
    moment: ProtocolMoment,
    rollouts: TensorDict,
) -> list[str]:
    section, handler = evaluation.config.scenario, environment.handler
    scenario: Scenario = find("scenario", kind_of(section))(section)
    datum = {name: tensor[0].cpu() for name, tensor in moment.seen.items()}
    lines = [f"datum {int(rollouts['index'][0])}, label {int(rollouts['y'][0])}"]
    lines += scenario.describe(datum)
    for step in range(environment.num_steps):
        if not bool(rollouts["mask"][step]):
            break
        row = rollouts[step]
        for which, name in enumerate(handler.agent_names):
            own = row["agents"][which]
            said = [
                scenario.symbol_name(int(own["action"][1 + channel]))
                + (f" in {title}" if len(handler.message_channel_names) > 1 else "")
                for channel, title in enumerate(handler.message_channel_names)
                if bool(own["message_mask"][channel])
            ]
            parts = [f"says {' and '.join(said)}"] if said else []
            if bool(own["decision_mask"]):
                parts.append(_VERDICTS[int(own["action"][0])])
            if parts:
                lines.append(f"round {step + 1}: {name} {', '.join(parts)}")
    return lines


def _step_lines(environment: Environment, rollouts: TensorDict) -> list[str]:
    lines = []
    actions_TA = rollouts["agents", "action"][..., 1].tolist()
    there_TA = rollouts["agents", "there"].tolist()
    rewards_TA = rollouts["next", "agents", "reward"].squeeze(-1).tolist()
    for step, is_played in enumerate(rollouts["mask"].tolist()):
        if is_played:
            names = environment.agent_names
            each = zip(names, actions_TA[step], rewards_TA[step], there_TA[step], strict=True)
            did = [
                f"{name} takes {action} ({gain:+g})" for name, action, gain, there in each if there
            ]
            lines.append(f"step {step + 1}: {', '.join(did)}")
    return lines
