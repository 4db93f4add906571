"""The config that a sweep varies, and the config of each of its runs."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from ludus.config import families
from ludus.config.base import (
    TrainerConfig,
    current,
    key_paths,
    read_data,
    typed,
    validate,
)
from ludus.config.overrides import (
    MISSING,
    kinds_first,
    override,
    override_all,
    read_path,
    renamed_path,
    value_at,
)
from ludus.config.registry import example_path, find
from ludus.core.errors import ConfigError, nearest
from ludus.sweep.config import SearchConfig
from ludus.sweep.space import Space, is_among
from ludus.sweep.variables import Varied

_OWN = {
    "version": "the version of the file",
    "kind": "another kind of trainer has other keys; write a sweep for each",
    "name": "the runs of a sweep are named by their trial and seed",
    "seed": "the seeds of the runs are 'seeds'",
}


class Base:
    """The base of a sweep, with its fixed keys, and the space over the rest."""

    def __init__(self, sweep: SearchConfig) -> None:
        """Raise one ConfigError for all mistakes in 'base', 'fixed' and 'space'."""
        self._sweep = sweep
        path = _path_of(sweep.base)
        self.data = current(read_data(path), source=str(path))
        shown = typed(self.data, source=str(path)).settings.display
        wrong = list(self._fix())
        if not wrong:
            self.config = typed(self.data, source=f"{path} with 'fixed'")
            if self.config.settings.display not in (shown, "none"):
                wrong.append(
                    f"'fixed' has 'settings.display' {self.config.settings.display}, and a run of a sweep"
                    " shows nothing itself; remove it"
                )
            variables = dict(self._variables(wrong))
        if not wrong:
            self.space = Space(_in_order(variables, wrong))
        if not wrong:
            wrong += self._impossible()
        if wrong:
            raise ConfigError(f"the sweep '{sweep.name}': " + "; ".join(wrong))

    def _fix(self) -> Iterator[str]:
        """Set the fixed keys, and yield what is wrong with them."""
        self._fixed: dict[str, Any] = {}
        for key in kinds_first(self._sweep.fixed, sections_first=True):
            if key in _OWN:
                yield f"'fixed' has '{key}': {_OWN[key]}"
                continue
            try:
                override(self.data, key, self._sweep.fixed[key])
                path = read_path(self.data, key)
            except ConfigError as error:
                yield f"'fixed': {error}"
                continue
            self._fixed[path] = value_at(self.data, path)

    def _variables(self, wrong: list[str]) -> Iterator[tuple[str, Varied]]:
        """Yield each varied key by its whole path; mistakes are added to `wrong`."""
        found: dict[str, Varied] = {}
        for key, varied in self._sweep.space.items():
            try:
                path = varied_path(self.data, self._sweep.space, key)
            except ConfigError as error:
                wrong.append(f"'space': {error}")
                continue
            if path in _OWN or path.split(".")[0] == "settings":
                reason = _OWN.get(path, "settings do not affect the result")
                wrong.append(f"'space' has '{key}': {reason}")
            elif path in found:
                wrong.append(f"'space' names '{path}' twice; name it once")
            else:
                found[path] = varied
        for path in found:
            if clash := next((one for one in self._fixed if _overlap(one, path)), None):
                wrong.append(
                    f"'{path}' varies and '{clash}' is fixed; remove one of them"
                    if path != clash
                    else f"'{path}' is both in 'space' and in 'fixed'; remove one of them"
                )
        wrong += _overlaps(found)
        yield from found.items()

    def _impossible(self) -> Iterator[str]:
        """Yield each value of a varied key that the base's config cannot have."""
        owner = find("trainer", self.config.kind).Config
        for path, varied in self.space.variables.items():
            for value in varied.extremes():
                data = self.data
                try:
                    data = self._data_at({**self._chosen_around(path), path: value})
                    owner.model_validate(data)
                    continue
                except ValidationError as error:
                    problem = _sentence(owner, data, error)
                except ConfigError as error:
                    problem = str(error)
                yield f"'space' gives '{path}' the value {value!r}, which is impossible: {problem}"
                break

    def _chosen_around(self, path: str) -> dict[str, Any]:
        """Return a value of each section that is chosen whole and in which a key varies."""
        varied, found = self.space.variables, dict[str, Any]()
        for outer in (one for one in varied if path.startswith(f"{one}.")):
            for value in varied[outer].extremes():
                if self.space.is_active(path, {outer: value}):
                    found[outer] = value
                    break
        return found

    def length_by(self, counter: str) -> int | None:
        """Return how far a counter comes in a run of the base; None if its config does not say."""
        data = self.config.model_dump()
        lengths = [
            value_at(data, path)
            for path in key_paths(data)
            if families.counter_of(path.split(".")[-1]) == counter
        ]
        return min((one for one in lengths if isinstance(one, int)), default=None)

    def config_of(self, point: Mapping[str, Any], seed: int, name: str) -> TrainerConfig:
        """Return the config of a run at this point; raise ConfigError if its values contradict each other."""
        data = self._data_at(point) | {"name": name, "seed": seed}
        # As many runs at once as there are workers: each has one thread unless a number is given, and none
        # shows itself.
        data["settings"] |= {"display": "none", "threads": data["settings"]["threads"] or 1}
        return typed(data, source=f"the config of {name}")

    def best_config(self, point: Mapping[str, Any]) -> TrainerConfig:
        """Return the base with the values of this point, and with the seed of the base."""
        return typed(self._data_at(point), source="the best config")

    def _data_at(self, point: Mapping[str, Any]) -> dict[str, Any]:
        """Return the data with the values of a point; fixed keys keep theirs where it has another kind."""
        data = copy.deepcopy(self.data)
        override_all(data, {**self._fixed, **point}, sections_first=True)
        return data


