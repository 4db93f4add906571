"""Work behind the commands: results, evaluation, films, export, migration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import Any

from ludus.cli.able import (
    that_evaluates,
    that_measures_others,
    that_plays,
    that_plays_with_people,
)
from ludus.cli.exporting import place_in_run
from ludus.cli.film import is_film, write_gif
from ludus.cli.listing import summary
from ludus.config import strict_yaml
from ludus.config.base import TrainerConfig, change, config_of, current, read_data, typed_file
from ludus.config.bases import has_base
from ludus.config.overrides import key_paths
from ludus.config.registry import find, is_program
from ludus.core.abilities import Narrates, find_ability
from ludus.core.errors import ConfigError
from ludus.core.plan import check_plan, render
from ludus.core.runtime import Result
from ludus.session.build import build_trainer
from ludus.session.prepared import PreparedRun, prepare
from ludus.session.rebuilt import RebuiltRun
from ludus.show.terminal import pass_on, say, tell, typed_text, warn
from ludus.store import directory
from ludus.store.bests import RUNNERS_UP, bests
from ludus.store.outputs import check_file, write_file
from ludus.store.strict_json import one_line


def result_json(result: Result) -> str:
    """Return a result as one line of JSON."""
    return one_line(
        {
            "run_dir": result.run_dir,
            "status": result.status,
            "reason": result.reason,
            "counters": dict(result.counters),
            "best": dict(result.best) if result.best else None,
            "best_score": result.best["score"] if result.best else None,
            **({"more_bests": _plain(result.more_bests)} if result.more_bests else {}),
            **({RUNNERS_UP: list(map(dict, result.runners_up))} if result.runners_up else {}),
            "exact": str(result.exact),
            "inexact_because": list(result.inexact_because),
        }
    )


def _plain(more: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    return {name: dict(best) for name, best in more.items()}


def print_result(result: Result, *, is_silent: bool) -> None:
    """Print how a run ended and what to do next; a display has already shown how to resume."""
    is_shown = result.status == "interrupted" and not is_silent
    reason = result.reason if not is_shown else None
    # A display has said that the run finished; what stopped it may be cut there.
    if is_silent or reason or result.status == "interrupted":
        say(f"{result.status}: {reason}" if reason else result.status)
    for best in bests({"best": result.best, "more_bests": result.more_bests}).values():
        say(f"best {best['metric']} {best['score']:.6g} in {result.run_dir}/{best['model']}")
    for one in result.runners_up:
        say(f"then {one['metric']} {one['score']:.6g} in {result.run_dir}/{one['model']}")
    if not result.exact:
        say("exact: no: " + "; ".join(result.inexact_because))
    elif result.exact == "proved":
        say("exact: proved")
    if result.status != "interrupted":
        say(f"next: ludus report {quote(str(result.run_dir))}")
    elif is_silent and not result.reason:
        say(f"to go on: {directory.way_to_resume(str(result.run_dir))}")


def plan_of(path: str, overrides: Sequence[str]) -> str:
    """Return what the file of a trainer, or of a program with a plan, would do, as a tree."""
    written = read_data(path)
    kind = written.get("kind") if isinstance(written, dict) else None
    if isinstance(kind, str) and is_program(kind) and hasattr(find("program", kind), "plan"):
        data = current(written, source=path)
        changed = change(data, overrides, source=path, tell=tell)
        program = find("program", kind)(typed_file(data, source=path, changed=changed))
        return str(program.plan())
    return render_plan(config_of(written, overrides, source=path, tell=tell))


def render_plan(config: TrainerConfig) -> str:
    """Return the plan of a config as a tree."""
    trainer = prepare(build_trainer(config))
    plan = trainer.plan()
    check_plan(plan, trainer.run.counters)
    return render(plan)


def play_run(
    path: str,
    out: Path | None,
    *,
    episode: int,
    fps: float,
    model: str = "best",
    script: str | None = None,
) -> Path | None:
    """Write a film of one episode with some weights of a run, and return its path.

    A run whose games are narrated has them printed, move by move; then there is no file.
    """
    if out is not None and out.suffix.lower() != ".gif":
        raise ConfigError(f"--out {out}: a film is written as GIF; end the name with .gif")
    run = PreparedRun.open(path, script=script, tell=tell)
    is_narrated = find_ability(run.trainer, Narrates) is not None
    if is_narrated and out is not None:
        raise ConfigError(
            f"--out {out}: games of this run are printed, not filmed; omit --out, or write"
            f" ludus play {quote(path)} > game.txt"
        )
    if not is_narrated:
        out = place_in_run(path, "play.gif") if out is None else out
        check_file(out, is_film, what="a film")
    that_plays(run.trainer)
    with run.prepared(model, that_plays) as chosen:
        if model == "best" and chosen.source.startswith("checkpoint "):
            tell(f"{path} has no best model; these are the weights of {chosen.source}")
        if isinstance(chosen.one, Narrates):
            for lines in chosen.one.narrate(chosen.weights, episode):
                say(lines)
            return None
        assert out is not None
        write_gif(out, chosen.one.film(chosen.weights, episode, fps), fps=fps)
    return out


def play_with_people(
    path: str,
    people: Sequence[str],
    *,
    episode: int,
    model: str = "best",
    script: str | None = None,
) -> None:
    """Play one episode in which a person speaks for some of the agents, and print it."""
    run = PreparedRun.open(path, script=script, check=that_plays_with_people, tell=tell)
    with run.prepared(model, that_plays_with_people) as chosen:
        for line in chosen.one.play_with(chosen.weights, episode, people, typed_text):
            say(line)


def evaluate_run(
    path: str,
    *,
    as_json: bool,
    model: str = "best",
    episodes: int | None = None,
    seed: int | None = None,
    data: Sequence[str] = (),
    script: str | None = None,
) -> None:
    """Evaluate a model of a run on data not used for training or selection, and print the metrics.

    `data` are changes `key=value` of the section `data`, if the model is to be measured on others.
    """
    if data:
        if episodes is not None or seed is not None:
            raise ConfigError("--data are no episodes: --episodes and --seed do not apply")
        with RebuiltRun.open(path, script=script, tell=tell) as rebuilt:
            measuring = that_measures_others(rebuilt.kept, path)
            named = rebuilt.weights(model)
            metrics = rebuilt.use(
                named, lambda weights, about: measuring.measure_others(weights, about, data)
            )
        _print_metrics(rebuilt, named.source, metrics, as_json=as_json)
        return
    run = PreparedRun.open(path, script=script, check=that_evaluates, tell=tell)
    with run.prepared(model, that_evaluates) as chosen:
        metrics = chosen.one.evaluate_weights(chosen.weights, episodes=episodes, seed=seed)
    _print_metrics(run, chosen.source, metrics, as_json=as_json)


def _print_metrics(
    run: PreparedRun | RebuiltRun, source: str, metrics: Mapping[str, float], *, as_json: bool
) -> None:
    storage, best = run.storage, run.saved.manifest.get("best")
    if as_json:
        about = {"run_dir": storage.place, "model": source, "metrics": dict(metrics), "best": best}
        pass_on(one_line(about | summary(storage)) + "\n")
        return
    say(f"{storage.place}: {source}")
    for name, value in metrics.items():
        say(f"  {name}  {value:.6g}")


def migrate_file(path: Path, *, write: bool) -> None:
    """Print or replace a config file, migrated to the current version and validated.

    The old file is kept next to the new one, because its comments are the user's.
    """
    if write and str(path) == "-":
        raise ConfigError("--write needs a file, not standard input")
    data = read_data(path)
    config = typed_file(current(data, source=str(path)), source=str(path))
    newer = current(data, source=str(path))
    # A file with a base is either current or refused: it holds only what differs, and stays so.
    if newer == data or has_base(data):
        warn(f"{path} is at version {config.version} already")
        text = strict_yaml.dump(data) if str(path) == "-" else path.read_text(encoding="utf-8")
    else:
        text = config.to_yaml()
        if write:
            old = path.read_bytes()
            kept = path.with_name(f"{path.name}.v{data['version']}")
            write_file(kept, old, lambda there: there.read_bytes() == old, what="the old config")
            write_file(path, text.encode(), lambda there: there.read_bytes() == old, what="it")
            added, gone = (
                {*key_paths(newer)} - {*key_paths(data)},
                {*key_paths(data)} - {*key_paths(newer)},
            )
            words = [f"added {', '.join(sorted(added))}"] if added else []
            words += [f"removed {', '.join(sorted(gone))}"] if gone else []
            warn(
                f"{path} is at version {config.version} now ({'; '.join(words) or 'values changed'});"
                f" the old file, with its comments, is {kept}"
            )
        elif str(path) != "-" and "#" in path.read_text(encoding="utf-8"):
            warn(
                f"the comments of {path} are left out; --write keeps the old file next to the new one"
            )
    if not write:
        pass_on(text)
