"""A fine-tuning job: a run of kind text_tuning with the hyperparameters of OpenAI's API, in any process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from ludus.core.errors import LudusError
from ludus.core.run import Observer, Run
from ludus.core.runtime import Request
from ludus.core.trainer import Trainer
from ludus.session.loading import load
from ludus.session.session import Session
from ludus.text.models.language_model import LanguageModel, save_model
from ludus.text.tuning.config import TUNED
from ludus.text.tuning.job_config import TuningJob as TuningJob, config_of, resolve as resolve
from ludus.text.tuning.lines import read_lines
from ludus.text.tuning.sources import read_file
from ludus.text.tuning.tokens import tokenise

Wish = Literal["go_on", "pause", "cancel"]
"""What becomes of a job at its next boundary."""
_NAMES = {"epoch_loss": "loss", "epoch_token_accuracy": "mean_token_accuracy"}


@dataclass(frozen=True)
class TuningProgress:
    """How far a job is, and the metrics that it has logged there."""

    step: int
    num_steps: int
    epoch: int
    """The number of finished epochs."""
    trained_tokens: int
    metrics: Mapping[str, float]
    """By OpenAI's names: train_loss, train_mean_token_accuracy, full_valid_loss, ..."""


@dataclass(frozen=True)
class TuningOutcome:
    """How a job ended."""

    status: Literal["succeeded", "paused", "cancelled"]
    directory: Path | None
    """The directory of the tuned model, if the job succeeded."""
    trained_tokens: int


def check_files(
    job: TuningJob, model: LanguageModel, *, names: Mapping[Path, str] | None = None
) -> int:
    """Return the number of tokens of an epoch; raise ConfigError, with line numbers, for bad files.

    `names` are the names of the files in messages, by default their paths.
    """
    total = 0
    for path in (job.training_file, job.validation_file):
        if path is None:
            continue
        source = (names or {}).get(path, str(path))
        examples = read_lines(read_file(path, source), job.method, source=source)
        table = tokenise(examples, model.tokenizer, context=model.context, source=source)
        total += int(table.lengths.sum()) if path is job.training_file else 0
    return total


def run_job(
    job: TuningJob,
    directory: Path,
    *,
    on_progress: Callable[[TuningProgress], None] = lambda progress: None,
    wish: Callable[[], Wish] = lambda: "go_on",
) -> TuningOutcome:
    """Run a job in this directory, or resume the run that is there, and return how it ended.

    Killed at any instant and called again with the same job, it ends with the same bytes. `wish` is asked at
    every boundary: a paused job is saved, and goes on with the next call. Raises LudusError for whatever a
    user can cause, with a sentence that says what to do.
    """
    from ludus.text.trainers.text_tuning import TextTuningTrainer

    if wish() == "cancel":
        return TuningOutcome("cancelled", None, 0)
    trainer = TextTuningTrainer(config_of(job))
    watch = _Watch(lambda: trainer.num_train_steps, on_progress, wish)
    result = trainer.fit(
        root=str(directory.parent),
        name=directory.name,
        resume=True,
        runtime=partial(_JobSession, watch=watch),
    )
    tokens = result.counters["tokens"]
    if result.status == "interrupted":
        return TuningOutcome("cancelled" if watch.is_cancelled else "paused", None, tokens)
    tuned = directory / TUNED
    if not tuned.is_dir():
        raise LudusError(
            f"{tuned} is missing, where this finished job has saved its model; restore it from a backup, or"
            " delete the job and create it again"
        )
    return TuningOutcome("succeeded", tuned, tokens)


def export_model(directory: Path, model: str, to: Path) -> None:
    """Save a model that a job kept, such as epoch_2, as a directory that `load_model` reads."""
    save_model(load(str(directory), model, expected=LanguageModel), to)


class _Watch:
    """An observer that passes on progress, and pauses the run if that is wished."""

    def __init__(
        self,
        num_steps: Callable[[], int],
        on_progress: Callable[[TuningProgress], None],
        wish: Callable[[], Wish],
    ) -> None:
        self._num_steps, self._on_progress, self._wish = num_steps, on_progress, wish
        self.is_cancelled = False

    def __call__(self, run: Run) -> None:
        """Report what was logged at this boundary."""
        if run.log.written_at == run.boundaries:
            self._on_progress(
                TuningProgress(
                    run.counters["opt_steps"],
                    self._num_steps(),
                    run.counters["epoch"],
                    run.counters["tokens"],
                    _named(run.log.written),
                )
            )
        wish = self._wish()
        self.is_cancelled |= wish == "cancel"
        run.interrupted |= wish != "go_on"


def _named(metrics: Mapping[str, float]) -> dict[str, float]:
    """Return metrics by the names that OpenAI's API gives them, where it has one."""
    found = {}
    for name, value in metrics.items():
        role, _, rest = name.partition("/")
        if role == "validation":
            found[f"full_valid_{_NAMES.get(rest, rest.removeprefix('epoch_'))}"] = value
        elif role == "train" and not rest.startswith("epoch_"):
            found[f"train_{'mean_' if rest == 'token_accuracy' else ''}{rest}"] = value
    return found


class _JobSession(Session):
    """A session with one more observer, and nothing on the screen."""

    shows = False

    def __init__(self, trainer: Trainer, request: Request, *, watch: Observer) -> None:
        super().__init__(trainer, request)
        self._watch = watch

    def observers(self) -> Sequence[Observer]:
        """Return those of every run, and the job's."""
        return [*super().observers(), self._watch]