def varied_path(data: Mapping[str, Any], space: Iterable[str], key: str) -> str:
    """Return the whole path that a key of the space has in the data of a base."""
    above = [other for other in space if key.startswith(f"{other}.")]
    parent, _, _ = key.rpartition(".")
    paths = key_paths(data)
    # Names under kwargs are free; what is under a varied section depends on the value that is drawn.
    if above or (parent.split(".")[-1] == "kwargs" and parent in paths):
        return key
    if "." in key and key not in paths and not renamed_path(data, key):
        raise ConfigError(f"'{key}' is not a key of this config.{nearest(key, paths)}")
    return read_path(data, key)


def _path_of(base: str) -> Path:
    """Return the file that 'base' names."""
    is_path = "/" in base or base.endswith((".yaml", ".yml")) or Path(base).is_file()
    if base == "-":
        raise ConfigError(
            "'base' is -, and a sweep reads its base again whenever it goes on; name a file"
        )
    if is_path:
        return Path(base)
    try:
        return example_path(base)
    except ConfigError as error:
        raise ConfigError(f"'base': {error}") from None


def _sentence(owner: type[Any], data: Mapping[str, Any], error: ValidationError) -> str:
    """Return what pydantic found wrong, in the words of a config error."""
    try:
        validate(owner, data, source="x")
    except ConfigError as problem:
        return str(problem).removeprefix("x: ").partition("\n")[0]
    return str(error).partition("\n")[0]


def _overlap(one: str, two: str) -> bool:
    """Return whether two keys are the same or one lies under the other."""
    return one == two or one.startswith(f"{two}.") or two.startswith(f"{one}.")


def _overlaps(found: Mapping[str, Varied]) -> Iterator[str]:
    """Yield each key that lies under another varied one and is not conditioned on it."""
    for path, varied in found.items():
        for outer in found:
            if not path.startswith(f"{outer}."):
                continue
            named = [
                other
                for other in varied.when or {}
                if other == outer or other.startswith(f"{outer}.")
            ]
            if not named:
                yield (
                    f"'{path}' varies, and so does '{outer}', which holds it; say for which of its values, as"
                    f" in when: {{{outer}.kind: [...]}}, or remove one"
                )


def _in_order(found: Mapping[str, Varied], wrong: list[str]) -> dict[str, Varied]:
    """Return the varied keys, each after those that its conditions name; mistakes are added to `wrong`."""
    parents = {path: list(_parents(path, varied, found, wrong)) for path, varied in found.items()}
    placed: dict[str, Varied] = {}
    while len(placed) < len(found) and not wrong:
        ready = [p for p in found if p not in placed and all(o in placed for o in parents[p])]
        if not ready:
            left = [path for path in found if path not in placed]
            wrong.append(
                f"the conditions of '{left[0]}' and '{left[-1]}' name each other; remove one"
            )
        placed |= {path: found[path] for path in ready}
    return placed


def _parents(
    path: str, varied: Varied, found: Mapping[str, Varied], wrong: list[str]
) -> Iterator[str]:
    """Yield the varied key that each condition of a key is about; mistakes are added to `wrong`."""
    for other, wanted in (varied.when or {}).items():
        owners = [key for key in found if other == key or other.startswith(f"{key}.")]
        if not owners or path in owners:
            known = [key for key in found if key != path]
            what = "is the key itself" if path in owners else "does not vary"
            wrong.append(
                f"'when' of '{path}' names '{other}', which {what}.{nearest(other, known)}"
            )
            continue
        owner = max(owners, key=len)
        values = found[owner].grid()
        if getattr(found[owner], "kind", "") != "choice" or values is None:
            wrong.append(
                f"'when' of '{path}' names '{other}'; a condition is on a key of kind choice"
            )
            continue
        inner = other[len(owner) + 1 :]
        there = [value_at(value, inner) if inner else value for value in values]
        never = next((one for one in wanted if not is_among(one, there)), MISSING)
        if never is not MISSING:
            wrong.append(
                f"'when' of '{path}' needs '{other}' to be {never!r}, which is none of its values"
            )
            continue
        wrong += _missing_under(path, owner, inner, wanted, values)
        yield owner


def _missing_under(
    path: str, owner: str, inner: str, wanted: Sequence[Any], values: Sequence[Any]
) -> list[str]:
    """Return a sentence for each drawn section in which a key under it does not exist."""
    if not path.startswith(f"{owner}."):
        return []
    met = [one for one in values if is_among(value_at(one, inner) if inner else one, wanted)]
    key = path[len(owner) + 1 :]
    return [
        f"'{path}' is no key of {one!r}, a value of '{owner}'"
        for one in met
        if value_at(one, key) is MISSING
    ][:1]
