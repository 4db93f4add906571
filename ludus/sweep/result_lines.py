"""Lines that `ludus sweep` prints at its end."""

from __future__ import annotations

from collections.abc import Sequence
from shlex import quote

from ludus.config.seed_list import read_seeds
from ludus.core.errors import ConfigError, LudusError
from ludus.judge.confidence import MeanInterval
from ludus.show.terminal import pass_on, say
from ludus.store.strict_json import one_line
from ludus.sweep.trials import SweepResult
from ludus.sweep.winner import WinnerResult

_NEW_SEEDS = 5


def seeds_of(text: str | None, number: int | None, *, is_best: bool) -> int | Sequence[int]:
    """Return the seeds given with --seeds, or how many new ones --num-seeds asks for."""
    if (text, number) == (None, None):
        return _NEW_SEEDS
    if not is_best:
        option = "--seeds" if text is not None else "--num-seeds"
        raise ConfigError(f"{option} is for --best; the seeds of a sweep are 'seeds' of its file")
    if text is not None and number is not None:
        raise ConfigError("--seeds names the seeds, --num-seeds so many new ones; leave one out")
    return read_seeds(text) if number is None else number


def tell_result(result: SweepResult, way_to_go_on: str, *, as_json: bool) -> None:
    """Print how a sweep ended, and what to do next; raise LudusError if no trial came to its end."""
    if as_json:
        pass_on(one_line(result.as_json()) + "\n")
    if result.best is None:
        if result.status == "finished":
            raise LudusError(result.reason or "no trial came to its end, so there is no best one")
        return
    if as_json:
        return
    score = result.best.score
    counts = {
        state: sum(t.state == state for t in result.trials)
        for state in ("complete", "pruned", "failed")
    }
    summary = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
    say(f"{result.status}: {len(result.trials)} {result.unit}s ({summary})")
    if score is not None:
        say(f"best {result.metric} {interval(score)} in {result.unit} {result.best.number}")
    for path, value in result.best.point.items():
        say(f"  {path}: {value}")
    if len(result.schedule) > 1:
        say(
            f"its {len(result.schedule)} settings, one after the other: {result.sweep_dir}/schedule.json"
        )
    say(f"next: ludus train {quote(result.sweep_dir + '/best.yaml')}")
    if result.status == "finished":
        say(f"or with new seeds: {way_to_go_on} --best --num-seeds {_NEW_SEEDS}")


def tell_best(result: WinnerResult, *, as_json: bool) -> None:
    """Print the values of the best config with new seeds."""
    if as_json:
        pass_on(one_line(result.as_json()) + "\n")
        return
    if result.score is None:
        raise LudusError("no run of the best config came to its end with a value")
    say(
        f"{result.unit} {result.trial} with {result.score.count} new seeds: {interval(result.score)}"
    )
    if not result.is_over:
        say("interrupted; the same command goes on")


def interval(score: MeanInterval) -> str:
    """Return a mean with its bounds, in words."""
    if score.low is None:
        return f"{score.mean:.6g} (one seed)"
    return f"{score.mean:.6g} (from {score.low:.6g} to {score.high:.6g}, {score.count} seeds)"
