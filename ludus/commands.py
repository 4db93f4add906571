"""What the commands do that is more than one call: results, lists of runs, evaluation, migration."""

from __future__ import annotations

import contextlib
import datetime
import io
import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ludus import strict_yaml
from ludus.build import build_trainer, rebuild_trainer
from ludus.config import TrainerConfig, from_data, read_data
from ludus.core.errors import ConfigError, LudusError, RunError
from ludus.core.plan import render
from ludus.core.surroundings import Result
from ludus.run import checkpoint, directory
from ludus.run.device import Compute
from ludus.run.lock import is_locked
from ludus.run.logger import Logger
from ludus.run.models import read_model
from ludus.run.seeds import derive, seed_everything
from ludus.run.storage import Storage


def result_json(result: Result) -> str:
    """Return a result as one line of JSON."""
    return json.dumps(
        {
            "run_dir": result.run_dir,
            "status": result.status,
            "reason": result.reason,
            "counters": dict(result.counters),
            "best": dict(result.best) if result.best else None,
            "best_score": result.best["score"] if result.best else None,
            "exact": result.exact,
            "inexact_because": list(result.inexact_because),
        }
    )


def print_result(result: Result, *, is_silent: bool) -> None:
    """Print how a run ended and what to do next; a display has told the way to resume already."""
    print(f"{result.status}: {result.reason}" if result.reason else result.status)
    if result.best is not None:
        best = result.best
        print(f"best {best['metric']} {best['score']:.6g} in {result.run_dir}/{best['model']}")
    if not result.exact:
        print("not exact: " + "; ".join(result.inexact_because))
    if result.status != "interrupted":
        print(f"next: ludus report {result.run_dir}")
    elif is_silent:
        print(f"to go on: ludus resume {result.run_dir}")


def prepared(config: TrainerConfig) -> Any:
    """Return the trainer of a config, built but not begun."""
    trainer = build_trainer(config)
    trainer.set_logger(Logger(Logger.Config(backends=[])))
    seed_everything(derive(config.seed, "global"))
    trainer.prepare(max_steps=None)
    return trainer


def render_plan(config: TrainerConfig) -> str:
    """Return the tree of what a config would do."""
    return render(prepared(config).plan())


@contextlib.contextmanager
def _with_best_weights(path: str) -> Iterator[tuple[Any, Any, Storage, dict[str, Any] | None, str]]:
    """Give the trainer of a run, prepared, the weights of its best model, and where they are from."""
    trainer, storage = rebuild_trainer(path, [])
    saved = checkpoint.read_newest(storage, damaged=_warn)
    if saved is None:
        raise RunError(f"{path} has no checkpoint yet; let it run until it has saved one")
    best = saved.manifest.get("best")
    source = best["model"] if best is not None else f"checkpoint {saved.number}"
    with Compute(trainer.config.settings):
        ready = prepared(trainer.config)
        try:
            kept = read_model(storage, best["model"])[0] if best else ready.weights_of(saved.state)
            yield ready, kept, storage, best, source
        finally:
            ready.close()


def play_run(path: str, out: Path | None, *, episode: int, fps: float) -> Path:
    """Write a film of one episode with the best weights of a run, and return where it is."""
    if out is not None and out.suffix.lower() != ".gif":
        raise ConfigError(f"--out {out}: a film is written as GIF; end the name with .gif")
    with _with_best_weights(path) as (trainer, weights, storage, _, _):
        frames = trainer.film(weights, episode, fps)
        out = storage.root / "play.gif" if out is None else out
        write_gif(out, frames, fps=fps)
    return out


def export_run(path: str, out: Path | None) -> Path:
    """Write the best policy of a run for use without torch, and return where it is."""
    with _with_best_weights(path) as (trainer, weights, storage, _, _):
        out = storage.root / "policy" if out is None else out
        trainer.export(weights, out)
    return out


