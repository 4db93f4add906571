"""Directory of a sweep: what it holds, and what may not change while the sweep goes on.

sweeps/<name>/
  sweep.yaml  base.yaml      the config, and the base with its fixed keys
  journals/sweep.jsonl       what was asked, and how it ended
  runs/0007-seed3/           ordinary runs, one for each trial and seed
  best.yaml  trials.json     the best config, ready to be trained, and the table; written as trials end
  report.html                what `ludus report` wrote of it
  schedule.json              of a population: the values that the best member had, one after the other
  best/0007-seed12/          runs of the best config with other seeds
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ludus.config import strict_yaml
from ludus.config.base import current, key_paths
from ludus.config.overrides import MISSING, value_at
from ludus.core.errors import RunError
from ludus.store.local import LocalStorage
from ludus.sweep.base import Base
from ludus.sweep.config import CHANGEABLE, SearchConfig

BEST = "best"
JOURNAL = "journals/sweep.jsonl"
_OURS = {
    *(
        "sweep.yaml",
        "base.yaml",
        "journals",
        "runs",
        "best.yaml",
        "trials.json",
        "schedule.json",
        "report.html",
        BEST,
        "LOCK",
    ),
}


def refuse_foreign(storage: LocalStorage) -> None:
    """Raise RunError if the directory holds anything but a sweep."""
    others = [name for name in storage.names("") if name.split(".tmp-")[0] not in _OURS]
    if others:
        raise RunError(
            f"{storage.place} is not a sweep, yet holds {others[0]}; choose another name or --root"
        )


def begin_or_compare(storage: LocalStorage, config: SearchConfig, base: Base) -> None:
    """Write the first files, or raise RunError if the sweep there began with another file or base."""
    if storage.exists("sweep.yaml"):
        # Without these the record could not be of this sweep.
        _compare(storage, "base.yaml", base.data, f"its base '{config.base}', with 'fixed',")
        now = config.model_dump(exclude=set(CHANGEABLE))
        _compare(storage, "sweep.yaml", now, "its file")
    elif storage.exists(JOURNAL):
        raise RunError(
            f"{storage.place}/sweep.yaml is missing, and {JOURNAL} is of the sweep that it named; restore it,"
            " or begin the sweep under another name"
        )
    else:
        storage.write("base.yaml", strict_yaml.dump(base.data).encode())
    storage.write("sweep.yaml", config.to_yaml().encode())


def _compare(storage: LocalStorage, name: str, now: Mapping[str, Any], what: str) -> None:
    source = f"{storage.place}/{name}"
    if not storage.exists(name):
        raise RunError(f"{source} is missing; restore it, or begin the sweep under another name")
    text = storage.read(name, limit=strict_yaml.MAX_BYTES)
    before = current(strict_yaml.parse(text, source=source), source=source)
    for path in dict.fromkeys([*key_paths(now), *key_paths(before)]):
        if path.split(".")[0] in CHANGEABLE and name == "sweep.yaml":
            continue
        one, two = _value(before, path), _value(now, path)
        if one != two and not (isinstance(one, dict) and isinstance(two, dict)):
            raise RunError(
                f"{storage.place}: {what} has changed since the sweep began: '{path}' was {_shown(one)}"
                f" and is {_shown(two)}; restore it, or give the sweep another name"
            )


def _value(data: Mapping[str, Any], path: str) -> Any:
    """Return the value of a path; the keys of a space, which hold dots themselves, among them."""
    found = value_at(data, path)
    if found is not MISSING:
        return found
    for key, value in data.items():
        if path == key:
            return value
        if path.startswith(f"{key}.") and isinstance(value, Mapping):
            return _value(value, path[len(key) + 1 :])
    return MISSING


def _shown(value: object) -> str:
    return "nothing" if value is MISSING else "null" if value is None else repr(value)
