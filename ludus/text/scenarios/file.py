"""The scenario `file`: questions from a file of JSON lines, each with its label and any columns of text."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, Literal

from ludus.config.base import Fraction
from ludus.config.registry import register
from ludus.core.errors import ConfigError
from ludus.seeds import derive
from ludus.text.scenario import TextDataset, TextDatasets, TextScenario, TextScenarioConfig

_MOST_BYTES = 1 << 30
_LABEL = "label"


class FileScenarioConfig(TextScenarioConfig):
    """Questions of a file."""

    kind: Literal["file"]
    """Questions from a file of JSON lines."""
    path: str
    """The file; each line is an object of texts, with a `label` of 0 or 1."""
    test_path: str | None
    """A file of the test questions; null takes a share of the first."""
    test_share: Fraction
    """The share of the questions that are for tests, chosen by the seed; 0.0 where there is a test_path."""

    def problems(self) -> Iterator[str]:
        """Yield each key that contradicts another."""
        if self.test_path is None and not self.test_share:
            yield "'test_path' is null and 'test_share' 0.0, so there are no test questions; give one of them"
        if self.test_path is not None and self.test_share:
            yield f"'test_share' is {self.test_share:g}, but 'test_path' has all test questions; set it to 0"


@register("text_scenario", "file")
class FileScenario(TextScenario):
    """Columns are the keys of the lines besides `label`; prompts name them."""

    Config = FileScenarioConfig
    config: FileScenarioConfig

    def make_datasets(self, seed: int) -> TextDatasets:
        """Return the questions in the file or files."""
        config = self.config
        rows = read_rows(config.path)
        if config.test_path is not None:
            test = read_rows(config.test_path)
        else:
            order = list(range(len(rows)))
            Random(derive(seed, "text/file")).shuffle(order)
            tested = set(order[: round(config.test_share * len(rows))])
            test = [row for place, row in enumerate(rows) if place in tested]
            rows = [row for place, row in enumerate(rows) if place not in tested]
        return TextDatasets(train=_dataset(rows), test=_dataset(test)).check()


def read_rows(path: str) -> list[dict[str, Any]]:
    """Return the lines of a file; raise ConfigError that names the first wrong one."""
    try:
        size = Path(path).stat().st_size
        data = Path(path).read_bytes() if size <= _MOST_BYTES else b""
    except OSError as error:
        raise ConfigError(
            f"'scenario.path' is {path}, which cannot be read: {error.strerror}"
        ) from None
    if size > _MOST_BYTES:
        raise ConfigError(f"{path} has {size:,} bytes; {_MOST_BYTES:,} are allowed")
    rows: list[dict[str, Any]] = []
    for number, line in enumerate(data.splitlines(), 1):
        if line.strip():
            rows.append(_row(path, number, line, rows[0] if rows else None))
    if not rows:
        raise ConfigError(f"{path} has no lines; each is an object with a text and a `label`")
    return rows


def _row(path: str, number: int, line: bytes, first: dict[str, Any] | None) -> dict[str, Any]:
    where = f"{path}, line {number}"
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        raise ConfigError(f"{where}: is no JSON; each line is one object") from None
    if not isinstance(row, dict) or row.get(_LABEL) not in (0, 1) or row[_LABEL] is True:
        raise ConfigError(f"{where}: needs a key 'label' of 0 or 1")
    for name, value in row.items():
        if name != _LABEL and not isinstance(value, str):
            raise ConfigError(f"{where}: '{name}' is no text; put it in quotes")
    if first is not None and set(row) != set(first):
        odd = sorted(set(row) ^ set(first))[0]
        raise ConfigError(
            f"{where}: '{odd}' is in some lines and not in others; give all the same keys"
        )
    return row


def _dataset(rows: list[dict[str, Any]]) -> TextDataset:
    names = [name for name in (rows[0] if rows else {}) if name != _LABEL]
    columns = {name: [str(row[name]) for row in rows] for name in names}
    return TextDataset(columns, [int(row[_LABEL]) for row in rows])
