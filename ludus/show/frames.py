"""Runs and their curves as pandas frames, for notebooks and scripts."""

from __future__ import annotations

import datetime
import functools
from array import array
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ludus.config.leaves import leaves
from ludus.config.optional import optional
from ludus.core.errors import LudusError, nearest
from ludus.show.report.series import NOT_SCALARS, is_count, number, stretches
from ludus.store.places import open_storage
from ludus.store.run_rows import Row, config_of_row, rows_in

if TYPE_CHECKING:
    from pandas import DataFrame  # type: ignore[import-untyped]

_OF_THE_FILE = ("version", "kind", "name", "seed")


def results(root: str | Path = "runs") -> Results:
    """Return the runs below a root, a directory or a URL such as s3://bucket/runs, as pandas frames."""
    return Results(root)


class Results:
    """The runs below a root as they were when it was made: `runs` has a row for each, `curves` their logs."""

    def __init__(self, root: str | Path = "runs") -> None:
        """Raise LudusError if there are no runs, or pandas is missing."""
        self._pandas = optional("pandas", key="ludus.results", extra="frames")
        self._rows = sorted(rows_in(root), key=lambda row: str(row["created"]))
        if not self._rows:
            raise LudusError(f"no runs in {root}; `ludus train CONFIG` makes one")
        self._root = str(root)

    def __repr__(self) -> str:
        return f"Results({self._root!r}): {len(self._rows)} runs"

    @functools.cached_property
    def runs(self) -> DataFrame:
        """One row a run, the oldest first, by name: how it ended, its score, counters, tags and config keys.

        A counter and a key of the config are columns of their own name, such as `optimizer.learning_rate`; a
        key with the name of another column is `config.<key>`.
        """
        pandas = self._pandas
        columns = [self._columns_of(row) for row in self._rows]
        frame = pandas.DataFrame(columns).set_index("run")
        for name in ("seed", *self._counters()):
            frame[name] = frame[name].astype("Int64")
        frame["started"] = pandas.to_datetime(frame["started"], utc=True)
        return frame

    def _counters(self) -> list[str]:
        return list(dict.fromkeys(name for row in self._rows for name in row["counters"]))

    def _columns_of(self, row: Row) -> dict[str, Any]:
        found: dict[str, Any] = {
            "run": row["name"],
            "kind": row["kind"],
            "group": row["group"],
            "seed": row["seed"],
            "status": row["status"],
            "reason": row["reason"],
            "metric": row["best_metric"],
            "score": number(row["best_score"]),
            "started": _moment(row["created"]),
            "exact": row["exact"],
            "tags": tuple(row["tags"]),
            "run_dir": row["run_dir"],
        }
        found |= dict.fromkeys(self._counters()) | row["counters"]
        taken = {*found}
        for path, value in _columns(config_of_row(row)):
            found[f"config.{path}" if path in taken else path] = value
        return found

    def curves(self, metric: str | Sequence[str] | None = None) -> DataFrame:
        """Return what the runs logged in long form: run, group, seed, the counters, metric and value.

        `metric` names one metric or several; None takes all. Histograms, texts and images are left out.
        """
        wanted = None if metric is None else {metric} if isinstance(metric, str) else {*metric}
        found = _Values()
        for index, row in enumerate(self._rows):
            for record in _records(row):
                found.add(index, record, wanted)
        for name in sorted((wanted or set()) - found.seen.keys()):
            raise LudusError(
                f"no run in {self._root} has logged {name!r}.{nearest(name, found.seen)}"
            )
        return self._long(found)

    def _long(self, found: _Values) -> DataFrame:
        """Return values as a frame, with the run of each."""
        pandas, rows = self._pandas, self._rows
        whose = np.asarray(found.whose)
        groups = list(dict.fromkeys(row["group"] for row in rows if row["group"] is not None))
        codes = [groups.index(row["group"]) if row["group"] is not None else -1 for row in rows]
        seeds = np.asarray([-1 if row["seed"] is None else row["seed"] for row in rows])
        categories = pandas.Categorical.from_codes
        frame = {
            "run": categories(whose, categories=[row["name"] for row in rows]),
            "group": categories(np.asarray(codes)[whose], categories=groups),
            "seed": self._whole(seeds[whose]),
        }
        for name, counts in found.counters.items():
            missing = np.full(len(whose) - len(counts), -1)
            frame[name] = self._whole(np.concatenate([np.asarray(counts, np.int64), missing]))
        frame["metric"] = categories(np.asarray(found.names), categories=list(found.seen))
        frame["metric"] = frame["metric"].remove_unused_categories()
        frame["value"] = np.asarray(found.values)
        return pandas.DataFrame(frame)

    def _whole(self, counts: np.ndarray[Any, Any]) -> Any:
        """Return whole numbers of which -1 means none."""
        return self._pandas.arrays.IntegerArray(counts, counts < 0)


class _Values:
    """Every logged value, in arrays: a frame of many long runs has millions."""

    def __init__(self) -> None:
        self.whose, self.names, self.values = array("i"), array("i"), array("d")
        self.counters: dict[str, array[int]] = {}
        self.seen: dict[str, int] = {}
        """Every metric, with its number."""

    def add(self, index: int, record: Mapping[str, Any], wanted: set[str] | None) -> None:
        """Add the values of a record, with its counters: whole numbers, as metrics are floats."""
        names, values, counters = list[int](), list[float](), dict[str, int]()
        for name, given in record.items():
            if type(given) is float:
                value = given
            elif is_count(given):
                counters[name] = given
                continue
            elif name in NOT_SCALARS or (found := number(given)) is None:
                continue
            else:
                value = found
            code = self.seen.setdefault(name, len(self.seen))
            if wanted is None or name in wanted:
                names.append(code)
                values.append(value)
        before, num = len(self.whose), len(names)
        for counter, count in counters.items() if num else ():
            column = self.counters.setdefault(counter, array("q"))
            if len(column) < before:
                column.extend([-1] * (before - len(column)))
            column.extend([count] * num)
        self.whose.extend([index] * num)
        self.names.extend(names)
        self.values.extend(values)


def _records(row: Row) -> Iterator[dict[str, Any]]:
    """Yield the records of a run's log; damaged lines are skipped."""
    if row["status"] == "damaged":
        return
    for some in stretches(open_storage(row["run_dir"]), "metrics.jsonl", []):
        yield from some


def _columns(config: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield each key of a config that holds a value, by its path, settings last; lists become tuples."""
    found = leaves(config)
    for path in sorted(found, key=lambda path: path.startswith("settings.")):
        value = found[path]
        if path not in _OF_THE_FILE and not isinstance(value, Mapping):
            yield path, tuple(value) if isinstance(value, list) else value


def _moment(created: str) -> datetime.datetime | None:
    return datetime.datetime.fromisoformat(created) if created else None
