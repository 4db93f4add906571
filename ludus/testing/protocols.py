"""Contract of a protocol: every round, decision and label is tried, and every promise is checked.

`check_protocol` checks the rules alone, `ludus.testing.episodes` episodes that are played by them.

Shapes: B episodes, A agents, C channels, R rounds, K = 1 + C numbers of an action.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import torch
from torch import Tensor

_REJECT, _ACCEPT, _CONTINUE, _NOTHING = 0, 1, 2, -1
_SEEDS = (0, 1, 2, 3, 5, 8, 1_000_003, 2**31 - 1)


class Handler(Protocol):
    """Methods of a protocol that are checked here; `ludus.arena.protocol` documents them."""

    rules: Any

    @property
    def agent_names(self) -> tuple[str, ...]: ...
    @property
    def verifier_names(self) -> tuple[str, ...]: ...
    @property
    def prover_names(self) -> tuple[str, ...]: ...
    @property
    def prover_goals(self) -> Mapping[str, int]: ...
    @property
    def message_channel_names(self) -> tuple[str, ...]: ...
    @property
    def agent_channel_visibility(self) -> Mapping[str, tuple[str, ...]]: ...
    @property
    def stackelberg_sequence(self) -> tuple[tuple[str, ...], ...]: ...
    @property
    def max_message_rounds(self) -> int: ...
    @property
    def min_message_rounds(self) -> int: ...
    def judged(self, seed_B: Tensor) -> Tensor: ...
    def speakers(self, round_index: int, seed_B: Tensor) -> Tensor: ...
    def has_turn(self, round_index: int, seed_B: Tensor) -> Tensor: ...
    def deciders(self, round_index: int, seed_B: Tensor) -> Tensor: ...
    def acting(self, round_index: int) -> tuple[int, ...]: ...
    def visibility(self, device: torch.device) -> Tensor: ...
    def side_rewards(
        self, round_index: int, action_BAK: Tensor, seed_B: Tensor
    ) -> Tensor | None: ...
    def step(
        self, round_index: int, action_BAK: Tensor, y_B: Tensor, over_B: Tensor, seed_B: Tensor
    ) -> Any: ...


RowsOf = Callable[[int, Mapping[str, Tensor]], Mapping[str, Tensor]]
"""Returns the observations of an agent, by its index: of a `message_history` (N, R, C) and a `round` (N,)."""


def check_protocol(handler: Handler, *, rows_of: RowsOf | None = None) -> None:
    """Fail with an AssertionError unless the rules fulfil the contract of a protocol.

    `rows_of` returns what agents see, such as `CombinedAgents.rows_of`; with it, no agent may see a channel
    that it may not read.
    """
    _check_names(handler)
    for index in range(handler.max_message_rounds):
        _check_masks(handler, index)
        _check_step(handler, index)
        _check_on_device(handler, index)
    _check_visibility(handler, rows_of)
    _check_termination(handler)


def _check_names(handler: Handler) -> None:
    agents, channels = handler.agent_names, handler.message_channel_names
    for what, names in (("agents", agents), ("channels", channels)):
        assert len(set(names)) == len(names) > 0, f"the {what} are {names}; name each once"
    known = set(agents)
    assert set(handler.verifier_names) <= known, "a verifier is none of the agents"
    assert handler.verifier_names, "there is no verifier, so nobody decides"
    assert set(handler.prover_names) <= known, "a prover is none of the agents"
    both = set(handler.verifier_names) & set(handler.prover_names)
    assert not both, f"{sorted(both)} both argue and decide"
    assert set(handler.prover_goals) == set(handler.prover_names), "each prover needs one goal"
    moving = [name for group in handler.stackelberg_sequence for name in group]
    assert sorted(moving) == sorted(agents), f"each agent moves once, but {moving} do"
    assert all(handler.stackelberg_sequence), "a group of the stackelberg_sequence is empty"
    assert 0 <= handler.min_message_rounds <= handler.max_message_rounds, (
        "min_message_rounds is not between 0 and max_message_rounds"
    )


def _check_masks(handler: Handler, index: int) -> None:
    """Check the masks of speakers, turns and deciders in a round, for various seeds."""
    seed_B = torch.tensor(_SEEDS)
    where = f"in round {index} "
    agents, channels = len(handler.agent_names), len(handler.message_channel_names)
    speaks_BAC = handler.speakers(index, seed_B)
    active_BA, decides_BA = handler.has_turn(index, seed_B), handler.deciders(index, seed_B)
    shapes: dict[str, tuple[Tensor, tuple[int, ...]]] = {
        "speakers": (speaks_BAC, (agents, channels))
    }
    shapes |= {"has_turn": (active_BA, (agents,)), "deciders": (decides_BA, (agents,))}
    for name, (mask, shape) in shapes.items():
        wanted = (torch.bool, (len(_SEEDS), *shape))
        found = mask.dtype, tuple(mask.shape)
        assert found == wanted, f"{where}{name} returns {found}; it should be {wanted}"
        alone = getattr(handler, name)(index, seed_B.flip(0)).flip(0)
        assert torch.equal(alone, mask), f"{where}{name} of an episode depends on the others"
    assert speaks_BAC.sum(1).max() <= 1, f"{where}two agents speak in one channel"
    assert not (speaks_BAC.any(-1) & ~active_BA).any(), f"{where}an agent speaks out of turn"
    assert active_BA.any(1).all(), f"{where}it is nobody's turn"
    visible_AC = handler.visibility(torch.device("cpu"))
    assert not (speaks_BAC & ~visible_AC).any(), f"{where}an agent speaks where it may not read"
    idle = [i for i in range(agents) if i not in handler.acting(index)]
    assert not active_BA[:, idle].any(), f"{where}an agent has a turn that acting() leaves out"
    others = [i for i, name in enumerate(handler.agent_names) if name not in handler.verifier_names]
    assert not decides_BA[:, others].any(), f"{where}one decides who is no verifier"
    assert not (decides_BA & ~active_BA).any(), f"{where}a verifier decides out of turn"
    assert decides_BA.sum(1).max() <= 1, f"{where}two verifiers decide at once"
    is_early = index < handler.min_message_rounds - 1
    assert not (is_early and decides_BA.any()), f"{where}one decides before min_message_rounds"
    judged_B = handler.judged(seed_B)
    assert not decides_BA[~judged_B].any(), f"{where}an episode is decided that is not judged"
    if index == handler.max_message_rounds - 1:
        assert decides_BA[judged_B].any(1).all(), f"{where}which is the last, nobody may decide"


def _cases(handler: Handler) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return actions, labels, whether it was over, and seeds: every decision with every label and end."""
    rows = [*itertools.product((_REJECT, _ACCEPT, _CONTINUE), (0, 1), (False, True), _SEEDS)]
    decision_B, y_B, over_B, seed_B = (torch.tensor(column) for column in zip(*rows, strict=True))
    shape = len(rows), len(handler.agent_names), 1 + len(handler.message_channel_names)
    # Few symbols, so that agents often send the same one.
    action_BAK = torch.randint(2, shape, generator=torch.Generator().manual_seed(7))
    action_BAK[..., 0] = decision_B[:, None]
    return action_BAK, y_B, over_B, seed_B


