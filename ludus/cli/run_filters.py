"""Choose and sort runs by words such as `kind=ppo`, `score>400` or `learning_rate<0.01`."""

from __future__ import annotations

import datetime
import fnmatch
import functools
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ludus.config import strict_yaml
from ludus.config.overrides import MISSING, key_paths, read_path, value_at
from ludus.core import counters
from ludus.core.errors import ConfigError, LudusError, nearest
from ludus.judge.directions import known_direction
from ludus.store.directory import ENDINGS
from ludus.store.run_rows import Row, config_of_row

_WORD = re.compile(r"([^=<>!]+)(!=|>=|<=|=|>|<)(.*)", re.DOTALL)
_ORDER: Mapping[str, Callable[[Any, Any], bool]] = {
    ">": operator.gt, "<": operator.lt, ">=": operator.ge, "<=": operator.le,
}  # fmt: skip
COLUMNS = ("name", "kind", "group", "seed", "status", "score", "started", "exact", "tag")
_DIRECT = ("name", "kind", "group", "seed", "status", "exact")
_TEXTS = ("name", "kind", "group", "status", "exact", "tag", "tags")
_STATUSES = (*ENDINGS, "running", "killed", "damaged")


class RunTable:
    """Rows of runs, with the values of their columns, counters and config keys."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows = list(rows)
        self.shown: list[str] = []
        """The counters and config keys by which runs were chosen or sorted."""

    @functools.cached_property
    def _configs(self) -> dict[str, dict[str, Any]]:
        # Read only if a word is about a config.
        return {row["run_dir"]: config_of_row(row) for row in self.rows}

    def choose(self, words: Sequence[str]) -> None:
        """Keep the rows that meet all words; raise LudusError for a word that means nothing."""
        tests = [self._test(word) for word in words]
        self.rows = [row for row in self.rows if all(test(row) for test in tests)]

    def sort(self, key: str) -> None:
        """Sort by a column, counter or config key: the best score and the newest run first, else upwards.

        Rows without a value are last.
        """
        value = self._value_of(key)
        self._show(key)
        if key == "score":
            self.rows.sort(key=_score_place)
        elif key == "started":
            self.rows.sort(key=lambda row: str(row["created"]), reverse=True)
        else:
            self.rows.sort(key=lambda row: _place(value(row)))

    def values(self, key: str) -> list[Any]:
        """Return the value of each row."""
        return [*map(self._value_of(key), self.rows)]

    def _show(self, key: str) -> None:
        if key not in (*COLUMNS, *self.shown):
            self.shown.append(key)

    def _test(self, word: str) -> Callable[[Row], bool]:
        match = _WORD.fullmatch(word)
        if match is None:
            return lambda row: _is_like(row["name"], word) or _is_like(row["group"], word)
        key, sign, wanted = match[1].strip(), match[2], match[3].strip()
        if not wanted:
            raise LudusError(f"{word!r} compares {key} with nothing; write a value after {sign}")
        value = self._value_of(key)
        self._show(key)
        if key == "started":
            return _by_date(value, sign, wanted)
        if key == "status" and "*" not in wanted and wanted not in _STATUSES:
            raise LudusError(f"no run has the status {wanted!r}.{nearest(wanted, _STATUSES)}")
        if key in _TEXTS and sign in _ORDER:
            raise LudusError(f"{word!r}: {key} is text, which {sign} does not compare; use = or !=")
        parsed = _parsed(wanted)
        if sign not in _ORDER:
            is_wanted = sign == "="
            return lambda row: (
                (found := value(row)) is not MISSING
                and _is_same(found, parsed, wanted) is is_wanted
            )
        if not _is_number(parsed):
            raise LudusError(
                f"{word!r}: {wanted} is no number, and {sign} compares numbers; write {key}={wanted}"
            )
        compare = _ORDER[sign]
        return lambda row: _is_number(found := value(row)) and compare(found, parsed)

    def _value_of(self, key: str) -> Callable[[Row], Any]:
        """Return what finds the value of a key in a row, or MISSING; raise LudusError if none has it."""
        if key in _DIRECT:
            return lambda row: row[key]
        if key == "score":
            return lambda row: row["best_score"]
        if key == "started":
            return lambda row: row["created"] or MISSING
        if key in ("tag", "tags"):
            return lambda row: row["tags"]
        if key in counters.SHARED or any(key in row["counters"] for row in self.rows):
            return lambda row: row["counters"].get(key, MISSING)
        paths = {place: _path(config, key) for place, config in self._configs.items()}
        if self.rows and not any(paths.values()):
            raise self._unknown(key)
        return lambda row: (
            value_at(self._configs[row["run_dir"]], path)
            if (path := paths[row["run_dir"]])
            else MISSING
        )

    def _unknown(self, key: str) -> LudusError:
        for config in self._configs.values():
            try:
                read_path(config, key)
            except ConfigError as error:
                if "several sections" in str(error):
                    return error
        known = {path for config in self._configs.values() for path in key_paths(config)}
        leaves = {path.split(".")[-1] for path in known}
        hint = nearest(key, [*COLUMNS, *known, *leaves])
        if "Did you mean" not in hint:
            hint = f" Columns: {', '.join(COLUMNS)}."
        return LudusError(f"{key!r} is neither a column nor a config key of these runs.{hint}")


def _path(config: Mapping[str, Any], key: str) -> str | None:
    """Return the path of a key in a config; None if it has no such key, or several."""
    try:
        return read_path(config, key)
    except ConfigError:
        return None


def _parsed(text: str) -> object:
    try:
        return strict_yaml.parse(text, source="a filter")
    except ConfigError:
        return text


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_like(value: object, pattern: str) -> bool:
    return isinstance(value, str) and fnmatch.fnmatchcase(value, pattern)


def _is_same(value: object, parsed: object, text: str) -> bool:
    """Return whether a value is the one asked for; in a text, `*` stands for any letters."""
    if isinstance(value, list):
        return any(_is_same(one, parsed, text) for one in value)
    if isinstance(value, str):
        return _is_like(value, text)
    if isinstance(value, Mapping):
        return _is_like(value.get("kind"), text)
    return (type(value) is type(parsed) and value == parsed) or (
        _is_number(value) and _is_number(parsed) and value == parsed
    )


def _by_date(value: Callable[[Row], Any], sign: str, wanted: str) -> Callable[[Row], bool]:
    """Return a comparison with a date, or a date and time, by the clock of this machine."""
    try:
        moment = datetime.datetime.fromisoformat(wanted).astimezone()
        is_day = len(wanted) <= len("2026-11-19")
    except (ValueError, OverflowError):
        raise LudusError(
            f"started{sign}{wanted}: {wanted!r} is no date; write one such as 2026-11-19, or"
            " 2026-11-19T18:30"
        ) from None

    def meets(row: Row) -> bool:
        if (found := value(row)) is MISSING:
            return False
        began = datetime.datetime.fromisoformat(found).astimezone()
        if is_day and sign in ("=", "!=", ">", "<="):
            is_after = began.date() > moment.date()
            same = began.date() == moment.date()
            return {"=": same, "!=": not same, ">": is_after, "<=": not is_after}[sign]
        if sign in ("=", "!="):
            return (began == moment) is (sign == "=")
        return _ORDER[sign](began, moment)

    return meets


def _score_place(row: Row) -> tuple[bool, str, float]:
    score, metric = row["best_score"], str(row["best_metric"])
    if not _is_number(score) or score != score:
        return True, metric, 0.0
    try:
        found = float(score)
    except OverflowError:
        found = float("inf") if score > 0 else float("-inf")
    mode = row["best_mode"] or known_direction(metric)
    return False, metric, found if mode == "min" else -found


def _place(value: object) -> tuple[int, float, str]:
    """Return where a value sorts: numbers, then texts, then what is missing."""
    if value is MISSING or value is None or value == []:
        return 2, 0.0, ""
    if isinstance(value, int | float) and abs(value) < 1e300:
        return 0, float(value), ""
    return 1, 0.0, ", ".join(map(str, value)) if isinstance(value, list) else str(value)
