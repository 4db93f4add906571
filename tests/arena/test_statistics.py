"""Statistics of rollouts are those that can be worked out by hand.

Shapes: B episodes, K = 1 + C numbers of an action.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import pytest
import torch
from tensordict import TensorDict
from torch import Tensor

from ludus.arena.agents.combined import CombinedAgents
from ludus.arena.analyser import AnalysedRollouts
from ludus.arena.build import build_scenario_instance
from ludus.arena.playing.dataset import ArenaDataset
from ludus.arena.playing.distribution import TurnDistribution
from ludus.arena.playing.environment import MessageEnvironment
from ludus.arena.playing.rollout import roll_out
from ludus.arena.protocol import ACCEPT, CONTINUE, REJECT
from ludus.arena.protocols._table import Nip
from ludus.arena.statistics import (
    Meter,
    critic_statistics,
    mean_of,
    means,
    rollout_statistics,
)
from ludus.config.sections import validate
from ludus.core.errors import LudusError
from tests.arena.small import small_arena

CPU = torch.device("cpu")
LABELS = [0, 1, 0, 1]


@functools.cache
def _agents(protocol: str) -> tuple[Any, CombinedAgents]:
    changed = {"protocol.verifier_first": False, "protocol.max_message_rounds": 2}
    config = small_arena(**changed)
    instance = build_scenario_instance(
        config, device=CPU, trainer_type="rl", num_envs=1, num_judged=1, use_shared_body=True
    )
    return instance.protocol_handler, instance.agents


class Renamed(Nip):
    """nip, in which the one who decides has another name."""

    agent_names = ("judge", "prover")
    verifier_names = ("judge",)

    def turn(self, round_index: int, variant: int) -> Any:
        return {
            "judge" if name == "verifier" else name: channels
            for name, channels in super().turn(round_index, variant).items()
        }


def played(
    decisions: list[int], data: list[int], said: list[int] | None = None, cls: type[Nip] = Nip
) -> tuple[TensorDict, MessageEnvironment]:
    """Return episodes in which the prover speaks and the verifier then decides as it is told here."""
    handler, agents = _agents("nip")
    handler = cls(handler.params)
    dataset = ArenaDataset({"bits": torch.zeros(4, 4)}, torch.tensor(LABELS))
    environment = MessageEnvironment(
        dataset, handler, num_envs=len(data), seed=0, name="test", device=CPU
    )
    action_BAK = torch.zeros(len(data), 2, 2, dtype=torch.int64)
    action_BAK[:, 0, 0] = torch.tensor(decisions)
    action_BAK[:, 1, 1] = torch.tensor(said or [0] * len(data))

    def choose(distribution: TurnDistribution) -> Tensor:
        return action_BAK

    moment = environment.begin_with(torch.tensor(data), 0)
    return roll_out(agents, environment, moment, choose, num_steps=2), environment


@pytest.mark.covers("002-S14")
def test_a_verifier_s_decisions_are_counted_by_class_and_by_what_came_of_them() -> None:
    # Labels 0, 1, 0, 1: right, wrong, wrong, and no decision at all.
    found = means(
        rollout_statistics(*played([REJECT, REJECT, ACCEPT, CONTINUE], data=[0, 1, 2, 3]))
    )
    assert found["accuracy"] == found["verifier/accuracy"] == 0.25
    assert found["verifier/accuracy_of_0"] == 0.5
    assert found["verifier/accuracy_of_1"] == 0.0
    assert found["verifier/precision"] == 0.0
    assert found["verifier/recall"] == 0.0
    assert found["verifier/decided"] == 0.75
    assert found["verifier/accepted"] == 0.25
    assert found["timed_out"] == 0.25
    assert found["rounds"] == 2.0
    # Right +1, wrong -1, out of rounds -1; the prover gains by the one that was accepted.
    assert found["verifier/reward"] == -0.5
    assert found["prover/reward"] == 0.25


@pytest.mark.covers("002-D12")
def test_what_nothing_speaks_for_is_left_out_and_not_divided_by_zero() -> None:
    found = means(rollout_statistics(*played([REJECT, CONTINUE], data=[0, 2])))
    assert "verifier/precision" not in found  # nobody was accepted
    assert "verifier/recall" not in found  # and there was nobody to accept
    assert "verifier/accuracy_of_1" not in found
    assert found["verifier/accuracy_of_0"] == 0.5
    assert all(math.isfinite(value) for value in found.values())


@pytest.mark.covers("002-D12")
def test_whoever_decides_is_counted_by_its_own_name() -> None:
    found = means(rollout_statistics(*played([ACCEPT, ACCEPT], data=[0, 1], cls=Renamed)))
    assert found["accuracy"] == found["judge/accuracy"] == found["judge/precision"] == 0.5
    assert not any(name.startswith("verifier") for name in found)


@pytest.mark.covers("002-S14")
def test_precision_and_recall_are_of_those_accepted_and_those_to_accept() -> None:
    decisions = [ACCEPT, ACCEPT, ACCEPT, REJECT, REJECT]
    found = means(rollout_statistics(*played(decisions, data=[0, 1, 3, 1, 0])))
    assert found["verifier/precision"] == pytest.approx(2 / 3)
    assert found["verifier/recall"] == pytest.approx(2 / 3)


@pytest.mark.covers("002-S14")
def test_the_worst_and_the_deviation_are_over_data_and_not_over_episodes() -> None:
    # Datum 0 three times, rewards 1, 1, -1; datum 1 once, reward 1.
    decisions = [REJECT, REJECT, ACCEPT, ACCEPT]
    found = means(rollout_statistics(*played(decisions, data=[0, 0, 0, 1])))
    assert found["verifier/reward"] == pytest.approx(0.5)
    assert found["verifier/reward_worst"] == pytest.approx(1 / 3)
    assert found["verifier/reward_std"] == pytest.approx(1 / 3)
    assert found["verifier/accuracy_worst"] == pytest.approx(2 / 3)
    # The accuracies of the data, 2/3 and 1, are 1/6 from their mean; those of the episodes would be more.
    assert found["verifier/accuracy_std"] == pytest.approx(1 / 6)


@pytest.mark.covers("002-S14")
def test_entropies_of_decisions_and_messages_are_told_apart_and_only_of_turns() -> None:
    rollouts, environment = played([REJECT, REJECT], data=[0, 1])
    agents = rollouts["agents"]
    agents["decision_logits"].zero_()
    agents["message_logits"].zero_()
    # Where nobody has a turn the logits mean nothing.
    agents["decision_logits"][:, 0] = torch.tensor([50.0, 0.0, 0.0])
    agents["message_logits"][:, 1, 1] = torch.tensor([50.0, 0.0, 0.0])
    found = means(rollout_statistics(rollouts, environment))
    assert found["verifier/decision_entropy"] == pytest.approx(math.log(3))
    assert found["prover/message_entropy"] == pytest.approx(math.log(3))
    assert "prover/decision_entropy" not in found


@pytest.mark.covers("002-S14")
def test_residual_variance_is_what_the_values_leave_open_of_each_agent_s_targets() -> None:
    rollouts, environment = played([REJECT, ACCEPT], data=[0, 1])
    target_BTA1 = torch.tensor([[[1.0, 5.0], [1.0, 5.0]], [[3.0, 5.0], [3.0, 5.0]]])[..., None]
    value_BTA1 = torch.tensor([[[0.0, 1.0], [0.0, 2.0]], [[1.0, 3.0], [1.0, 4.0]]])[..., None]
    rollouts.set(("agents", "value_target"), target_BTA1)
    rollouts.set(("agents", "value"), value_BTA1)
    found = means(critic_statistics(rollouts, environment))
    # Targets 1, 1, 3, 3 vary by 1; what remains, 1, 1, 2, 2, by a quarter. The prover's do not vary.
    assert found == {"verifier/residual_variance": pytest.approx(0.25)}
    rollouts["agents"]["there"] = torch.tensor([[[True] * 2] * 2, [[False] * 2] * 2])
    assert means(critic_statistics(rollouts, environment)) == {}


@pytest.mark.covers("002-D12")
@pytest.mark.parametrize(
    ("lower", "upper", "varies"),
    [
        (1.0, 1.0 + 1e-7, False),  # as float32 rounds
        (0.0, 1e-6, False),
        (1000.0, 1000.0 + 1e-4, False),
        (0.0, 1e-4, True),
        (1000.0, 1001.0, True),
    ],
)
def test_targets_that_vary_by_their_rounding_alone_have_no_residual_variance(
    lower: float, upper: float, varies: bool
) -> None:
    rollouts, environment = played([REJECT, ACCEPT], data=[0, 1])
    targets = torch.tensor([lower, upper]).double()
    target_BTA1 = targets[:, None, None, None].expand(2, 2, 2, 1)
    rollouts.set(("agents", "value_target"), target_BTA1)
    rollouts.set(("agents", "value"), torch.zeros(2, 2, 2, 1))
    found = means(critic_statistics(rollouts, environment))
    # Values that are all the same leave all of the variance open.
    both = {f"{name}/residual_variance": pytest.approx(1.0) for name in ("verifier", "prover")}
    assert found == (both if varies else {})


def test_a_mean_over_iterations_weighs_each_by_what_it_had() -> None:
    meter = Meter(["accuracy_of_1"], CPU)
    meter.update({"accuracy_of_1": mean_of(torch.ones(1))})
    meter.update({"accuracy_of_1": mean_of(torch.zeros(3))})
    assert meter.take() == {"accuracy_of_1": 0.25}
    assert meter.take() == {}


@pytest.mark.covers("002-S14")
def test_message_information_is_a_bit_where_symbols_give_the_label_away() -> None:
    section = validate(
        type(small_arena()), {**small_arena().model_dump(), "analysers": [{"kind": "message_information"}]},
        source="test",
    ).analysers  # fmt: skip
    watched = AnalysedRollouts(section)
    telling = played([REJECT] * 4, data=[0, 1, 2, 3], said=[2, 1, 2, 1])
    assert means(watched(*telling))["message_information/prover"] == pytest.approx(1.0)
    telling[0]["agents", "message_mask"][:, :, 1] = False
    assert means(watched(*telling))["message_information/prover"] == 0.0  # it had no turn
    silent = played([REJECT] * 4, data=[0, 1, 2, 3], said=[2, 2, 1, 1])
    assert means(watched(*silent))["message_information/prover"] == pytest.approx(0.0)


def test_an_analyser_that_returns_more_than_numbers_is_refused() -> None:
    class Wrong:
        def analyse(self, rollouts: object, environment: object) -> dict[str, Tensor]:
            return {"many": torch.zeros(3)}

    watched = AnalysedRollouts([])
    watched.analysers["wrong"] = Wrong()  # type: ignore[assignment]
    with pytest.raises(LudusError, match="the analyser wrong returned 'many' of shape"):
        watched(*played([REJECT], data=[0]))


@pytest.mark.parametrize("names", [["a"], ["a", "b", "c"], ["a", "c"]])
def test_an_analyser_returns_the_same_names_each_time(names: list[str]) -> None:
    class Sometimes:
        names = ["a", "b"]

        def analyse(self, rollouts: object, environment: object) -> dict[str, float]:
            return dict.fromkeys(self.names, 1.0)

    watched, analyser = AnalysedRollouts([]), Sometimes()
    watched.analysers["sometimes"] = analyser  # type: ignore[assignment]
    first = watched(*played([REJECT], data=[0]))
    analyser.names = ["b", "a"]
    assert watched(*played([REJECT], data=[0])).keys() == first.keys()
    analyser.names = names
    with pytest.raises(
        LudusError, match=r"the analyser sometimes returned '[bc]' for some rollouts"
    ):
        watched(*played([REJECT], data=[0]))


def test_statistics_stay_on_the_device_until_they_are_written() -> None:
    rollouts, environment = played([REJECT, ACCEPT], data=[0, 1])
    elsewhere = rollouts.to("meta")  # a tensor without numbers: whoever reads one fails
    handler = environment.handler
    handler._made.clear()
    assert rollout_statistics(elsewhere, environment)["accuracy"].device.type == "meta"
    handler._made.clear()
