"""How updates and games of all roles are executed: called, by an engine, or on CUDA as captured graphs.

    fit        a batch is drawn and an update made: one graph, or by the engine of the config
    collect    new games are played and remembered: one graph where updates are, else called

A graph is captured once a role has done it three times, and replayed from then on, without the host; what it
computes is what is computed without it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from ludus.core import Run
from ludus.games.dqn.config import FusedDqnConfig
from ludus.games.dqn.players import Mixed, ValuePlayer
from ludus.games.dqn.role import RoleLearner
from ludus.games.player import Player, begin
from ludus.nn.engines.choice import EngineKey, EngineName, choose_engine
from ludus.nn.engines.gate import why_not_repeatable
from ludus.nn.engines.graph import Graphed
from ludus.nn.engines.module_guard import Guarded, ModuleGuard
from ludus.session.begun import has_begun

# From how many updates on compiling pays, by `engine: auto`.
_WORTH_COMPILING = 150_000


class Gather(Protocol):
    """Plays new games of a role and remembers them, drawing from this generator alone."""

    def __call__(
        self, role: str, games: int, draws: torch.Generator, rate: float | Tensor, /
    ) -> None:
        """Explore in this share of the moves; nothing waits for the device."""


class Execution:
    """Executes what the learners of a run do in a round."""

    def __init__(
        self,
        run: Run,
        learners: Mapping[str, RoleLearner],
        gather: Gather,
        *,
        players: Callable[[str], Iterable[Player]],
        why_not: Callable[[str], str | None],
    ) -> None:
        """`players` are those that a role meets, itself among them; both are asked at every collecting.

        `why_not` says why games of a role may not be captured, beside what these players are.
        """
        self._run, self._learners, self._gather = run, learners, gather
        self._players, self._why_not = players, why_not
        self._collecting: dict[str, _Captured] = {}
        self._seen: dict[str, list[object]] = {}

    def choose_engine(self, config: FusedDqnConfig, device: torch.device) -> EngineName:
        """Let one engine execute the updates of all roles: what one role's cannot, none does."""
        # Every update can be taped or called, so that is what a resume finds possible again.
        sure: EngineKey = "tape" if device.type == "cpu" else "eager"
        self.notes = list[str]()
        wanted: EngineKey
        for wanted in (config.engine, sure):
            chosen = set[EngineName]()
            for learner in self._learners.values():
                found = choose_engine(
                    wanted,
                    learner.subject(),
                    is_long=config.max_rounds >= _WORTH_COMPILING,
                    has_begun=has_begun(self._run.files),
                    tell=lambda note: self._run.tell(note, event="engine"),
                )
                learner.execute(found.by, is_graph=found.used == "graph")
                chosen.add(found.engine)
                notes = [f"{learner.role}: {note}" for note in found.notes]
                self.notes += [note for note in notes if note not in self.notes]
            if len(chosen) == 1:
                break
        for role in self._learners:
            self.notes += self._look(role)
        return chosen.pop()

    def captured(self, role: str) -> set[str]:
        """Return which stages of a role are CUDA graphs, as things are now."""
        is_captured = {"fit": self._learners[role].is_captured, "collect": role in self._collecting}
        return {stage for stage, is_so in is_captured.items() if is_so}

    def collect(self, role: str, seed: int) -> None:
        """Let a role play new games with draws of this seed, and remember them."""
        for note in self._look(role):
            self._run.tell(note, event="engine")
        learner, captured = self._learners[role], self._collecting.get(role)
        if captured is not None:
            captured(seed)
        else:
            draws = torch.Generator(learner.device).manual_seed(seed)
            self._gather(role, learner.config.rollout_size, draws, learner.exploration_rate)

    def _look(self, role: str) -> list[str]:
        """Decide anew how a role collects if others play, or otherwise, than before; return what to tell."""
        learner = self._learners[role]
        if not learner.is_captured:
            self._collecting.pop(role, None)
            self._seen.pop(role, None)
            return []
        players = list(_each(self._players(role)))
        why = self._why_not(role) or _why_not_repeated(players)
        seen: list[object] = [*players, *_nets_of(players), why]
        if self._seen.get(role) == seen:
            return []
        self._seen[role] = seen
        self._collecting.pop(role, None)
        if why is not None:
            return [f"the games of the {role} are collected without a CUDA graph: {why}"]
        self._collecting[role] = _Captured(self._run, learner, self._gather, players)
        return []


class _Captured:
    """Collects the games of one role by a CUDA graph, made anew where a network is changed."""

    def __init__(
        self, run: Run, learner: RoleLearner, gather: Gather, players: list[Player]
    ) -> None:
        nets = _nets_of(players)
        self._run, self._learner, self._gather, self._players = run, learner, gather, players
        self._draws = torch.Generator(learner.device)
        self._rate = torch.zeros((), device=learner.device)
        self._what = f"collecting the games of the {learner.role}"
        self._collect: Callable[[], Any] = Guarded(
            self._work,
            self._graphed,
            lambda: ModuleGuard(nets, ()),
            lambda: why_not_repeatable(learner, nets),
            lambda why: self._tell(f"{self._what} is captured no more: {why}; it is called"),
        )

    def __call__(self, seed: int) -> None:
        # A replay draws from where its generator stands, and reads the rate from its place.
        self._draws.manual_seed(seed)
        self._rate.fill_(self._learner.exploration_rate)
        self._collect()
        # What players remember of games they were never asked about here is the capture's, not theirs.
        for player in self._players:
            begin(player)

    def _work(self) -> None:
        learner = self._learner
        with contextlib.ExitStack() as stack:
            for player in self._players:
                if isinstance(player, RoleLearner):
                    stack.enter_context(player.acting.steady())
            self._gather(learner.role, learner.config.rollout_size, self._draws, self._rate)

    def _graphed(self, method: Callable[[], None]) -> Graphed:
        generators, device = [self._draws], self._learner.device
        return Graphed(method, device, tell=self._tell, generators=generators, what=self._what)

    def _tell(self, note: str) -> None:
        # A generator that was part of a capture that failed can draw no more.
        self._draws = torch.Generator(self._learner.device).manual_seed(self._draws.initial_seed())
        self._run.tell(note, event="engine")


def _each(players: Iterable[Player]) -> Iterator[Player]:
    """Yield all players, those who share a role one by one."""
    for player in players:
        if isinstance(player, Mixed):
            yield from _each(player.members)
        else:
            yield player


def _nets_of(players: Iterable[Player]) -> list[nn.Module]:
    return [one.net for one in players if isinstance(one, RoleLearner | ValuePlayer)]


def _why_not_repeated(players: Iterable[Player]) -> str | None:
    """Return why games of these players cannot be captured, in a few words; None where they can."""
    for player in players:
        if (reason := why_not_repeatable(player, _nets_of([player]))) is not None:
            return reason
    return None
