"""Judge: rank evaluations by named scores, keep the best model of each, and stop the run early."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from torch import Tensor

from ludus.core import states
from ludus.core.errors import ConfigError, LudusError
from ludus.core.run import Run
from ludus.core.services import Keep, Log
from ludus.judge.score_state import Best, ScoreState, read_score_state
from ludus.judge.scores import Score

Weights = Callable[[Score], Mapping[str, Tensor]]
"""Returns the weights to save for this score; called only if they are among the best."""


TARGET = "evaluation.target"
"""The key of the target in every config."""


def stop_run(run: Run, reason: str) -> None:
    """End the whole run."""
    run.stop(reason)


def leave_loop(name: str) -> Callable[[Run, str], None]:
    """Return a function that ends one loop, for a judge; it does nothing if the loop has closed."""

    def leave(run: Run, reason: str) -> None:
        # An asynchronous evaluation may be judged in a stage after the loop.
        if any(frame.name == name for frame in run.cursor):
            run.leave(name, reason)

    return leave


class Judge:
    """Judges every evaluation, in order, by one or several scores, each with its own best model.

    The run ends when any score reaches its target, or when every score with a patience has used it
    up: one role that has stopped improving does not stop another that still learns. A value that is
    not finite is never better and uses patience.

    The best model of the first score is models/best, of every other models/best-<name of the score>.
    A trainer of two roles:

        def prepare(self, *, max_steps):
            self.judge = Judge(
                Score("host", "eval/host_return", patience=5),
                Score("guest", "eval/guest_win_rate", patience=5, target=0.9),
            )

        def parts(self):
            return {"host": self.host, "guest": self.guest, "judge": self.judge}

        def evaluate(self, run):                # a stage of the plan
            metrics = {"eval/host_return": ..., "eval/guest_win_rate": ...}
            self.judge.update(run, metrics, lambda score: self.learners[score.name].weights())
            return metrics

    It is found among the parts: the trainer's `best`, `more_bests`, `runners_up` and `forget_models` ask it.
    """

    def __init__(self, *scores: Score, end: Callable[[Run, str], None] = stop_run) -> None:
        """`end` asks a run to end: `stop_run`, or `leave_loop("epoch")`."""
        names = [score.name for score in scores]
        for name in names:
            if names.count(name) > 1:
                raise ConfigError(f"two scores are named '{name}'; give each a name of its own")
        self.scores = scores
        self.score_states = {name: ScoreState() for name in names}
        self._end = end
        kept = [score.name for score in scores if score.keeps_best]
        self._prefixes = {
            name: "models/best-" if index == 0 else f"models/best-{name}-"
            for index, name in enumerate(kept)
        }

    @property
    def best(self) -> Best | None:
        """The best model by the first score that keeps models; None before there is one."""
        return next((self.score_states[name].best for name in self._prefixes), None)

    @property
    def first(self) -> str | None:
        """The name of the first score that keeps models, whose best is models/best."""
        return next(iter(self._prefixes), None)

    @property
    def more_bests(self) -> dict[str, Best]:
        """The best model by each further score, by the score's name."""
        names = list(self._prefixes)[1:]
        found = ((name, self.score_states[name].best) for name in names)
        return {name: best for name, best in found if best is not None}

    @property
    def runners_up(self) -> list[Best]:
        """The models kept besides the best ones, score by score, the best first."""
        return [one for name in self._prefixes for one in self.score_states[name].kept[1:]]

    def update(
        self,
        run: Run,
        metrics: Mapping[str, float],
        weights: Weights,
        *,
        counters: Mapping[str, int] | None = None,
        keep: Keep | None = None,
        scores: Collection[str] | None = None,
        without: Collection[str] = (),
    ) -> None:
        """Judge the metrics of one evaluation; raise LudusError if a score's metric is not among them.

        `counters` are those at which the weights were taken (default: now). `keep` saves a new best model
        (default: `run.keep_model`). `scores` names the scores this evaluation covers (default: all). Scores
        in `without` have no model now, and their patience is ignored.
        """
        judged = [
            (score, _value(score, metrics))
            for score in self.scores
            if (scores is None or score.name in scores) and score.name not in without
        ]
        counters = run.counters if counters is None else counters
        for score, value in judged:
            self._keep_best(run, score, value, weights, counters, keep)
        for score, value in judged:
            if score.is_reached(value):
                reason = f"{score.metric} reached {value:g}, the target being {score.target:g}"
                is_stopped = run.stop_reason is not None
                self._end(run, reason)
                if run.stop_reason is not None and not is_stopped:
                    run.stop_key = TARGET
            self._count(score, value)
        if judged:
            self._end_without_patience(run, without)

    def scores_in(self, metrics: Collection[str]) -> list[str]:
        """Return the names of the scores whose metric is among these."""
        return [score.name for score in self.scores if score.metric in metrics]

    def _keep_best(
        self,
        run: Run,
        score: Score,
        value: float,
        weights: Weights,
        counters: Mapping[str, int],
        keep: Keep | None,
    ) -> None:
        if not score.keeps_best:
            return
        best: Best = {
            "metric": score.metric,
            "mode": score.mode,
            "score": value,
            "model": f"{self._prefixes[score.name]}{run.boundaries:010d}",
            "counters": {name: count for name, count in counters.items() if count},
        }
        if self.score_states[score.name].enter(best, keep=score.keep):
            keep = run.keep_model if keep is None else keep
            keep(best["model"], weights(score), best)

    def _count(self, score: Score, value: float) -> None:
        state = self.score_states[score.name]
        if score.is_progress(value, state.peak):
            state.peak, state.num_bad = value, 0
        else:
            state.num_bad += 1

    def _end_without_patience(self, run: Run, without: Collection[str]) -> None:
        """End the run if every score with a patience, except those in `without`, has used it up."""
        reasons = []
        for score in self.scores:
            if score.patience is not None and score.name not in without:
                num_bad = self.score_states[score.name].num_bad
                if num_bad < score.patience:
                    return
                reasons.append(f"{score.metric} has not improved for {num_bad} evaluations")
        if reasons:
            self._end(run, " and ".join(reasons))

    def forget_models(self, names: Collection[str] | None) -> None:
        """Forget the best models with these names, whose weights are missing; None: all. Patience stays."""
        for state in self.score_states.values():
            state.forget(names)

    def reset(self) -> None:
        """Reset to the state before the first evaluation: for a loop that is entered again."""
        self.score_states = {score.name: ScoreState() for score in self.scores}

    def state_dict(self) -> dict[str, Any]:
        """Return the state of each score by its name; with a single score, its state alone."""
        found = {score.name: self.score_states[score.name].state(score) for score in self.scores}
        return next(iter(found.values())) if len(found) == 1 else found

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        names = list(self.score_states)
        if len(names) == 1:
            state = {names[0]: state}
        else:
            states.check_keys(state, *names)
        read = {}
        for score in self.scores:
            with states.within(score.name) if len(names) > 1 else contextlib.nullcontext():
                own, prefix = states.mapping(state, score.name), self._prefixes.get(score.name)
                read[score.name] = read_score_state(own, score, prefix)
        self.score_states = read