def write_gif(path: Path, frames: Sequence[Any], *, fps: float) -> None:
    """Write pictures, uint8 of (height, width, 3), as an animated GIF that begins again at its end."""
    from PIL import Image

    # One palette for all keeps colours from flickering and the file small.
    pictures = [Image.fromarray(frame) for frame in frames]
    palette = pictures[len(pictures) // 2].quantize(64)
    quantised = [picture.quantize(palette=palette) for picture in pictures]
    milliseconds = max(20, round(1000 / fps / 10) * 10)
    buffer = io.BytesIO()
    quantised[0].save(
        buffer, "GIF", save_all=True, append_images=quantised[1:], duration=milliseconds, loop=0
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    Storage(path.parent).write(path.name, buffer.getvalue())


def evaluate_run(path: str, *, as_json: bool) -> None:
    """Evaluate the best model of a run, or its last weights where no best was kept."""
    with _with_best_weights(path) as (ready, kept, storage, best, source):
        metrics = dict(ready.evaluate_weights(kept))
    if as_json:
        # JSON has no number for what is not finite.
        told = {name: x if math.isfinite(x) else str(x) for name, x in metrics.items()}
        about = {"run_dir": str(storage.root), "model": source, "metrics": told, "best": best}
        print(json.dumps(about | _summary(storage)))
        return
    print(f"{storage.root}: {source}")
    for name, value in metrics.items():
        print(f"  {name}  {value:.6g}")


def _warn(text: str) -> None:
    print(f"ludus: {text}", file=sys.stderr)


def _summary(storage: Storage) -> dict[str, Any]:
    """Return how one run stands: status, counters, best score, exactness."""
    # A run that was killed, or goes on, is as its newest checkpoint says.
    ending = directory.last_ending(storage) or checkpoint.peek(storage)
    best = ending.get("best")
    return {
        "run_dir": str(storage.root),
        "status": "running" if is_locked(storage.root) else ending.get("event", "killed"),
        "reason": ending.get("reason"),
        "counters": ending.get("counters", {}),
        "best_score": best["score"] if best else None,
        "best_metric": best["metric"] if best else None,
        "exact": ending.get("exact"),
        "inexact_because": ending.get("inexact_because", []),
    }


def list_runs(root: Path, *, as_json: bool) -> None:
    """Print one row for every run below the root, the newest first."""
    paths = sorted(root.iterdir()) if root.is_dir() else []
    rows = [_row(path) for path in paths if (path / "run.json").is_file()]
    rows.sort(key=lambda row: str(row["created"]), reverse=True)
    if as_json:
        print(json.dumps({"root": str(root), "runs": rows}))
    elif not rows:
        print(f"no runs in {root}; `ludus train CONFIG` makes one")
    else:
        _print_runs(rows)


def _row(path: Path) -> dict[str, Any]:
    """Return what one line of the list says; of a damaged run, that it is damaged, and why."""
    row: dict[str, Any] = {"name": path.name, "kind": "?", "created": "", "run_dir": str(path)}
    try:
        storage = directory.found_run(path)
        note = directory.read_note(storage)
        created = datetime.datetime.fromisoformat(note["created"])
        row |= {"kind": str(note["kind"]), "created": created.isoformat()}
        return row | _summary(storage)
    except (LudusError, OSError, ValueError, TypeError, KeyError) as error:
        reason = str(error) if isinstance(error, LudusError) else f"run.json is damaged: {error!r}"
        row |= {"status": "damaged", "reason": reason, "counters": {}}
        return row | {"best_score": None, "best_metric": None, "exact": None}


def _print_runs(rows: list[dict[str, Any]]) -> None:
    table = Table("run", "trainer", "status", "progress", "best", "exact", "started", box=None)
    for row in rows:
        best = "" if row["best_score"] is None else f"{row['best_metric']} {row['best_score']:.5g}"
        started = row["created"]
        if started:
            moment = datetime.datetime.fromisoformat(started).astimezone()
            started = moment.strftime("%Y-%m-%d %H:%M")
        exact = {True: "yes", False: "no", None: ""}[row["exact"]]
        cells = [row["name"], row["kind"], row["status"], _progress(row["counters"])]
        table.add_row(*[escape(str(cell)) for cell in [*cells, best, exact, started]])
    # A pipe has no width: there a row is a line, however long.
    Console(width=None if sys.stdout.isatty() else 1000).print(table)
    for row in rows:
        if row["status"] == "damaged":
            print(f"{row['name']}: {row['reason']}")


def _progress(counters: Mapping[str, int]) -> str:
    shown = ("epoch", "iteration", "opt_steps", "env_steps")
    return ", ".join(f"{name} {counters[name]:,}" for name in shown if name in counters)


def migrate_file(path: Path, *, write: bool) -> None:
    """Print or replace a config file, brought to the current version and checked."""
    if write and str(path) == "-":
        raise ConfigError("--write needs a file, not standard input")
    data = read_data(path)
    config = from_data(data, source=str(path))
    if data["version"] == config.version:
        print(f"{path} is at version {config.version} already", file=sys.stderr)
        text = strict_yaml.dump(data) if str(path) == "-" else path.read_text(encoding="utf-8")
    else:
        text = config.to_yaml()
        if write:
            Storage(path.parent).write(path.name, text.encode())
    if not write:
        print(text, end="")
