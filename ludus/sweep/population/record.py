"""Record of a population: a journal of its members, how each generation ended, and who copied whom.

journals/sweep.jsonl

    member/0003          the seed and the values that a member begins with, before anything is launched
    end/0002/0003        how member 3 ended generation 2, and what it logged in it
    select/0002          who copies whom after it, with which values; durable before the first copy
    begin/0003           all copies are made: generation 3 may be launched
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from ludus.core.errors import StorageError
from ludus.judge.confidence import MeanInterval
from ludus.store.journal import Journal
from ludus.store.storage import Storage
from ludus.sweep.population.selection import Move
from ludus.sweep.record import NAME
from ludus.sweep.trials import RUNS, Leg, RunOutcome, SweepTrial

EndStatus = Literal["paused", "finished", "stopped", "failed"]


@dataclass(frozen=True)
class Beginning:
    """Seed and values with which a member begins."""

    seed: int
    point: Mapping[str, Any]


@dataclass(frozen=True)
class GenerationEnd:
    """How a member ended a generation."""

    status: EndStatus
    """Whether it waits at a checkpoint, or has ended."""
    reason: str | None
    value: float | None
    """The value by which it is compared."""
    counters: Mapping[str, int]
    num_points: int
    """How often its run had logged the metric, the generations before included."""
    points: Sequence[Sequence[float]]
    """Some of the values that it logged in this generation, each with the counter of the population."""


class PopulationRecord:
    """Writes and reads the journal; one process at a time, which holds the lock of the sweep."""

    def __init__(self, storage: Storage) -> None:
        self._journal = Journal(storage, NAME)
        self.members: dict[int, Beginning] = {}
        self.ends: dict[int, dict[int, GenerationEnd]] = {}
        """By generation and member."""
        self.moves: dict[int, list[Move]] = {}
        """By the generation after which members were compared."""
        self.generation = 0
        """The last one that was begun."""
        try:
            self._read()
        except (KeyError, TypeError, ValueError) as error:
            raise StorageError(
                f"{storage.place}/journals/{NAME}.jsonl is damaged ({error!r}); restore it from a backup, or"
                " begin the population under another name"
            ) from None

    def _read(self) -> None:
        keys = self._journal.keys()
        for key in keys:
            what, *numbers = key.split("/")
            own = self._journal.get(key) or {}
            match what, [int(number) for number in numbers]:
                case "member", [member]:
                    self.members[member] = Beginning(**own)
                case "end", [generation, member]:
                    self.ends.setdefault(generation, {})[member] = GenerationEnd(**own)
                case "select", [generation]:
                    self.moves[generation] = [Move(**move) for move in own["moves"]]
                case "begin", [generation]:
                    self.generation = generation
                case _:
                    raise ValueError(key)

    def add(self, member: int, beginning: Beginning) -> None:
        """Write what a member begins with."""
        self._journal.put(f"member/{member:04d}", asdict(beginning))
        self.members[member] = beginning

    def end(self, generation: int, member: int, end: GenerationEnd) -> None:
        """Write how a member ended a generation."""
        self._journal.put(f"end/{generation:04d}/{member:04d}", asdict(end))
        self.ends.setdefault(generation, {})[member] = end

    def select(self, generation: int, moves: Sequence[Move]) -> None:
        """Write who copies whom after a generation."""
        self._journal.put(f"select/{generation:04d}", {"moves": [one.as_json() for one in moves]})
        self.moves[generation] = list(moves)

    def begin(self, generation: int) -> None:
        """Write that every copy is made, so that this generation may be launched."""
        self._journal.put(f"begin/{generation:04d}", {})
        self.generation = generation

    def state(self, member: int, generation: int) -> Beginning:
        """Return the seed and the values of a member in a generation."""
        for before in range(generation - 1, -1, -1):
            for move in self.moves.get(before, []):
                if move.member == member:
                    return Beginning(move.seed, move.point)
        return self.members[member]

    def ancestors(self, member: int) -> list[int]:
        """Return whose run a member's weights come from, a member for each generation up to the last."""
        found = [member]
        for generation in range(self.generation - 1, -1, -1):
            sources = {move.member: move.source for move in self.moves.get(generation, [])}
            found.append(sources.get(found[-1], found[-1]))
        return found[::-1]

    def schedule(self, member: int, counter: str, every: int) -> list[Leg]:
        """Return the values that a member's weights were trained with, a leg for each generation."""
        ancestors = self._trained(member)
        ends = [self.ends[generation][one] for generation, one in enumerate(ancestors[:-1])]
        # Where values of the metric are rare, a generation ends later than it might.
        untils = [
            (counter, max(number * every, *(int(step) for step, _ in end.points)))
            for number, end in enumerate(ends, start=1)
        ]
        starts = [0, *(end.counters.get(counter, 0) for end in ends)]
        return [
            Leg(dict(self.state(one, generation).point), start, until)
            for generation, (one, start, until) in enumerate(
                zip(ancestors, starts, [*untils, None], strict=True)
            )
        ]

    def last_point(self, member: int) -> Mapping[str, Any]:
        """Return the values that the last steps of a member's weights were trained with."""
        ancestors = self._trained(member)
        return self.state(ancestors[-1], len(ancestors) - 1).point

    def _trained(self, member: int) -> list[int]:
        """Return the ancestors without the last generations, if no step was trained in them."""
        found = self.ancestors(member)
        while len(found) > 1:
            end, before = self.ends.get(len(found) - 1, {}), self.ends[len(found) - 2][found[-2]]
            if found[-1] not in end or _counted(end[found[-1]]) != _counted(before):
                break
            found.pop()
        return found


def _counted(end: GenerationEnd) -> dict[str, int]:
    """Return the counters that have moved since the run began."""
    return {name: count for name, count in end.counters.items() if count}


def member_row(record: PopulationRecord, member: int) -> SweepTrial:
    """Return a member as a row of the table: its values now, and what it is worth if it has ended."""
    generation = record.generation
    state = record.state(member, generation)
    trial = SweepTrial(member, dict(record.last_point(member)), member)
    end = record.ends.get(generation, {}).get(member)
    if end is None:
        return trial
    outcome = RunOutcome(
        state.seed, end.status, end.reason, end.value, end.counters, end.num_points,
        f"{RUNS}/{member:04d}",
    )  # fmt: skip
    trial.runs = {state.seed: outcome}
    if end.status == "failed":
        trial.state, trial.reason = "failed", end.reason
    elif end.status != "paused" and end.value is None:
        trial.state, trial.reason = "failed", "its metric was never a finite number"
    elif end.status != "paused" and end.value is not None:
        trial.state, trial.score = "complete", MeanInterval(end.value, None, None, 1)
    return trial
