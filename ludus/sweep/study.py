"""Study: what Optuna knows of a sweep, in memory, rebuilt from the record whenever the sweep goes on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ludus.core.errors import LudusError, StorageError
from ludus.judge.directions import Direction
from ludus.seeds import derive
from ludus.store.outputs import check_file, head_of
from ludus.sweep.libraries import load_optuna, quiet
from ludus.sweep.sampler import Sampler
from ludus.sweep.trials import SweepTrial

_SQLITE = b"SQLite format 3\x00"


class Study:
    """Asks Optuna for points and tells it how trials ended."""

    def __init__(self, sampler: Sampler, *, seed: int, mode: Direction) -> None:
        self._sampler, self._seed, self._mode = sampler, seed, mode
        self._optuna = load_optuna()
        with quiet():
            self._study = self._optuna.create_study(direction=f"{mode}imize")
        self._made: Any = None

    def ask(self, number: int) -> dict[str, Any]:
        """Return the point of the trial of this number, which depends on the seed and on what was told."""
        point = self._sampler.point(number)
        if point is not None:
            self._add(SweepTrial(number, point, number))
            return point
        with quiet():
            self._study.sampler = self._seeded(number)
            return self._sampler.space.draw(self._study.ask())

    def _seeded(self, number: int) -> Any:
        """Return a new sampler, seeded for the trial of this number."""
        made = self._sampler.make(derive(self._seed, "sweep/ask", number) % 2**32, number)
        # The keys that all trials share are counted from the first trial on; they are no state, but a
        # sampler that begins to count at each ask takes twice as long.
        if hasattr(made, "_search_space") and hasattr(self._made, "_search_space"):
            made._search_space = self._made._search_space
        self._made = made
        return made

    def tell(self, trial: SweepTrial) -> None:
        """Tell how a trial ended."""
        with quiet():
            if trial.state == "complete" and trial.score is not None:
                self._study.tell(trial.number, trial.score.mean)
                return
            if trial.state == "pruned":
                there = self._optuna.trial.Trial(
                    self._study, self._study.trials[trial.number]._trial_id
                )
                for step, value in pruned_at(trial).items():
                    there.report(value, step)
            states = self._optuna.trial.TrialState
            state = states.PRUNED if trial.state == "pruned" else states.FAIL
            self._study.tell(trial.number, state=state)

    def rebuild(self, trials: Mapping[int, SweepTrial], order: Sequence[tuple[str, int]]) -> None:
        """Learn what an earlier process asked and told."""
        if not self._sampler.replays:
            for trial in trials.values():
                self._add(trial)
            return
        for what, number in order:
            if what == "tell":
                self.tell(trials[number])
            elif self.ask(number) != trials[number].point:
                raise LudusError(
                    f"the sampler {self._sampler.config.kind} no longer chooses the point that it chose for"
                    f" trial {number}; go on with the versions of Optuna and cmaes that the sweep began with"
                )

    def _add(self, trial: SweepTrial) -> None:
        """Add a trial as it stands: still running unless it was told."""
        with quiet():
            self._study.add_trial(self.frozen(trial, pruned_at(trial)))

    def frozen(self, trial: SweepTrial, values: Mapping[int, float], **more: Any) -> Any:
        """Return a trial as Optuna holds it, with values by step."""
        states = self._optuna.trial.TrialState
        state = {"complete": states.COMPLETE, "pruned": states.PRUNED, "failed": states.FAIL}.get(
            trial.state if trial.is_told else "open", states.RUNNING
        )
        space = self._sampler.space
        value = trial.score.mean if state == states.COMPLETE and trial.score is not None else None
        if state == states.PRUNED and values:
            value = values[max(values)]
        return self._optuna.trial.create_trial(
            state=state,
            value=value,
            params=space.labels(trial.point),
            distributions={
                path: space.variables[path].distribution(self._optuna.distributions)
                for path in trial.point
            },
            intermediate_values=dict(values) if trial.is_told else {},
            **more,
        )

    def export(self, path: Path, name: str, trials: Sequence[SweepTrial]) -> None:
        """Write the trials to a SQLite file of Optuna, for its dashboard; nothing is ever read from it."""
        check_study(path)
        temporary = path.with_name(f"{path.name}.tmp-export")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            # SQLite's own errors do not say why a file cannot be made.
            temporary.write_bytes(b"")
        except OSError as error:
            raise StorageError(f"{path} cannot be written: {error.strerror}") from error
        with quiet():
            storage = self._optuna.storages.RDBStorage(f"sqlite:///{temporary.resolve()}")
            study = self._optuna.create_study(
                storage=storage, study_name=name, direction=f"{self._mode}imize"
            )
            for trial in trials:
                values = dict(enumerate(trial.values.values()))
                about: dict[str, Any] = {"runs": [run.run for run in trial.runs.values()]}
                about |= {"reason": trial.reason} if trial.reason else {}
                study.add_trial(self.frozen(trial, values, user_attrs=about))
            storage.remove_session()
            storage.engine.dispose()
        temporary.replace(path)


def check_study(path: Path) -> None:
    """Raise StorageError unless the trials may be written to this file."""
    if "?" in str(path.absolute()):
        raise StorageError(
            f"{path.absolute()} has a ?, which ends a path of SQLite; choose another"
        )
    check_file(path, lambda there: head_of(there, 16) == _SQLITE, what="a study of Optuna")


def pruned_at(trial: SweepTrial) -> dict[int, float]:
    """Return what a pruned trial had reached, by its last step: by it, samplers rank pruned trials."""
    if trial.state != "pruned" or not trial.runs:
        return {}
    last = list(trial.runs.values())[-1]
    if last.status != "pruned":
        values = list(trial.values.values())
        return {len(values) - 1: sum(values) / len(values)} if values else {}
    return {} if last.value is None else {last.num_points: last.value}