def _check_step(handler: Handler, index: int) -> None:
    """Check rewards, ends and verdicts in every branch against the slow reference below."""
    cases = _cases(handler)
    before = [tensor.clone() for tensor in cases]
    outcome = handler.step(index, *cases)
    for kept, given in zip(before, cases, strict=True):
        assert torch.equal(kept, given), f"round {index} changed the tensors that it was given"
    rewards_BA = outcome.rewards
    wanted = torch.float32, (len(cases[0]), len(handler.agent_names))
    found = rewards_BA.dtype, tuple(rewards_BA.shape)
    assert found == wanted, f"the rewards of round {index} are {found}; they should be {wanted}"
    for row, (action_AK, y, over, seed) in enumerate(zip(*cases, strict=True)):
        decision, label = int(action_AK[0, 0]), int(y)
        where = (
            f"round {index}, decision {decision}, label {label}, {'over' if over else 'not over'},"
            f" seed {int(seed)}: "
        )
        gains, ends, verdict = _slow_step(handler, index, action_AK, label, bool(over), int(seed))
        for place, name in enumerate(handler.agent_names):
            gained = float(rewards_BA[row, place])
            assert abs(gained - gains[name]) < 1e-6, (
                f"{where}{name} gains {gained:g}; it should be {gains[name]:g}"
            )
        assert bool(outcome.terminated[row]) == ends, f"{where}ends should be {ends}"
        assert int(outcome.verdict[row]) == verdict, f"{where}the verdict should be {verdict}"


