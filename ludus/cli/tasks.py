"""Work behind the commands: results, evaluation, films, export, migration."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import Any, TypeVar

from ludus.cli.able import that_evaluates, that_exports, that_plays
from ludus.cli.film import is_film, write_gif
from ludus.cli.listing import summary
from ludus.cli.weights import as_first, best_of, last_of, model_at
from ludus.config import base, strict_yaml
from ludus.config.base import TrainerConfig, change, config_of, current, read_data, typed_file
from ludus.config.overrides import key_paths
from ludus.config.registry import find, is_program
from ludus.core.abilities import KeepsWeights, Narrates, Recalls, find_ability
from ludus.core.errors import ConfigError, RunError
from ludus.core.plan import check_plan, render
from ludus.core.runtime import Result
from ludus.core.trainer import Trainer
from ludus.session.build import build_trainer, rebuild_trainer
from ludus.session.device import Compute
from ludus.session.logger import Logger
from ludus.session.resumption import refuse_edited
from ludus.show.terminal import pass_on, say, tell, warn
from ludus.store import checkpoint, directory
from ludus.store.bests import RUNNERS_UP, bests
from ludus.store.outputs import check_file, write_file
from ludus.store.places import is_url
from ludus.store.storage import Storage
from ludus.store.strict_json import one_line

A = TypeVar("A", bound=KeepsWeights)


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
    is_told = result.status == "interrupted" and not is_silent
    say(f"{result.status}: {result.reason}" if result.reason and not is_told else result.status)
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


def prepared(config: TrainerConfig) -> Trainer:
    """Return the trainer of a config, prepared but not started."""
    trainer = build_trainer(config)
    trainer.set_logger(Logger(Logger.Config(backends=[])))
    trainer.services.seed(trainer.config)
    trainer.prepare(max_steps=None)
    return trainer


def plan_of(path: str, overrides: Sequence[str]) -> str:
    """Return what the file of a trainer, or of a program with a plan, would do, as a tree."""
    written = base.read_data(path)
    kind = written.get("kind") if isinstance(written, dict) else None
    if isinstance(kind, str) and is_program(kind) and hasattr(find("program", kind), "plan"):
        data = current(written, source=path)
        changed = change(data, overrides, source=path, tell=tell)
        program = find("program", kind)(typed_file(data, source=path, changed=changed))
        return str(program.plan())
    return render_plan(config_of(written, overrides, source=path, tell=tell))


def render_plan(config: TrainerConfig) -> str:
    """Return the plan of a config as a tree."""
    trainer = prepared(config)
    plan = trainer.plan()
    check_plan(plan, trainer.run.counters)
    return render(plan)


@contextlib.contextmanager
def _with_weights(
    path: str, model: str, able: Callable[[Trainer], A]
) -> Iterator[tuple[A, Mapping[str, Any], Storage, dict[str, Any] | None, str]]:
    """Yield the prepared trainer of a run, the chosen weights, the storage, its best model and their source.

    `able` refuses a trainer that cannot do what is asked, before anything is built.

    `model` is best, best-<score>, which for the first score is the best itself, last, or the directory
    of a model; a run without a best model gives its last.
    """
    trainer, storage = rebuild_trainer(path, [], is_for_weights=True)
    able(trainer)
    saved = checkpoint.told_last(storage)
    if saved is None:
        raise RunError(f"{path} has no checkpoint yet; let it run until it has saved one")
    refuse_edited(storage, saved, trainer.config)
    with Compute.of(trainer.config):
        ready = prepared(trainer.config)
        try:
            model = as_first(ready, model)
            about: Mapping[str, Any] = {}
            if (found := best_of(storage, saved, model)) is not None:
                source, (weights, about) = found
            elif model in ("best", "last"):
                last = last_of(storage)
                source, weights = f"checkpoint {last.number}", able(ready).weights_of(last.state)
            else:
                source, (weights, about) = model, model_at(storage, model)
            if about and (recalls := find_ability(ready, Recalls)) is not None:
                recalls.recall(about)
            yield able(ready), weights, storage, saved.manifest.get("best"), source
        finally:
            ready.close()


def _place_in_run(path: str, name: str) -> Path:
    """Return the path of an output file in a run directory."""
    storage = directory.found_run(path)
    if is_url(storage.place):
        raise ConfigError(f"{storage.place} is not a directory of this machine; give --out")
    return Path(storage.place) / name


def play_run(
    path: str, out: Path | None, *, episode: int, fps: float, model: str = "best"
) -> Path | None:
    """Write a film of one episode with some weights of a run, and return its path.

    A run whose games are narrated has them printed, move by move; then there is no file.
    """
    if out is not None and out.suffix.lower() != ".gif":
        raise ConfigError(f"--out {out}: a film is written as GIF; end the name with .gif")
    is_told = find_ability(trainer_of(path), Narrates) is not None
    if is_told and out is not None:
        raise ConfigError(
            f"--out {out}: games of this run are printed, not filmed; omit --out, or write"
            f" ludus play {quote(path)} > game.txt"
        )
    if not is_told:
        out = _place_in_run(path, "play.gif") if out is None else out
        check_file(out, is_film, what="a film")
    with _with_weights(path, model, that_plays) as (trainer, weights, *_):
        if isinstance(trainer, Narrates):
            for lines in trainer.narrate(weights, episode):
                say(lines)
            return None
        assert out is not None
        write_gif(out, trainer.film(weights, episode, fps), fps=fps)
    return out


def trainer_of(path: str) -> Trainer:
    """Return the trainer of a run, not prepared."""
    return rebuild_trainer(path, [], is_for_weights=True)[0]


def export_run(path: str, out: Path | None, *, model: str = "best") -> Path:
    """Write a policy of a run for use without torch, and return its path."""
    out = _place_in_run(path, "policy") if out is None else out
    with _with_weights(path, model, that_exports) as (trainer, weights, *_):
        trainer.export(weights, out)
    return out


def evaluate_run(
    path: str,
    *,
    as_json: bool,
    model: str = "best",
    episodes: int | None = None,
    seed: int | None = None,
) -> None:
    """Evaluate a model of a run on data not used for training or selection, and print the metrics."""
    with _with_weights(path, model, that_evaluates) as (ready, kept, storage, best, source):
        metrics = dict(ready.evaluate_weights(kept, episodes=episodes, seed=seed))
    if as_json:
        about = {"run_dir": storage.place, "model": source, "metrics": metrics, "best": best}
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
    if (newer := current(data, source=str(path))) == data:
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
    if not write:
        pass_on(text)
