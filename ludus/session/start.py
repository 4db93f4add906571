"""Start a new run from the weights of another, as the config's section `start` says.

They are read once, before the first checkpoint, which holds them: a resume never reads the other run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ludus.config.registry import find, kinds
from ludus.config.start import BEST, LAST, AgentStartConfig, StartConfig, start_class
from ludus.core.abilities import find_ability
from ludus.core.errors import ConfigError, LudusError, RunError
from ludus.core.starting import SavedTraining, Starts, Taken, TakesOver
from ludus.core.states import StateError
from ludus.core.trainer import Trainer
from ludus.session.kept import last_of, model_at, model_in, weights_in
from ludus.session.loading import place_of
from ludus.session.plugins import load_again
from ludus.show.terminal import tell
from ludus.store import checkpoint, directory
from ludus.store.note import read_note
from ludus.store.places import open_storage, parted
from ludus.store.storage import Storage

KEY = "start"
"""Field of run.json: what was taken from another run, and its digest."""
_PARTS = ("normaliser", "replay")
_SHOWN = 4


@dataclass(frozen=True)
class Source:
    """The weights of another run, and the state of its training where that is wanted."""

    place: str
    run_id: str | None
    kind: str
    model: str
    """The directory of the model, or the checkpoint."""
    weights: Mapping[str, Any]
    saved: SavedTraining | None

    @property
    def words(self) -> str:
        """Return the model and the run."""
        return f"{self.model} of {self.place} ({self.kind})"


def start(trainer: Trainer, root: str) -> dict[str, Any] | None:
    """Load what a new run takes over, and return the record of it for run.json.

    None for a run without a section `start`, and for one that has a checkpoint. Raises ConfigError if
    nothing fits, or if the other run has changed since this one, which has no checkpoint yet, began.
    """
    section = getattr(trainer.config, "start", None)
    if not isinstance(section, StartConfig):
        return None
    target = _target(trainer)
    target.check(section)
    files = trainer.run.files
    if isinstance(files, Storage) and _has_checkpoint(files):
        return None
    try:
        source = read_source(section, root)
        record = _take(section, source, target)
    except StateError as error:
        raise ConfigError(
            f"'start': the state of {section.run} does not fit this run: {error}"
        ) from None
    except LudusError as error:
        raise ConfigError(f"'start': {str(error).removeprefix(_MARK)}") from None
    if isinstance(files, Storage) and files.exists("run.json"):
        _check_same(read_note(files).get(KEY), record, files.place)
    return record


_MARK = "'start': "


def _target(trainer: Trainer) -> TakesOver:
    ability = find_ability(trainer, Starts)
    if ability is None:
        raise ConfigError(
            f"'start' is given, but a {type(trainer).__name__} cannot start from another run; set it to null,"
            " or give its class `starting` and `saved_training` (ludus.core.starting.Starts)"
        )
    return ability.starting()


def _has_checkpoint(files: Storage) -> bool:
    if not files.exists("run.json"):
        return False
    return checkpoint.last_manifest(files) is not None or directory.had_checkpoints(files)


def read_source(section: StartConfig, root: str) -> Source:
    """Return the weights that a section names; raise LudusError if they are missing or damaged."""
    place = place_of(section.run, root)
    storage = _run_at(place)
    note = read_note(storage)
    kind = str(note.get("kind"))
    run_id = note.get("run_id")
    wanted = [key for key in _PARTS if getattr(section, key, False)]
    saved = None
    if section.model == LAST or wanted:
        if checkpoint.last_manifest(storage) is None:
            raise RunError(f"{place} has no checkpoint yet; let it run until it has saved one")
        lacking = load_again(storage, note)
        found = last_of(storage, tell=tell)
        try:
            saved = _training_in(found.state, kind, place)
        except ConfigError as error:
            raise ConfigError(f"{error} {' '.join(f'{one}.' for one in lacking)}".strip()) from None
        if section.model == LAST:
            model = f"checkpoint {found.number}"
            return Source(place, run_id, kind, model, saved.weights(), saved)
    model, weights = _kept_model(storage, section.model)
    return Source(place, run_id, kind, model, weights, saved)


def _run_at(place: str) -> Storage:
    if (there := open_storage(place)).exists("model.json") and not there.exists("run.json"):
        above, name = parted(place)
        run = parted(above)[0]
        raise RunError(
            f"{place} is the directory of a model, not of a run; give the run and its model:"
            f" run: {run}, model: {name} (--from {run}:{name})"
        )
    return directory.found_run(place)


def _kept_model(storage: Storage, model: str) -> tuple[str, Mapping[str, Any]]:
    if Path(model, "model.json").is_file():
        return model, model_in(Path(model))[0]
    manifest = checkpoint.last_manifest(storage)
    if manifest is None and model == BEST:
        raise RunError(f"{storage.place} has no checkpoint yet; let it run until it has saved one")
    if manifest is None:
        return model, model_at(storage, model)[0]
    named, (weights, _) = weights_in(
        storage, manifest, model, weights_of=lambda state: {}, tell=tell, is_last_best=False
    )
    return named, weights


def _training_in(state: Mapping[str, Any], kind: str, place: str) -> SavedTraining:
    """Return what a checkpoint of a run of this kind offers."""
    trainer = find("trainer", kind)
    offered = getattr(trainer, "saved_training", None)
    if offered is None:
        raise RunError(
            f"{place} is a run of kind '{kind}', whose checkpoints no other run can start from; take a kept"
            " model, such as model: best"
        )
    try:
        found: SavedTraining = offered(state)
    except (KeyError, TypeError, AttributeError) as error:
        raise RunError(
            f"the newest checkpoint of {place} has no {error} where a run of kind '{kind}' has its networks;"
            " take a kept model, such as model: best"
        ) from None
    return found


def _take(section: StartConfig, source: Source, target: TakesOver) -> dict[str, Any]:
    """Load what fits, and return the record of it."""
    moments = _moments_in(source)
    weights = {name: one for name, one in source.weights.items() if name not in moments}
    taken = target.fitting(weights)
    if not taken.weights:
        raise RunError(
            f"nothing of {source.words} fits this run: none of its {len(weights)} weights"
            f" ({_listed(weights)}) has the name and shape of one here ({_listed(taken.only_here)}"
            f"{_shapes(taken, before='; ' if taken.only_here else '')})"
        )
    target.take(taken)
    digested: dict[str, Any] = {"weights": dict(taken.weights)}
    saved = source.saved
    if section.optimizer and saved is not None:
        optimizers = {name: state["optimizer"] for name, state in saved.networks.items()}
        target.take_optimizer(optimizers)
        digested["optimizer"] = optimizers
    for key in _PARTS:
        if getattr(section, key, False) and saved is not None:
            target.take_part(key, saved.parts.get(key))
            digested[key] = saved.parts[key]
    return {
        "run": source.place,
        "run_id": source.run_id,
        "kind": source.kind,
        "model": source.model,
        "sha256": checkpoint.digest_of(digested),
        "taken": len(taken.weights),
        "with": [key for key in digested if key != "weights"],
        "other_shape": {name: [*map(list, both)] for name, both in taken.other_shape.items()},
        "only_there": list(taken.only_there),
        "only_here": list(taken.only_here),
        "reason": _told(source, taken, [key for key in digested if key != "weights"])
        + _hint(section, source),
    }


def _moments_in(source: Source) -> set[str]:
    """Return the names of an agent's moments of observations: they come with the normaliser."""
    section = (
        start_class(find("trainer", source.kind).Config)
        if source.kind in kinds("trainer")
        else None
    )
    if section is None or not issubclass(section, AgentStartConfig):
        return set()
    return {name for name in source.weights if name.startswith("normalise.")}


