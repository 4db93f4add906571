"""The search of a population: generation after generation, all members run side by side, and are compared.

population until every member has come to its end
  launch         every member that has not ended this generation
  work           receive logged values, pauses and endings
  select         the worst copy the best; written down before the first copy
  copy           checkpoints, with changed values; then the next generation begins
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ludus.config.base import TrainerConfig
from ludus.core.errors import ConfigError, LudusError, nearest
from ludus.store import forks
from ludus.store.local import LocalStorage
from ludus.sweep.base import Base
from ludus.sweep.curve import Point, logged_names
from ludus.sweep.display import SweepDisplay
from ludus.sweep.engine import RunEnd, SweepEngine, Task
from ludus.sweep.population.config import PopulationConfig
from ludus.sweep.population.member import MemberRun
from ludus.sweep.population.record import Beginning, GenerationEnd, PopulationRecord, member_row
from ludus.sweep.population.selection import (
    Contender,
    Move,
    exploit,
    explore,
    first_point,
)
from ludus.sweep.search_loop import SearchLoop, check_fatal
from ludus.sweep.trials import RUNS, WHOLE, SweepTrial

EXPLOITED = "exploited"
"""Event: a member took over the checkpoint of another."""


class PopulationSearch(SearchLoop):
    """One process's part of a population; it takes up what earlier ones have recorded."""

    def __init__(
        self, config: PopulationConfig, base: Base, storage: LocalStorage, record: PopulationRecord,
        engine: SweepEngine, display: SweepDisplay,
    ) -> None:  # fmt: skip
        super().__init__(engine, storage.place)
        self._config, self._base, self._storage = config, base, storage
        self._record, self._display = record, display
        self._running: dict[int, MemberRun] = {}
        self.trials: dict[int, SweepTrial] = {}
        seeds = config.seeds
        for member in range(config.population.size):
            if member not in record.members:
                point = first_point(base.space, seed=config.seed, member=member)
                record.add(member, Beginning(seeds[member % len(seeds)], point))
            self._refresh(member)

    @property
    def num_running(self) -> int:
        return len(self._running)

    def _is_unfinished(self) -> bool:
        return self._waiting() != [] or self._next_generation()

    # One generation.

    @property
    def _ends(self) -> dict[int, GenerationEnd]:
        return self._record.ends.get(self._record.generation, {})

    def _waiting(self) -> list[int]:
        """Return the members that have neither ended this generation nor run."""
        return [one for one in self.trials if one not in self._ends and one not in self._running]

    def _launch(self) -> None:
        for member in self._waiting():
            if len(self._running) >= self._engine.capacity:
                return
            self._begin(member)

    def _begin(self, member: int) -> None:
        generation = self._record.generation
        before = self._record.ends.get(generation - 1, {})
        source = next((m.source for m in self._moves(generation - 1) if m.member == member), member)
        if generation and before[source].status != "paused":
            # It has ended before, and nothing replaces it.
            self._record.end(generation, member, replace(before[member], points=[]))
            return
        run = self._run_of(member)
        start = before[source].num_points if generation else 0
        end = run.recorded_generation_end(start, self._until(generation))
        if end is not None:
            self._take(member, run, end)
            return
        try:
            config = self._config_of(member, self._record.state(member, generation))
        except ConfigError as error:
            problem = str(error).partition(": ")[2].partition("\n")[0]
            self._take(member, run, RunEnd("failed", f"its config is impossible: {problem}", {}))
            return
        self._running[member] = run
        self._display.began(self.trials[member], run.seed)
        self._engine.launch(
            Task(
                member, run.seed, config.model_dump(mode="json"), f"{self._storage.place}/{RUNS}",
                run.name, self._config.metric.name, False, sweep=self._storage.name,
                until=self._until(generation),
            )
        )  # fmt: skip

    def _until(self, generation: int) -> tuple[str, int] | None:
        """Return where a generation ends; None for the last one, which ends with the runs."""
        section = self._config.population
        step = (generation + 1) * section.exploit_every
        length = self._base.length_by(section.counter)
        return None if length is not None and step >= length else (section.counter, step)

    def _run_of(self, member: int) -> MemberRun:
        seed = self._record.state(member, self._record.generation).seed
        return MemberRun(self._storage, member, seed, self._config.metric.name)

    def _config_of(self, member: int, state: Beginning) -> TrainerConfig:
        return self._base.config_of(state.point, state.seed, f"{member:04d}")

    # What the engine tells.

    def logged(self, task: Task, point: Point) -> None:
        """Take a logged value: a member is compared at the end of the generation alone."""
        self._display.logged(self.trials[task.trial], task.seed, point)

    def ended(self, task: Task, end: RunEnd) -> None:
        """Record how a member ended its generation."""
        member, run = task.trial, self._running.pop(task.trial)
        settled = self._settled(task, end)
        if settled is not None:
            check_fatal(settled, f"member {member}")
            self._take(member, run, settled)

    def _take(self, member: int, run: MemberRun, end: RunEnd) -> None:
        generation, metric = self._record.generation, self._config.metric
        source = next((m.source for m in self._moves(generation - 1) if m.member == member), member)
        start = self._record.ends[generation - 1][source].num_points if generation else 0
        found = run.generation_end(
            end, start, self._config.population.counter, take=metric.take, mode=metric.mode
        )
        if end.status in WHOLE:
            self._check(run, found)
        self._record.end(generation, member, found)
        self._refresh(member)
        trial = self.trials[member]
        for outcome in trial.runs.values():
            self._display.ended(trial, outcome)
        if end.status == "failed":
            self._display.say(f"member {member}: failed in generation {generation}  ({end.reason})")

    def _check(self, run: MemberRun, end: GenerationEnd) -> None:
        """Raise ConfigError for a metric, or a counter, that no run has."""
        metric, counter = self._config.metric.name, self._config.population.counter
        again = "what it is, so begin it again under another name"
        if not end.num_points:
            raise ConfigError(
                f"'metric.name' is {metric}, which {run.storage.place} never logged."
                f"{nearest(metric, logged_names(run.storage))} A population's metric stays {again}"
            )
        if counter not in end.counters:
            raise ConfigError(
                f"'population.counter' is {counter}, which these runs do not count; they count"
                f" {', '.join(end.counters)}. A population's counter stays {again}"
            )

    # Between two generations.

    def _moves(self, generation: int) -> list[Move]:
        return self._record.moves.get(generation, [])

    def _next_generation(self) -> bool:
        """Let the worst copy the best, and begin the next generation; false if all have ended."""
        generation = self._record.generation
        ends = self._ends
        if all(end.status == "failed" for end in ends.values()):
            first = ends[min(ends)]
            raise LudusError(
                f"all {len(ends)} members failed, the first because of: {first.reason}; fix this, then"
                " begin the population under another name"
            )
        if not any(end.status == "paused" for end in ends.values()):
            self._end()
            return False
        if generation not in self._record.moves:
            self._record.select(generation, self._selected(ends))
        for move in self._moves(generation):
            self._copy(move, generation)
        self._tell(generation)
        self._record.begin(generation + 1)
        for member in self.trials:
            self._refresh(member)
        return True

    def _selected(self, ends: dict[int, GenerationEnd]) -> list[Move]:
        """Return which members are replaced, by which, and with which values."""
        config, generation = self._config, self._record.generation
        members = [
            Contender(number, None if end.status == "failed" else end.value, end.status == "paused")
            for number, end in sorted(ends.items())
        ]
        found = []
        seeded: dict[str, Any] = {"seed": config.seed, "generation": generation}
        sources = exploit(
            members, config.metric.mode, quantile=config.population.quantile, **seeded
        )
        for member, source in sources.items():
            state = self._record.state(source, generation)
            point, resampled = explore(
                self._base.space, config.explore, state.point, member=member, **seeded
            )
            found.append(Move(member, source, state.seed, point, resampled))
        return found

    def _copy(self, move: Move, generation: int) -> None:
        """Give a member the checkpoint of its source; an earlier process may have done it before."""
        source, target = (
            MemberRun(self._storage, one, 0, "").storage for one in (move.source, move.member)
        )
        # Its values are a change that is declared when it is resumed with its new config.
        about = {"copied_from": f"{move.source:04d}", "generation": generation}
        forks.take_over(source, target, EXPLOITED, **about)

    def _tell(self, generation: int) -> None:
        ends, mode = self._ends, self._config.metric.mode
        values = [end.value for end in ends.values() if end.value is not None]
        best = None if not values else max(values) if mode == "max" else min(values)
        copies = ", ".join(f"{m.member} from {m.source}" for m in self._moves(generation))
        step = max(end.counters.get(self._config.population.counter, 0) for end in ends.values())
        head = f"generation {generation} at {self._config.population.counter} {step}"
        shown = "" if best is None else f": best {best:.6g}"
        self._display.say(f"{head}{shown}  copies: {copies or 'none'}")

    def _end(self) -> None:
        for trial in self.trials.values():
            self._refresh(trial.number)
            self._display.ended(self.trials[trial.number], None)

    def _refresh(self, member: int) -> None:
        """Bring the row of a member up to date with the record."""
        self.trials[member] = member_row(self._record, member)
