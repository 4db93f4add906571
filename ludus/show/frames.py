"""Runs and their curves as pandas frames, for notebooks and scripts."""

from __future__ import annotations

import datetime
import functools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ludus.config.optional import optional
from ludus.config.overrides import key_paths, value_at
from ludus.core.errors import LudusError, nearest
from ludus.show.report.series import NOT_SCALARS, number, stretches
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
        for path, value in _leaves(config_of_row(row)):
            found[f"config.{path}" if path in taken else path] = value
        return found

    def curves(self, metric: str | Sequence[str] | None = None) -> DataFrame:
        """Return what the runs logged in long form: run, group, seed, the counters, metric and value.

        `metric` names one metric or several; None takes all. Histograms, texts and images are left out.
        """
        wanted = None if metric is None else {metric} if isinstance(metric, str) else {*metric}
        columns: dict[str, list[Any]] = {"metric": [], "value": []}
        whose: list[int] = []
        seen: dict[str, None] = {}
        for index, row in enumerate(self._rows):
            for record in _records(row):
                counters, values = _parted(record)
                seen |= dict.fromkeys(values)
                for name in (one for one in values if wanted is None or one in wanted):
                    columns["metric"].append(name)
                    columns["value"].append(values[name])
                    _add_counters(columns, counters, len(whose))
                    whose.append(index)
        for name in sorted((wanted or set()) - seen.keys()):
            raise LudusError(f"no run in {self._root} has logged {name!r}.{nearest(name, seen)}")
        return self._long(columns, whose)

    def _long(self, columns: dict[str, list[Any]], whose: list[int]) -> DataFrame:
        """Return columns of values as a frame, with the run of each."""
        pandas, rows = self._pandas, self._rows
        frame = {
            "run": pandas.Categorical.from_codes(whose, categories=[row["name"] for row in rows]),
            "group": [rows[index]["group"] for index in whose],
            "seed": pandas.array([rows[index]["seed"] for index in whose], dtype="Int64"),
        }
        for name in columns:
            if name not in ("metric", "value"):
                found = columns[name] + [None] * (len(whose) - len(columns[name]))
                frame[name] = pandas.array(found, dtype="Int64")
        frame["metric"] = pandas.Categorical(columns["metric"])
        frame["value"] = pandas.array(columns["value"], dtype="float64")
        return pandas.DataFrame(frame)


def _add_counters(columns: dict[str, list[Any]], counters: Mapping[str, int], place: int) -> None:
    """Add the counters of one value; those that a record lacks stay None."""
    for name, value in counters.items():
        column = columns.setdefault(name, [])
        column += [None] * (place - len(column))
        column.append(value)


def _records(row: Row) -> Iterator[dict[str, Any]]:
    """Yield the records of a run's log; damaged lines are skipped."""
    if row["status"] == "damaged":
        return
    for some in stretches(open_storage(row["run_dir"]), "metrics.jsonl", []):
        yield from some


def _parted(record: Mapping[str, Any]) -> tuple[dict[str, int], dict[str, float]]:
    """Return the counters and the metrics of a record: metrics are floats, so whole numbers are counters."""
    counters = {name: value for name, value in record.items() if type(value) is int}
    found = (
        (name, number(value))
        for name, value in record.items()
        if name not in counters and name not in NOT_SCALARS
    )
    return counters, {name: value for name, value in found if value is not None}


def _leaves(config: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield each key of a config that holds a value, by its path, settings last; lists become tuples."""
    for path in sorted(key_paths(config), key=lambda path: path.startswith("settings.")):
        value = value_at(config, path)
        if path not in _OF_THE_FILE and not isinstance(value, Mapping):
            yield path, tuple(value) if isinstance(value, list) else value


def _moment(created: str) -> datetime.datetime | None:
    return datetime.datetime.fromisoformat(created) if created else None
