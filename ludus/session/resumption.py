"""Resume checks: whether a run may continue with this checkpoint, config, machine and models."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from ludus.config import families, strict_yaml
from ludus.config.base import TrainerConfig, from_data
from ludus.config.changeable import changeable_keys
from ludus.config.overrides import MISSING
from ludus.core.errors import CheckpointError, RunError, StorageError
from ludus.session.changes import ChangedKeys, Changes, changed_keys, edited_keys, value_in
from ludus.session.fingerprint import DATA, differences
from ludus.store import checkpoint, directory, models, note, segments
from ludus.store.bests import FIRST, best_number, bests, is_copy_name
from ludus.store.checkpoint import Saved
from ludus.store.storage import Storage
from ludus.store.strict_json import one_line

Tell = Callable[..., None]
GIVEN = "given "
"""Prefix of facts about the class of an object that a script gave."""


def newest(storage: Storage, *, tell: Tell) -> Saved | None:
    """Return the newest valid checkpoint; raise CheckpointError if all were lost."""
    saved = checkpoint.read_newest(
        storage, damaged=lambda text: tell("checkpoint_damaged", reason=text)
    )
    if saved is None and directory.had_checkpoints(storage):
        raise CheckpointError(
            f"the checkpoints of {storage.place} are gone; restore them from a backup, or start a new"
            " run under another name"
        )
    return saved


def changes(storage: Storage, saved: Saved | None, new: TrainerConfig) -> Changes:
    """Return what this config changes; raise RunError if a resumed run may not change that.

    It is compared with the config in the checkpoint or, before the first one, with the config in run.json,
    because anyone can edit config.yaml.
    """
    old, found, others = _changed(storage, saved, new)
    if others:
        may = ", ".join(["the length of a run", *changeable_keys(new)])
        raise RunError(
            f"{storage.place} was started with {others}; only {may} and its settings may change on resume:"
            " put the old values back (into config.yaml, if they were changed there), or start a new run"
        )
    lengths = found.lengths
    values = {key: (value_in(old, key), value_in(new, key)) for key in [*lengths, *found.declared]}
    if saved is not None:
        _refuse_passed(storage, saved, {path: directory.value_of(new, path) for path in lengths})
        _refuse_ended(storage, saved, values, lengths)
    return Changes(values, lengths)


def without_stop(state: Mapping[str, Any], changed: Collection[str]) -> dict[str, Any]:
    """Return the state of a run that may go on, since the key that stopped it has another value."""
    run = state.get("run")
    if not isinstance(run, Mapping) or run.get("stop_key") not in changed:
        return dict(state)
    return {**state, "run": {**run, "stop_reason": None, "stop_key": None}}


def _refuse_ended(
    storage: Storage, saved: Saved, values: Mapping[str, object], lengths: Sequence[str]
) -> None:
    """Raise RunError if the run has ended, so that nothing would come of the changes."""
    if not values:
        return
    run = saved.state["run"]
    if reason := run.get("stop_reason"):
        key = run.get("stop_key")
        if key in values and run["is_finished"]:
            return
        what = "a greater length" if len(lengths) == len(values) else "another value"
        remedy = f"change {key} as well, or " if key and run["is_finished"] else ""
        raise RunError(
            f"{storage.place} stopped before its end, because {reason}; {what}"
            f" ({', '.join(values)}) does not make it go on: {remedy}start a new run from its weights"
            f" (--from {storage.place}:last)"
        )
    if not lengths and saved.state["run"].get("is_finished"):
        raise RunError(
            f"{storage.place} has ended, so another {', '.join(values)} would change nothing; raise its"
            f" length too, or start a new run from it (--from {storage.place}:last)"
        )


def lengths_to_change(storage: Storage, new: TrainerConfig) -> list[str]:
    """Return the lengths that this config would change of a run; raise RunError if it changes anything else.

    It reads no state, so that a run can be refused before any work starts.
    """
    saved = checkpoint.last_manifest(storage)
    old, found, others = _changed(storage, saved, new)
    # One run may change its rate on the way (`ludus resume`); the runs of a group are to be alike.
    others = others or _with_values(old, new, found.declared)
    if others:
        raise RunError(
            f"{storage.place} was started with {others}; put the old values back, or choose another name"
        )
    return found.lengths


def refuse_edited(storage: Storage, saved: Saved, found: TrainerConfig) -> None:
    """Raise RunError unless this config, read from config.yaml, is the one the run was trained with.

    Otherwise the weights would not fit it, or would be measured on another task than their own.
    """
    _, _, others = _changed(storage, saved, found)
    if others:
        raise RunError(
            f"{storage.place} was trained with {others}, so its weights are not those of its config.yaml;"
            " put the old values back there, or train a run of its own with the new ones"
        )


def _changed(
    storage: Storage, saved: Saved | None, new: TrainerConfig
) -> tuple[TrainerConfig, ChangedKeys, str]:
    """Return the config so far, the keys that this one changes, and those it may not, with their values."""
    old = _trained_with(storage, saved, new)
    found = changed_keys(old, new)
    refused = [*found.others, *edited_keys(storage, new, found.declared)]
    return old, found, _with_values(old, new, refused)


def _with_values(old: TrainerConfig, new: TrainerConfig, keys: Sequence[str]) -> str:
    return ", ".join(f"{key} {_shown(old, key)} (now {_shown(new, key)})" for key in keys)


def _shown(config: TrainerConfig, path: str) -> str:
    value = directory.value_of(config, path)
    return "absent" if value is MISSING else one_line(value)


def _trained_with(storage: Storage, saved: Saved | None, new: TrainerConfig) -> TrainerConfig:
    about = note.read_note(storage)
    data: Any = saved.manifest["config"] if saved is not None else about.get("config")
    if data is None:
        # A run of an older version, which stored its config nowhere else.
        text = storage.read("config.yaml", limit=strict_yaml.MAX_BYTES)
        data = strict_yaml.parse(text, source="config.yaml")
    elif not isinstance(data, Mapping):
        raise RunError(f"{storage.place}/run.json does not say what the run was begun with")
    if isinstance(data, Mapping):
        # Name and settings are not compared.
        data = {**data, **new.model_dump(include={"name", "settings"})}
    return from_data(data, source=f"the config that {storage.place} was trained with")


def _refuse_passed(storage: Storage, saved: Saved, lengths: Mapping[str, Any]) -> None:
    """Raise RunError if a run is already past its new length and would do nothing."""
    counters = saved.state.get("run", {}).get("counters", {})
    for path, length in lengths.items():
        counter = families.counter_of(path.split(".")[-1])
        if counter is not None and type(length) is int and length <= counters.get(counter, 0):
            raise RunError(
                f"'{path}' is to be {length}, but {storage.place} has {counters[counter]} {counter}"
                " already; give it more, or leave it as it is"
            )


def changed_facts(
    storage: Storage, saved: Saved, now: Mapping[str, str], *, is_approximate: bool
) -> list[str]:
    """Return the facts that changed since the run was saved; raise CheckpointError unless that is allowed."""
    before: Mapping[str, str] = saved.manifest["fingerprint"]
    if saved.manifest["format"] == 1:
        # Format 1 recorded fewer facts; only those can be compared.
        now = {name: value for name, value in now.items() if name in before}
    changed = differences(before, now)
    given = [fact for fact in changed if fact.startswith(GIVEN)]
    if given and not is_approximate:
        raise CheckpointError(
            f"the script gives other objects than the one that saved {storage.place} ({'; '.join(given)}),"
            " and its results would be those of two scripts; give the same ones, start a new run, or go on"
            " all the same with fit(resume='approximate')"
        )
    if (data := [fact for fact in changed if fact.startswith(DATA)]) and not is_approximate:
        raise CheckpointError(
            f"the data are others than those that {storage.place} was trained on ({'; '.join(data)}); give"
            " the same ones, made with the same seed, start a new run, or go on all the same with"
            " --approximate (fit(resume='approximate'))"
        )
    if changed and not is_approximate:
        raise CheckpointError(
            f"this machine, its packages or the run's own code differ from those of {storage.place}"
            f" ({'; '.join(changed)}), so it cannot go on exactly; restore them{_plugins(storage)}, or"
            " go on all the same with --approximate (fit(resume='approximate'))"
        )
    return changed


def reasons_against(
    saved: Saved, changed: Sequence[str], changes: Changes, unsaved: Sequence[str]
) -> list[str]:
    """Return why a run that continues from here is not exact, whatever the trainer reports."""
    number = saved.number
    found = [f"at boundary {number} it was resumed with {fact}" for fact in changed]
    if lengths := changes.lengths:
        found.append(f"its length ({', '.join(lengths)}) was changed at boundary {number}")
    found += [
        f"its {key} was changed at boundary {number}"
        for key in changes.values
        if key not in lengths
    ]
    found += [
        f"'{name}' was resumed at boundary {number} without its state, which that checkpoint does not hold"
        for name in unsaved
    ]
    if saved.lost_models:
        found.append(f"its best model was damaged and forgotten at boundary {number}")
    return found


def _plugins(storage: Storage) -> str:
    words = note.missing_plugins(note.read_note(storage))
    return f" (this run had {words})" if words else ""


def put_back(storage: Storage, saved: Saved, *, keep_last: int, tell: Tell) -> None:
    """Restore the directory to the state of the checkpoint: repair what it names, remove what came later."""
    checkpoint.set_newer_aside(storage, saved.number)
    segments.mend(
        storage,
        saved.manifest["segments"],
        tell=lambda text: tell("segment_restored", reason=text),
    )
    _restore_models(storage, saved, tell=tell)
    # A kill just after a save may have left files that this save made obsolete.
    checkpoint.collect(storage, keep_last=keep_last)


def _restore_models(storage: Storage, saved: Saved, *, tell: Tell) -> None:
    """Remove best models newer than the checkpoint, and publish those it names."""
    for name in storage.names("models"):
        found_at = best_number(name)
        if found_at is not None and found_at > saved.number:
            storage.remove(f"models/{name}")
    for name in saved.lost_models:
        reason = f"{name} has changed since it was saved, or was lost; it is forgotten"
        tell("best_model_lost", reason=reason)
    lost = {name.rpartition("-")[0] for name in saved.lost_models}
    kept = {copy: best["model"] for copy, best in bests(saved.manifest).items()}
    for copy in _copies(storage):
        if copy not in kept and copy not in lost:
            storage.remove(copy)
    for copy, best in kept.items():
        if not checkpoint.is_model(storage, best, saved.manifest["models"][best]):
            models.publish(storage, copy, best)
            tell("best_model_restored", reason=f"{best} was damaged and was restored from {copy}")
        models.publish(storage, best, copy)


def _copies(storage: Storage) -> list[str]:
    """Return the existing copies of best models; a directory the user made does not count."""
    copies = [FIRST] if storage.exists(FIRST) else []
    for name in storage.names("models"):
        with contextlib.suppress(CheckpointError, StorageError):
            if is_copy_name(name):
                model = str(models.read_model(storage, f"models/{name}")[1].get("model"))
                is_ours = model.rpartition("-")[0] == f"models/{name}"
                copies += [f"models/{name}"] if is_ours else []
    return copies
