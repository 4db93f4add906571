"""The trainer kind `text_tuning`: fine-tune a language model on the examples of a file."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

from torch import Tensor

from ludus.config.registry import register_trainer
from ludus.core import Every, Observer, Repeat, Run, Stage, Stateful
from ludus.core.abilities import Supplied
from ludus.core.object_walker import digest_of
from ludus.core.services import Weights
from ludus.fit.build import make_update
from ludus.fit.length import lengthened
from ludus.fit.loop import Fit
from ludus.fit.preflight import refuse_episodes
from ludus.fit.rate_control import PART, RateControl
from ludus.fit.watchers import make_judge
from ludus.judge.divergence import DivergenceGuard, WatchDivergence
from ludus.judge.judge import JudgeLog
from ludus.judge.milestones import Milestones
from ludus.nn.base_weights import base_digest
from ludus.nn.swapped_weights import swapped_weights
from ludus.session.begun import Begun, as_begun, engine_options, has_begun
from ludus.session.device import resolve_device
from ludus.session.logger import WriteLog
from ludus.session.trainer import Trainer
from ludus.store.storage import Storage
from ludus.text.models.language_model import write_files
from ludus.text.tuning.batches import TokenBatches
from ludus.text.tuning.config import TUNED, TextTuningConfig
from ludus.text.tuning.evaluator import TuningEvaluator
from ludus.text.tuning.loading import KeptLanguageModel, kept_model, starting_model, weights_in
from ludus.text.tuning.methods import DpoMethod
from ludus.text.tuning.reference import Reference
from ludus.text.tuning.sources import load_tables
from ludus.text.tuning.tokens import TokenBatch
from ludus.text.tuning.tuned_model import TunedModel

GUARD = DivergenceGuard(remedy="lower the learning rate, or look for bad examples")


@register_trainer("text_tuning")
class TextTuningTrainer(Trainer):
    """A language model learns the answers of a file of examples, or to prefer some answers to others.

    train
      compute_reference (dpo)    the log-probabilities of all answers under the starting weights
      epoch x max_epochs
        step x batches
          train_step
        sum_up
        validate (every evaluate_every_epochs epochs, and after the last)
      save_tuned_model           the best model if one was kept, else the last: `tuned/` in the run

    `tuned/` is a directory that `load_model` and transformers read; of a LoRA run, that of the adapter.
    """

    Config = TextTuningConfig
    # The tokens and evaluators are recomputed; the current batch is gone at a boundary.
    derived: ClassVar[tuple[str, ...]] = ("tables", "evaluators", "language_model")
    config: TextTuningConfig
    model: TunedModel

    def prepare(self, *, max_steps: int | None) -> None:
        """Load the model and the examples, and build the update and the observers."""
        self.device = resolve_device(self.config.settings.device)
        self.language_model = starting_model(self.config, self.device)
        self.tables = load_tables(self.config, self.language_model)
        self.train_data = TokenBatches(
            self.tables["train"],
            batch_size=self.config.batch_size,
            seed=self.config.seed,
            device=self.device,
        )
        begun, length = Begun(self.run.files), self.train_data.length()
        # The keys of fitting that are fixed here are properties.
        given: Any = self.config
        given, self.notes = lengthened(given, max_steps, length, begun)
        given = self.config = config = as_begun(given, begun)
        if not has_begun(self.run.files):
            config.refuse_unreached(length)
        self.model = TunedModel(self.language_model, config.method)
        self._starting_digest = self._digest_of_start()
        self.model.train()
        self.evaluators = {role: self._evaluator(role) for role in self.tables}
        self.reference = Reference(self.model, self.evaluators)
        self.rate_control = RateControl(given, None)
        self.num_train_steps = config.count_steps(length)
        self.fitting = self._make_fitting()
        self.update = make_update(
            given,
            self.model,
            self.train_data,
            schedule=self.fitting.schedule,
            run_steps=self.num_train_steps,
            **engine_options(self.run),
        ).update
        # That the update is called eagerly is always so here.
        self.update.engine_notes = []
        self.flat, self.optimizer = self.update.flat, self.update.optimizer
        self.write_log = WriteLog(
            self.run.log, [Every(config.log_every_opt_steps, "opt_steps"), Every(1, "epoch")]
        )
        self.judge = make_judge(given)
        self.milestones = Milestones(
            Every(config.keep_every_epochs, "epoch"),
            name=lambda run: f"epoch_{run.counters['epoch']}",
            save=self._keep_milestone,
        )

    def _evaluator(self, role: str) -> TuningEvaluator:
        return TuningEvaluator(
            self.tables[role],
            batch_size=max(self.config.batch_size, 64),
            precision=self.config.precision,
            device=self.device,
            is_interrupted=lambda: self.run.interrupted,
        )

    def _make_fitting(self) -> Fit:
        config = self.config
        return Fit(
            self.train_data,
            train_step=self.train_step,
            schedule=lambda length: self.rate_control.schedule(config.count_steps(length)),
            max_epochs=config.max_epochs,
            max_steps=config.max_opt_steps,
            then=(Stage(name="sum_up", work=lambda run: self.update.close_epoch()),),
            validate=self._validate,
            evaluate_every=config.evaluate_every_epochs,
        )

    def plan(self) -> Repeat:
        """Return the reference if there is one, epochs of steps, and the saving of the tuned model."""
        first = Stage(name="compute_reference", work=lambda run: self.reference.compute())
        last = Stage(name="save_tuned_model", work=self._save_tuned_model, always=True)
        before = (first,) if self._is_dpo else ()
        return Repeat(name="train", times=1, body=(*before, self.fitting.loop(), last))

    @property
    def _is_dpo(self) -> bool:
        return isinstance(self.config.method, DpoMethod)

    def train_step(self, batch: TokenBatch, batch_idx: int) -> Mapping[str, Any]:
        """Learn from one batch and return its metrics; override it to learn in another way."""
        counters, rate = self.run.counters, self.rate_control.override
        if rate is None:
            rate = self.fitting.learning_rate(self.run)
        is_last = self.train_data.has_ended()
        metrics = self.update.step(batch, batch_idx, learning_rate=rate, is_last=is_last)
        counters["examples"] += self.update.num_in_batch
        counters["tokens"] += self.train_data.num_tokens
        if self.update.num_gathered == 0:
            counters["opt_steps"] += 1
            metrics["train/learning_rate"] = rate
        return metrics

    def _validate(self, run: Run) -> Mapping[str, float]:
        return self._measured("validation")

    def _measured(self, role: str) -> dict[str, float]:
        """Return the metrics of the current weights on the examples of this role."""
        reference = self.reference.log_probs.get(role)
        found = self.evaluators[role].evaluate(self.model, reference)
        return {f"{role}/epoch_{name}": value for name, value in found.items()}

    def _save_tuned_model(self, run: Run) -> None:
        """Write the best model, if one was kept, else the current one, as a directory of its own."""
        if not isinstance(run.files, Storage):
            return
        best = self.best()
        with contextlib.ExitStack() as stack:
            if best is not None:
                weights = run.recall_model(best["model"])
                stack.enter_context(swapped_weights(self.model, weights))
            fill = partial(write_files, self.language_model)
            run.files.commit(TUNED, fill, step=lambda point: None)

    def _keep_milestone(self, name: str, note: Mapping[str, Any]) -> None:
        log = self.run.log
        written = log.written if log.written_at == self.run.boundaries else {}
        metrics = {key: value for key, value in written.items() if math.isfinite(value)}
        self._keep(name, self.weights(), {**note, "metrics": metrics})

    def _keep(self, name: str, weights: Weights, note: Mapping[str, Any]) -> None:
        self.run.keep_model(name, weights, {"architecture": "language_model", **note})

    def weights(self) -> dict[str, Tensor]:
        """Return a CPU copy of the weights."""
        state = self.model.state_dict()
        return {name: tensor.detach().to("cpu", copy=True) for name, tensor in state.items()}

    def parts(self) -> Mapping[str, Stateful]:
        """Return everything that is saved and restored."""
        return {
            "model": self.model,
            "optimizer": self.optimizer,
            "update": self.update,
            "train_data": self.train_data,
            "write_log": self.write_log,
            **({"reference": self.reference} if self._is_dpo else {}),
            **({"judge": self.judge} if self.judge.scores else {}),
            "milestones": self.milestones,
            PART: self.rate_control,
        }

    def observers(self) -> Sequence[Observer]:
        """Return the log first, then the observers that read its metrics."""
        log = self.run.log
        guard = WatchDivergence(GUARD, log, check=self.update.check)
        judge = JudgeLog(self.judge, log, lambda score: self.weights(), keep=self._keep)
        judged: list[Observer] = [judge] if self.judge.scores else []
        judged += [self.rate_control.watching(log)] if self.rate_control.plateau else []
        return [self.write_log, guard, *judged, self.milestones]

    def weights_of(self, state: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the weights in a saved state."""
        return weights_in(state)

    def evaluate_weights(
        self, weights: Mapping[str, Any], *, episodes: int | None = None, seed: int | None = None
    ) -> Mapping[str, float]:
        """Return the metrics of these weights on the validation examples, or else on those of training.

        The names of the metrics begin with validation or with train.
        """
        refuse_episodes(episodes, seed)
        if self._is_dpo:
            # The model still has its starting weights.
            self.reference.compute()
        role = "validation" if "validation" in self.evaluators else "train"
        with swapped_weights(self.model, weights):
            return self._measured(role)

    def kept(self, given: Supplied) -> KeptLanguageModel:
        """Return the language model of a run, rebuilt without its examples."""
        return kept_model(self.config, given)

    def data_facts(self) -> Mapping[str, str]:
        """Return the fingerprints of the examples and of the model that the run started from."""
        names = {"train": "training", "validation": "validation"}
        facts = {names[role]: table.digest() for role, table in self.tables.items()}
        return {**facts, "the starting model": self._starting_digest}

    def _digest_of_start(self) -> str:
        base = base_digest(self.model.module)
        return digest_of(self.model.state_dict()) if base is None else base
