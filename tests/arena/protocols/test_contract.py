"""Every protocol keeps the contract, and the contract catches each one that does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from ludus.arena.playing.environment import MessageEnvironment, ProtocolMoment, Stepped
from ludus.arena.protocol import Outcome, ProtocolHandler, Turn
from ludus.arena.protocols._table import (
    MerlinArthur,
    MerlinArthurParameters,
    Mnip,
    MnipParameters,
)
from ludus.config.sections import validate
from ludus.testing.episodes import check_episodes
from ludus.testing.protocols import check_protocol
from tests.arena.protocols.made import environment, mute_agents, protocol, section

SHIPPED: dict[str, tuple[str, dict[str, Any]]] = {
    "solo_verifier": ("solo_verifier", {}),
    "solo_verifier, forced": ("solo_verifier", {"force_guess": "y"}),
    "adp": ("adp", {}),
    "nip": ("nip", {"min_message_rounds": 3}),
    "nip, verifier first": ("nip", {"verifier_first": True, "max_message_rounds": 3}),
    "nip, shared": ("nip", {"shared_reward": True}),
    "nip, forced": ("nip", {"force_guess": "zero"}),
    "mnip": ("mnip", {"force_guess": "one"}),
    "mnip, one after the other": (
        "mnip",
        {"sequential": True, "prover0_first": False, "max_message_rounds": 6},
    ),
    "debate": ("debate", {}),
    "debate, verifier first": ("debate", {"verifier_first": True, "max_message_rounds": 7}),
    "debate, at once": (
        "debate",
        {"sequential": False, "provers_hear_each_other": False, "max_message_rounds": 4},
    ),
    "merlin_arthur": ("merlin_arthur", {}),
    "merlin_arthur, shared": ("merlin_arthur", {"shared_reward": True}),
    "multi_channel_test": ("multi_channel_test", {}),
    "zero_knowledge": ("zero_knowledge", {}),
    "zero_knowledge of merlin_arthur": ("zero_knowledge", {"base": section("merlin_arthur")}),
}


@pytest.mark.covers("002-S9", "002-S10")
@pytest.mark.parametrize("name", SHIPPED)
def test_every_protocol_keeps_the_contract(name: str) -> None:
    kind, changes = SHIPPED[name]
    handler = protocol(kind, **changes)
    check_protocol(handler, rows_of=mute_agents(handler).rows_of)


@pytest.mark.parametrize("name", SHIPPED)
def test_episodes_of_every_protocol_go_as_it_says(name: str) -> None:
    kind, changes = SHIPPED[name]
    check_episodes(environment(protocol(kind, **changes)), num_symbols=3)


class _TwoInAChannel(Mnip):
    def speakers(self, round_index: int, seed_B: Tensor) -> Tensor:
        return super().speakers(round_index, seed_B) | (round_index == 2)


class _OutOfTurn(Mnip):
    def has_turn(self, round_index: int, seed_B: Tensor) -> Tensor:
        return super().has_turn(round_index, seed_B) & (round_index != 2)


class _ActingForgets(Mnip):
    def acting(self, round_index: int) -> tuple[int, ...]:
        return super().acting(round_index)[:1]


class _BatchMatters(Mnip):
    def deciders(self, round_index: int, seed_B: Tensor) -> Tensor:
        found = super().deciders(round_index, seed_B).clone()
        found[0] = False
        return found


class _ProverDecides(Mnip):
    def deciders(self, round_index: int, seed_B: Tensor) -> Tensor:
        return self.has_turn(round_index, seed_B)


class _DecidesEarly(Mnip):
    def decides(self, name: str, round_index: int, variant: int) -> bool:
        return name in self.verifier_names and name in self.turn(round_index, variant)


class _WrongForm(Mnip):
    def speakers(self, round_index: int, seed_B: Tensor) -> Tensor:
        return super().speakers(round_index, seed_B).long()


class _Telltale(Mnip):
    def visibility(self, device: torch.device) -> Tensor:
        return torch.ones(3, 2, dtype=torch.bool, device=device)


def _changed(of: str, by: Callable[[Outcome, Tensor, Tensor], Outcome]) -> type[Mnip]:
    class Changed(Mnip):
        def step(
            self,
            round_index: int,
            action_BAK: Tensor,
            y_B: Tensor,
            over_B: Tensor,
            seed_B: Tensor,
        ) -> Outcome:
            outcome = super().step(round_index, action_BAK, y_B, over_B, seed_B)
            return by(outcome, y_B, over_B)

    Changed.__name__ = of
    return Changed


class _WeakForce(Mnip):
    def forced(self, decision_BA: Tensor, y_B: Tensor) -> Tensor:
        return decision_BA


class _ReadsTheHost(Mnip):
    def side_rewards(self, round_index: int, action_BAK: Tensor, seed_B: Tensor) -> Tensor | None:
        return None if bool((seed_B >= 0).all()) else torch.zeros(len(seed_B), 3)


class _NoGoal(Mnip):
    def __init__(self, params: MnipParameters) -> None:
        super().__init__(params)
        self.goals = {"prover0": 1}

    @property
    def prover_goals(self) -> dict[str, int]:
        return getattr(self, "goals", {"prover0": 1, "prover1": 1})


_AfterTheEnd = _changed(
    "after the end", lambda out, y, over: out._replace(rewards=out.rewards + over[:, None] * 1.0)
)
_Endless = _changed(
    "endless", lambda out, y, over: out._replace(terminated=out.terminated & (y == 1))
)
_Twice = _changed("twice", lambda out, y, over: out._replace(terminated=out.terminated | over))
_Flattered = _changed("flattered", lambda out, y, over: out._replace(rewards=out.rewards.abs()))
_OtherVerdict = _changed("verdict", lambda out, y, over: out._replace(verdict=out.verdict * 0))
_Doubles = _changed("doubles", lambda out, y, over: out._replace(rewards=out.rewards.double()))

BROKEN: dict[str, tuple[type[Mnip], str]] = {
    "two in a channel": (_TwoInAChannel, "two agents speak in one channel"),
    "out of turn": (_OutOfTurn, "speaks out of turn"),
    "acting forgets": (_ActingForgets, "acting\\(\\) leaves out"),
    "a batch matters": (_BatchMatters, "depends on the others"),
    "a prover decides": (_ProverDecides, "who is no verifier"),
    "too early": (_DecidesEarly, "before min_message_rounds"),
    "wrong form": (_WrongForm, "speakers returns"),
    "telltale": (_Telltale, "disagree on what prover0 may read"),
    "after the end": (_AfterTheEnd, "over.*gains 1; it should be 0"),
    "endless": (_Endless, "ends should be True"),
    "twice": (_Twice, "ends should be False"),
    "flattered": (_Flattered, "verifier gains 3; it should be -3"),
    "other verdict": (_OtherVerdict, "the verdict should be"),
    "doubles": (_Doubles, "the rewards of round 0 are"),
    "weak force": (_WeakForce, "verifier gains"),
    "reads the host": (_ReadsTheHost, "reads a number of a tensor on the host"),
    "no goal": (_NoGoal, "each prover needs one goal"),
}


@pytest.mark.covers("002-S9", "002-S10")
@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_protocol_is_caught(name: str) -> None:
    cls, told = BROKEN[name]
    guess = "y" if name == "weak force" else None
    keys = section("mnip", min_message_rounds=4, force_guess=guess)
    handler = cls(validate(MnipParameters, keys, source="the test"))
    with pytest.raises(AssertionError, match=told):
        check_protocol(handler)


def test_an_agent_that_is_shown_a_channel_of_others_is_caught() -> None:
    handler = protocol("mnip")
    agents = mute_agents(handler)
    agents.sees_all = [True, True, True]
    with pytest.raises(AssertionError, match="prover0 is shown 'prover1_channel'"):
        check_protocol(handler, rows_of=agents.rows_of)
    agents.sees_all, agents.visible_AC = [False] * 3, torch.zeros(3, 2, dtype=torch.bool)
    with pytest.raises(AssertionError, match="verifier may read 'prover0_channel', but is not"):
        check_protocol(handler, rows_of=agents.rows_of)


def test_a_slot_that_is_named_after_the_other_prover_is_caught() -> None:
    class Misnamed(MerlinArthur):
        """Says that prover0 acts where prover1 speaks."""

        def turn(self, round_index: int, variant: int) -> Turn:
            return super().turn(round_index, 1 - variant)

        def speakers(self, round_index: int, seed_B: Tensor) -> Tensor:
            return super().speakers(round_index, seed_B + 1)

    params = validate(MerlinArthurParameters, section("merlin_arthur"), source="the test")
    with pytest.raises(AssertionError, match="an agent speaks out of turn"):
        check_protocol(Misnamed(params))


class _Loud(MessageEnvironment):
    """Writes down what is said in episodes that are over."""

    def _heard(self, moment: ProtocolMoment, said_BAC: Tensor) -> Tensor:
        speaks_BAC = self.handler.speakers(moment.step, moment.hidden["seed"])
        history_BRC = moment.seen["message_history"].clone()
        history_BRC[:, moment.step] = torch.where(speaks_BAC, said_BAC, -1).amax(1)
        return history_BRC


class _Immortal(MessageEnvironment):
    """Never says that an episode is over."""

    def step(self, moment: ProtocolMoment, action_BAK: Tensor) -> Stepped:
        stepped = super().step(moment, action_BAK)
        going = {**vars(stepped.moment), "over": moment.over & False}
        return stepped._replace(moment=ProtocolMoment(**going))


class _Indiscreet(MessageEnvironment):
    """Shows the labels."""

    def begin(self, iteration: int) -> ProtocolMoment:
        moment = super().begin(iteration)
        moment.seen["y"] = moment.hidden["y"]
        return moment


class _Forgetful(MessageEnvironment):
    """Lets a forced decision count as the agent's own."""

    def begin(self, iteration: int) -> ProtocolMoment:
        moment = super().begin(iteration)
        return ProtocolMoment(**{**vars(moment), "decision_mask": moment.decision_mask | True})


@pytest.mark.parametrize(
    ("cls", "told"),
    [
        (_Loud, "the history is not what was said"),
        (_Immortal, "'over' is not what has ended"),
        (_Indiscreet, "agents see 'y'"),
        (_Forgetful, "other decisions count"),
    ],
)
def test_episodes_that_go_otherwise_are_caught(cls: type[MessageEnvironment], told: str) -> None:
    handler: ProtocolHandler = protocol("nip")
    good = environment(handler)
    bad = cls(good.dataset, handler, num_envs=24, seed=0, name="test", device=torch.device("cpu"))
    with pytest.raises(AssertionError, match=told):
        check_episodes(bad, num_symbols=3)