def judged_metrics(parts: Iterable[object]) -> list[str]:
    """Return the metrics of the scores of all judges among these parts, each once."""
    judges = [part for part in parts if isinstance(part, Judge)]
    return list(dict.fromkeys(score.metric for judge in judges for score in judge.scores))


def _value(score: Score, metrics: Mapping[str, float]) -> float:
    """Return the value of a score as a float that can be saved; it may be a tensor of one element."""
    metric = score.metric
    if metric not in metrics:
        raise LudusError(
            f"the score '{score.name}' is judged by {metric}, but the evaluation gave"
            f" {', '.join(metrics) or 'nothing'}; correct the metric, or say which scores an evaluation is"
            " of: update(..., scores=[...])"
        )
    try:
        return float(metrics[metric])
    except (TypeError, ValueError, RuntimeError):
        raise LudusError(
            f"the evaluation gave {metric} as a {type(metrics[metric]).__name__}; a score is one number"
        ) from None


class JudgeLog:
    """Observer that passes the metrics logged at each boundary to a judge."""

    def __init__(self, judge: Judge, log: Log, weights: Weights, *, keep: Keep | None) -> None:
        self._judge, self._log, self._weights, self._keep = judge, log, weights, keep

    def __call__(self, run: Run) -> None:
        """Judge the metrics written at this boundary."""
        if self._log.written_at == run.boundaries:
            written, judge = self._log.written, self._judge
            scores = judge.scores_in(written)
            judge.update(run, written, self._weights, keep=self._keep, scores=scores)
