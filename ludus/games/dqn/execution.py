"""Execution of updates and rollouts of all roles: eager, by an engine, or as captured CUDA graphs.

    fit        sample a batch and make an update: one graph, or by the engine of the config
    collect    play new games into the replay buffer: one graph where updates are, else called

A graph is captured after a role's third call and replayed from then on, without the host; its results equal
those without it.
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
from ludus.nn.engines.choice import EngineKey, EngineName
from ludus.nn.engines.gate import why_not_repeatable
from ludus.nn.engines.graph import Graphed
from ludus.nn.engines.module_guard import Guarded, ModuleGuard
from ludus.session.begun import engine_options


class Gather(Protocol):
    """Plays new games of a role into its replay buffer, drawing from this generator alone."""

    def __call__(
        self, role: str, games: int, draws: torch.Generator, rate: float | Tensor, /
    ) -> None:
        """Explore at this rate; does not wait for the device."""


class Execution:
    """Executes the stages of a round for all learners of a run."""

    def __init__(
        self,
        run: Run,
        learners: Mapping[str, RoleLearner],
        gather: Gather,
        *,
        players: Callable[[str], Iterable[Player]],
        why_not: Callable[[str], str | None],
    ) -> None:
        """`players` returns the players of a role's games, itself included; it is called at every rollout.

        `why_not` returns a reason against capturing a role's games, besides those of the players.
        """
        self._run, self._learners, self._gather = run, learners, gather
        self._players, self._why_not = players, why_not
        self._collecting: dict[str, _Captured] = {}
        self._seen: dict[str, list[object]] = {}

    def choose_engine(self, config: FusedDqnConfig, device: torch.device) -> EngineName:
        """Choose one engine for the updates of all roles: one that cannot execute some role's update is not
        used."""
        # Every update can be taped or called, so a resume can always use this again.
        sure: EngineKey = "tape" if device.type == "cpu" else "eager"
        notes: dict[str, list[str]] = {role: [] for role in self._learners}
        wanted: EngineKey
        for wanted in (config.engine, sure):
            chosen = set[EngineName]()
            for role, learner in self._learners.items():
                options = engine_options(self._run)
                chosen.add(learner.choose(wanted, config.max_rounds, **options))
                notes[role] += [f"{role}: {note}" for note in learner.engine_notes]
            if len(chosen) == 1:
                break
        for role, learner in self._learners.items():
            learner.engine_notes = [*dict.fromkeys(notes[role]), *self._look(role)]
        return chosen.pop()

    def captured(self, role: str) -> set[str]:
        """Return the stages of a role that are currently CUDA graphs."""
        is_captured = {"fit": self._learners[role].is_captured, "collect": role in self._collecting}
        return {stage for stage, is_so in is_captured.items() if is_so}

    def collect(self, role: str, seed: int) -> None:
        """Play new games of a role with draws of this seed, into its replay buffer."""
        for note in self._look(role):
            self._run.tell(note, event="engine")
        learner, captured = self._learners[role], self._collecting.get(role)
        if captured is not None:
            captured(seed)
        else:
            draws = torch.Generator(learner.device).manual_seed(seed)
            self._gather(role, learner.config.rollout_size, draws, learner.exploration_rate)

    def _look(self, role: str) -> list[str]:
        """Choose again how a role collects if its players or conditions have changed; return messages to
        log."""
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
    """Collects the games of one role by a CUDA graph, recaptured when a network changes."""

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
        # A replay continues its generator, and reads the exploration rate from its tensor.
        self._draws.manual_seed(seed)
        self._rate.fill_(self._learner.exploration_rate)
        self._collect()
        # A replay never calls the players, so any state they hold comes from the capture and is reset.
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
        # A generator registered with a failed capture cannot be used again.
        self._draws = torch.Generator(self._learner.device).manual_seed(self._draws.initial_seed())
        self._run.tell(note, event="engine")


def _each(players: Iterable[Player]) -> Iterator[Player]:
    """Yield all players, those that share a role one by one."""
    for player in players:
        if isinstance(player, Mixed):
            yield from _each(player.members)
        else:
            yield player


def _nets_of(players: Iterable[Player]) -> list[nn.Module]:
    return [one.net for one in players if isinstance(one, RoleLearner | ValuePlayer)]


def _why_not_repeated(players: Iterable[Player]) -> str | None:
    """Return a short reason why games of these players cannot be captured; None where they can."""
    for player in players:
        if (reason := why_not_repeatable(player, _nets_of([player]))) is not None:
            return reason
    return None