def _slow_step(
    handler: Handler, index: int, action_AK: Tensor, y: int, is_over: bool, seed: int
) -> tuple[dict[str, float], bool, int]:
    """Return the rewards of one episode, whether it ends and its verdict: a slow reference version."""
    rules, seeds = handler.rules, torch.tensor([seed])
    gains = dict.fromkeys(handler.agent_names, 0.0)
    if is_over:
        return gains, False, _CONTINUE
    is_last = index == rules.max_message_rounds - 1
    verdict, of_verifier = _CONTINUE, 0.0
    for place, name in enumerate(handler.agent_names):
        has_turn = bool(handler.has_turn(index, seeds)[0, place] & handler.judged(seeds)[0])
        if name in handler.verifier_names and has_turn and index >= rules.min_message_rounds - 1:
            forced = {None: int(action_AK[place, 0]), "zero": _REJECT, "one": _ACCEPT, "y": y}
            verdict = forced[rules.force_guess]
            if verdict == y:
                of_verifier = rules.verifier_reward
            elif verdict != _CONTINUE:
                of_verifier = rules.verifier_incorrect_reward
            elif is_last:
                of_verifier = rules.verifier_terminated_reward
            else:
                of_verifier = rules.verifier_continue_reward
            gains[name] = of_verifier
    for name in handler.prover_names:
        is_convincing = verdict == handler.prover_goals[name]
        own = rules.prover_reward if is_convincing else 0.0
        gains[name] = of_verifier if rules.shared_reward else own
    side_rewards = handler.side_rewards(index, action_AK[None], seeds)
    if side_rewards is not None:
        for place, name in enumerate(handler.agent_names):
            gains[name] += float(side_rewards[0, place])
    return gains, is_last or verdict != _CONTINUE, verdict


def _check_on_device(handler: Handler, index: int) -> None:
    """Check with fake tensors that no value of a tensor is read on the host."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    # Constants were created by the checks before; creating one may use values on the host.
    cases = _cases(handler)
    try:
        with FakeTensorMode(allow_non_fake_inputs=True) as fake:
            action_BAK, y_B, over_B, seed_B = (fake.from_tensor(tensor) for tensor in cases)
            handler.speakers(index, seed_B), handler.deciders(index, seed_B)
            handler.has_turn(index, seed_B), handler.judged(seed_B)
            handler.step(index, action_BAK, y_B, over_B, seed_B)
    except Exception as error:
        raise AssertionError(
            f"round {index} reads a number of a tensor on the host, which waits for the device:"
            f" {type(error).__name__}: {str(error).splitlines()[0]}"
        ) from error


def _check_termination(handler: Handler) -> None:
    """Check that every episode ends once, by the last round at the latest, with no rewards after."""
    generator = torch.Generator().manual_seed(7)
    seed_B = torch.arange(64)
    y_B, over_B = seed_B % 2, torch.zeros(64, dtype=torch.bool)
    shape = 64, len(handler.agent_names), 1 + len(handler.message_channel_names)
    for index in range(handler.max_message_rounds):
        action_BAK = torch.randint(3, shape, generator=generator)
        outcome = handler.step(index, action_BAK, y_B, over_B, seed_B)
        assert not (outcome.terminated & over_B).any(), "an episode ends twice"
        assert not outcome.rewards[over_B].any(), "an agent gains after the end"
        over_B = over_B | outcome.terminated
    assert over_B.all(), f"an episode goes on after {handler.max_message_rounds} rounds"


def _check_visibility(handler: Handler, rows_of: RowsOf | None) -> None:
    """Check that what an agent sees depends on all channels that it may read and on no other."""
    names, channels = handler.agent_names, handler.message_channel_names
    visible_AC = handler.visibility(torch.device("cpu"))
    for place, name in enumerate(names):
        wanted = [channel in handler.agent_channel_visibility[name] for channel in channels]
        assert visible_AC[place].tolist() == wanted, (
            f"visibility() and agent_channel_visibility disagree on what {name} may read"
        )
        if rows_of is None:
            continue
        history_NRC = torch.zeros(2, handler.max_message_rounds, len(channels), dtype=torch.int64)
        shown = _shown(rows_of, place, history_NRC)
        for number, channel in enumerate(channels):
            other_NRC = history_NRC.clone()
            other_NRC[..., number] = 1
            is_same = torch.equal(_shown(rows_of, place, other_NRC), shown)
            may = wanted[number]
            assert is_same or may, f"{name} is shown '{channel}', which it may not read"
            assert not (is_same and may), f"{name} may read '{channel}', but is not shown it"


def _shown(rows_of: RowsOf, place: int, history_NRC: Tensor) -> Tensor:
    batch = {"message_history": history_NRC, "round": torch.zeros(2, dtype=torch.int64)}
    return rows_of(place, batch)["message_history"]
