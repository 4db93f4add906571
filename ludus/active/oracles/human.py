"""Labels from people: the run pauses, and `ludus label RUN` asks for them."""

from __future__ import annotations

import shlex
from typing import Annotated, Literal

from pydantic import Field
from torch import Tensor

from ludus.active.examples import PoolExamples
from ludus.active.labelling.queries import Queries, picture_of, write_queries
from ludus.active.oracle import Answers, Labels
from ludus.config.base import StrictConfig
from ludus.config.registry import register
from ludus.core import Run
from ludus.core.errors import ConfigError, LudusError

Name = Annotated[str, Field(min_length=1, max_length=80)]


@register("oracle", "human")
class Human:
    """Writes the open queries to files of the run, which exits cleanly until they are answered."""

    class Config(StrictConfig):
        """The class names to show."""

        kind: Literal["human"]
        """People answer with `ludus label RUN`; the run exits meanwhile, and `ludus resume` continues it."""
        class_names: list[Name] | None
        """The names of the classes, in order; an answer may be a name. null: numbers from 0."""

    def __init__(self, config: Config) -> None:
        self._names = config.class_names
        self._classes: int | None = None
        self._model: object = None

    def check(self, examples: PoolExamples, labels: Labels, *, model: object) -> None:
        """Check that there is a name for each class."""
        self._classes, self._model, names = labels.num_classes, model, self._names
        if names is None:
            return
        if self._classes is None:
            raise ConfigError(
                "'oracle.class_names' names classes, and this run predicts numbers; set it to null"
            )
        if len(names) != self._classes:
            raise ConfigError(
                f"'oracle.class_names' has {len(names)} names, and the model has {self._classes} classes;"
                " give one for each"
            )
        if len({name.strip().casefold() for name in names}) < len(names):
            raise ConfigError("'oracle.class_names' has a name twice; give each class its own")

    def answer(self, rows: Tensor, examples: PoolExamples, answers: Answers, *, run: Run) -> None:
        """Write the open queries; the answers come while the run is paused."""
        if run.files is None:
            raise LudusError(
                "oracle.kind human keeps its queries in the run's directory, and this run has none; train it"
                " with fit(root=...), or use another oracle"
            )
        inputs = examples.inputs(rows)
        columns = getattr(examples.dataset, "columns", None)
        is_tensor = isinstance(inputs, Tensor)
        write_queries(
            run.files,
            Queries(
                round=run.round("round"),
                rows=rows.tolist(),
                num_classes=self._classes,
                class_names=self._names,
                columns=None if columns is None else [str(one) for one in columns],
                picture=picture_of(inputs[0], self._model) if is_tensor else None,
                inputs=inputs if is_tensor else None,
            ),
        )

    def waits_for(self, run: Run) -> str:
        """Return instructions for the user."""
        place = "RUN" if run.files is None else shlex.quote(run.files.place)
        return f"`ludus label {place}`"