def _hint(section: StartConfig, source: Source) -> str:
    """Return that the networks are used to normalised observations, where the moments are not taken."""
    parts = {} if source.saved is None else source.saved.parts
    was_normalised = parts.get("normaliser") is not None or _moments_in(source)
    if getattr(section, "normaliser", True) or not was_normalised:
        return ""
    return "; its observations were normalised: 'start.normaliser' takes the moments too"


def _told(source: Source, taken: Taken, more: Sequence[str]) -> str:
    """Return the sentence on what was taken and what was not."""
    count = len(taken.weights)
    whole = count + len(taken.other_shape) + len(taken.only_there)
    besides = f", and its {' and '.join(more)}" if more else ""
    parts = [f"{source.words}: {count} of its {whole} weights{besides}"]
    if taken.other_shape:
        parts.append(f"of another shape: {_shapes(taken)}")
    if taken.only_there:
        parts.append(f"not here: {_listed(taken.only_there)}")
    if taken.only_here:
        parts.append(f"new here: {_listed(taken.only_here)}")
    return "; ".join(parts)


def _shapes(taken: Taken, *, before: str = "") -> str:
    both = taken.other_shape.items()
    named = [f"{name} {there} there, {here} here" for name, (there, here) in both]
    return before + _listed(named) if named else ""


def _listed(names: Iterator[str] | Sequence[str] | Mapping[str, Any]) -> str:
    """Return the first of these names, and how many more there are."""
    found = list(names)
    more = [f"{len(found) - _SHOWN} more"] if len(found) > _SHOWN else []
    return ", ".join([*found[:_SHOWN], *more])


def _check_same(noted: object, record: Mapping[str, Any], place: str) -> None:
    """Raise RunError if the other run has changed since this one, which has no checkpoint yet, began."""
    if isinstance(noted, Mapping) and noted.get("sha256") != record["sha256"]:
        raise RunError(
            f"what {place} began from, {noted.get('model')} of {noted.get('run')}, has changed since, and it"
            " has no checkpoint yet; put the earlier weights back, or start a new run under another name"
        )
