"""Build examples from the columns of a user's table: numbers, categories, classes.

Shapes: N rows, D columns, K targets.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Literal, Protocol

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from ludus.config.registry import find
from ludus.config.sections import kind_of
from ludus.core.errors import ConfigError, nearest
from ludus.data.batches.splits import Examples, Splits, split_rows
from ludus.data.sources._splitting import TableConfig, splits_of, standardised

_LARGEST = float(np.finfo(np.float32).max)


class FrameConfig(TableConfig):
    """The columns of a file to learn from, and their encoding as numbers."""

    path: Annotated[str, Field(min_length=1)]
    """The file; a relative path is taken from the working directory."""
    targets: Annotated[list[str], Field(min_length=1)]
    """The columns to predict: one for classification, one or more for regression."""
    features: list[str] | None
    """The columns to learn from, in this order; null takes all that are not targets."""
    task: Literal["classification", "regression"]
    """classification if the target is a class, any text or number; regression if it is numbers."""
    one_hot: list[str]
    """The categorical features: each is one-hot encoded, one column of 0 and 1 for every value."""
    missing: Literal["refuse", "mean", "zero"]
    """Empty cells of a feature: refuse the file, or fill them with the mean of the training rows or 0."""

    def problems(self) -> Iterator[str]:
        """Yield the problems that only a combination of keys shows."""
        if self.task == "classification" and len(self.targets) > 1:
            yield f"'targets' names {len(self.targets)} columns, but classification has one; name one"
        for key, names in (("targets", self.targets), ("features", self.features or [])):
            for name in sorted({name for name in names if names.count(name) > 1}):
                yield f"'{key}' names the column {name} twice; name it once"
        if self.features == []:
            yield "'features' is empty; name one column at least, or set it to null for all"
        for name in self.features or []:
            if name in self.targets:
                yield f"'features' names {name}, which is a target; leave it out of one of them"
        for name in self.one_hot:
            if name in self.targets or name not in (self.features or self.one_hot):
                yield f"'one_hot' names {name}, which is not among the features; leave it out"


class FileFrame(Protocol):
    """A table in memory: columns by name."""

    @property
    def names(self) -> Sequence[str]:
        """The columns, in the order of the file."""

    def __len__(self) -> int:
        """Return the number of rows."""

    def numbers(self, name: str, *, remedy: str) -> np.ndarray:
        """Return a column as float64, NaN for an empty cell; raise ConfigError if it holds text."""

    def texts(self, name: str) -> Sequence[str | None]:
        """Return a column as texts, None for an empty cell."""

    def where(self, row: int) -> str:
        """Return the name of a row in an error: line 7, or row 6."""


def frame_of(section: FrameConfig) -> FileFrame:
    """Return the table in the file of a section, of any kind of file."""
    frame: FileFrame = find("dataset", kind_of(section))(section).frame()
    return frame


def split_frame(
    frame: FileFrame, config: FrameConfig, name: str, generator: torch.Generator
) -> Splits:
    """Return the examples of a table, split by the generator."""
    if not len(frame):
        raise ConfigError(f"'data.path' is {config.path}, which has no rows; give one at least")
    fractions = [config.validation_fraction, config.test_fraction]
    features = _chosen(frame, config)
    targets, classes = _targets(frame, config)
    validation, test, train = split_rows(len(frame), fractions, generator)
    examples = _encoded(frame, config, features, (targets, classes), train)
    rows = (validation, test, train)
    return splits_of(name, config.task, examples, rows, len(classes) or None)


def other_frame(
    frame: FileFrame,
    config: FrameConfig,
    other: FileFrame,
    section: FrameConfig,
    generator: torch.Generator,
) -> Examples:
    """Return all examples of another table, encoded as those of `frame` split by the generator."""
    for key in ("targets", "features", "task", "one_hot", "missing", "standardise"):
        if getattr(section, key) != getattr(config, key):
            raise ConfigError(
                f"'data.{key}' says how the examples of the run were encoded, as its network expects them;"
                " leave it as it is, and change the file alone"
            )
    if not len(other):
        raise ConfigError(f"'data.path' is {section.path}, which has no rows; give one at least")
    features = _chosen(frame, config)
    _chosen(other, section.model_copy(update={"features": features}))
    for name in [*config.one_hot, *(config.targets if config.task == "classification" else ())]:
        unseen = {*other.texts(name)} - {*frame.texts(name), None}
        if unseen:
            raise ConfigError(
                f"column {name} of {section.path} holds {min(map(str, unseen))!r}, which {config.path} does"
                " not, so the network does not know it; leave such rows out"
            )
    fractions = [config.validation_fraction, config.test_fraction]
    *_, train = split_rows(len(frame), fractions, generator)
    # Encoded together, so that all is measured on the training rows of the run.
    both, named = _Joined(frame, other), config.model_copy(update={"path": section.path})
    examples = _encoded(both, named, features, _targets(both, named), train)
    rows = slice(len(frame), None)
    return Examples(*[one[rows].contiguous() for one in examples.tensors])


class _Joined:
    """The rows of two tables, those of the second last."""

    def __init__(self, first: FileFrame, second: FileFrame) -> None:
        self._first, self._second = first, second
        self.names = first.names

    def __len__(self) -> int:
        return len(self._first) + len(self._second)

    def numbers(self, name: str, *, remedy: str) -> np.ndarray:
        """Return a column of both."""
        return np.concatenate(
            [one.numbers(name, remedy=remedy) for one in (self._first, self._second)]
        )

    def texts(self, name: str) -> list[str | None]:
        """Return a column of both."""
        return [*self._first.texts(name), *self._second.texts(name)]

    def where(self, row: int) -> str:
        """Return the name of a row in its own table."""
        inner = row - len(self._first)
        return self._first.where(row) if inner < 0 else self._second.where(inner)


def _encoded(
    frame: FileFrame,
    config: FrameConfig,
    features: Sequence[str],
    found: tuple[Tensor, list[str]],
    train: Tensor,
) -> Examples:
    """Return the examples of a table, scaled and filled in by what is measured on the training rows."""
    targets, classes = found
    pieces, columns = [], []
    for feature in features:
        values_ND, names = _feature(frame, config, feature, train.numpy())
        pieces.append(values_ND)
        columns += names
    # In float64 until they are scaled: as float32, two Unix times a minute apart could be equal.
    inputs = torch.from_numpy(np.concatenate(pieces, 1, dtype=np.float64))
    if config.standardise:
        inputs = standardised(inputs, train)
        targets = targets if classes else standardised(targets, train)
    inputs = inputs.float()
    targets = targets if classes else targets.float()
    if config.task == "regression" and targets.shape[1] == 1:
        targets = targets[:, 0]
    return Examples(inputs, targets, columns=columns)


def _chosen(frame: FileFrame, config: FrameConfig) -> list[str]:
    """Return the features; raise ConfigError for a column that the file does not have."""
    known = list(frame.names)
    for name in sorted({name for name in known if known.count(name) > 1}):
        raise ConfigError(f"{config.path} has two columns named {name}; rename one")
    wanted = [*config.targets, *(config.features or []), *config.one_hot]
    for name in wanted:
        if name not in known:
            shown = ", ".join(known[:20]) + (", ..." if len(known) > 20 else "")
            raise ConfigError(
                f"{config.path} has no column {name}.{nearest(name, known)} It has {shown}"
            )
    features = config.features or [name for name in known if name not in config.targets]
    if not features:
        raise ConfigError(
            f"{config.path} has no column but the targets; there is nothing to learn from"
        )
    return features


def _targets(frame: FileFrame, config: FrameConfig) -> tuple[Tensor, list[str]]:
    """Return targets_N of classes and the sorted classes, or targets_NK of numbers and none."""
    if config.task == "regression":
        columns = []
        for name in config.targets:
            column_N = _finite(frame, config, name)
            _refuse_missing(frame, config, name, np.isnan(column_N), "a target cannot be filled in")
            columns.append(column_N)
        return torch.from_numpy(np.stack(columns, 1)), []
    texts = frame.texts(config.targets[0])
    is_missing_N = np.fromiter((text is None for text in texts), bool, len(texts))
    _refuse_missing(frame, config, config.targets[0], is_missing_N, "a target cannot be filled in")
    classes = _in_order({str(text) for text in texts})
    if len(classes) < 2:
        raise ConfigError(
            f"column {config.targets[0]} of {config.path} has one class only, {classes[0]};"
            " there is nothing to distinguish"
        )
    index = {text: place for place, text in enumerate(classes)}
    return torch.tensor([index[str(text)] for text in texts], dtype=torch.int64), classes


def _feature(
    frame: FileFrame, config: FrameConfig, name: str, train_rows: np.ndarray
) -> tuple[np.ndarray, list[str]]:
    """Return the encoded columns of a feature, values_ND, and their names."""
    remedy = "fill it in, or set data.missing to mean or zero"
    if name in config.one_hot:
        texts = frame.texts(name)
        if config.missing == "refuse":
            is_missing_N = np.fromiter((text is None for text in texts), bool, len(texts))
            _refuse_missing(frame, config, name, is_missing_N, remedy)
        values = _in_order({text for text in texts if text is not None})
        index = {text: place for place, text in enumerate(values)}
        hot_ND = np.zeros((len(texts), len(values)), np.float32)
        for row, text in enumerate(texts):
            if text is not None:
                hot_ND[row, index[text]] = 1.0
        return hot_ND, [f"{name}={value}" for value in values]
    column_N = _finite(frame, config, name)
    is_missing_N = np.isnan(column_N)
    if config.missing == "refuse":
        _refuse_missing(frame, config, name, is_missing_N, remedy)
    elif is_missing_N.any():
        known = column_N[train_rows][~is_missing_N[train_rows]]
        if config.missing == "mean" and not len(known):
            raise ConfigError(
                f"column {name} of {config.path} is empty in every training row, so it has no mean; leave"
                " it out of data.features"
            )
        column_N = np.where(
            is_missing_N, known.mean() if config.missing == "mean" else 0.0, column_N
        )
    return column_N[:, None], [name]


def _finite(frame: FileFrame, config: FrameConfig, name: str) -> np.ndarray:
    """Return a column of numbers within the range of float32; NaN for an empty cell."""
    remedy = "name it in data.one_hot, or leave it out of data.features"
    if name in config.targets:
        remedy = "set data.task to classification if it holds classes"
    column_N = frame.numbers(name, remedy=remedy)
    bad = np.flatnonzero(np.abs(column_N) > _LARGEST)
    if len(bad):
        raise ConfigError(
            f"{frame.where(int(bad[0]))} of {config.path} holds {column_N[bad[0]]:g} in column {name},"
            " more than a float32 can hold; correct it or rescale the column"
        )
    return column_N


def _refuse_missing(
    frame: FileFrame, config: FrameConfig, name: str, is_missing_N: np.ndarray, remedy: str
) -> None:
    rows = np.flatnonzero(is_missing_N)
    if len(rows):
        more = f" and {len(rows) - 1} more" if len(rows) > 1 else ""
        raise ConfigError(
            f"column {name} of {config.path} is empty in {frame.where(int(rows[0]))}{more}; {remedy}"
        )


def _in_order(values: set[str]) -> list[str]:
    """Return values in numerical order if all are numbers, else alphabetically."""
    try:
        return sorted(values, key=lambda value: (float(value), value))
    except ValueError:
        return sorted(values)
