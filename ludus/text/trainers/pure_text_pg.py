"""The trainer kind `pure_text_pg`: policy gradients of tokens, by importance weights or clipped."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from random import Random
from typing import ClassVar

from ludus.config.registry import register_trainer
from ludus.core import Repeat, Run, Stage, Stateful
from ludus.seeds import derive
from ludus.text.chat import ChatMessage
from ludus.text.nested import NestedArrayDict
from ludus.text.policy_gradient.answers import datums
from ludus.text.policy_gradient.config import PolicyGradientHyperParameters
from ludus.text.policy_gradient.training import GroupTraining, Step
from ludus.text.trainer import PureTextRlTrainer
from ludus.text.training_client import TrainingClient, TrainingDatum, supervised_datum


@register_trainer("pure_text_pg")
class PureTextPgTrainer(PureTextRlTrainer):
    """Takes gradient steps on the answers of each iteration, weighted by what they brought.

    The stages are those of PureTextRlTrainer; before them each group gets a model of its own to train, and in
    the place of a job there are gradient steps through the API, each exactly once.
    """

    Config: ClassVar[type[PolicyGradientHyperParameters]] = PolicyGradientHyperParameters
    config: PolicyGradientHyperParameters
    samples_logprobs: ClassVar[bool] = True
    makes_jobs: ClassVar[bool] = False

    def prepare(self, *, max_steps: int | None) -> None:
        """Build also what trains each group."""
        super().prepare(max_steps=max_steps)
        section = self.config.policy_gradient
        self.training = {
            name: GroupTraining(
                group,
                self.connection.provider,
                section,
                seed=self.config.seed,
                journal=self.run.journal,
            )
            for name, group in self.groups.items()
            if not group.is_frozen
        }

    def plan(self) -> Repeat:
        """Return the same plan with a stage before it that creates the models."""
        plan = super().plan()
        create = Stage(name="create_models", work=self._stage_create_models)
        return Repeat(name=plan.name, times=1, body=(create, *plan.body))

    def parts(self) -> Mapping[str, Stateful]:
        """Return also how far each model was trained."""
        more = {f"training_{name}": one for name, one in self.training.items()}
        return {**super().parts(), **more}

    def _stage_create_models(self, run: Run) -> None:
        for training in self.training.values():
            self._do(training.create())

    def _stage_create_fine_tune_jobs(self, rollouts: NestedArrayDict) -> None:
        section = self.config.policy_gradient
        for name, training in self.training.items():
            client = self._do(training.client())
            found = datums(
                rollouts,
                self.handler,
                self.groups[name].agents,
                client.encode,
                baseline=section.baseline,
                normalise=section.normalise,
            )
            if not found:
                self.run.tell(
                    f"iteration {self.groups[name].iteration}: all rewards of the group '{name}' are equal,"
                    " so it learns nothing",
                    event="empty_selection",
                )
                continue
            options = section.loss.options()
            learning = self.config.max_iterations - 1
            factor = section.optimizer.factor(self.run.counters["iteration"], learning)
            order: list[Step] = [
                (section.loss.kind, batch, options, section.optimizer.step(factor))
                for epoch in range(section.num_epochs)
                for batch in self._minibatches(found, name, epoch)
            ]
            self.run.counters["opt_steps"] += self._do(training.steps(order))

    def _create_jobs(self, run: Run, stage: str) -> None:
        """Imitate the demonstrations of a group by gradients: this API has no jobs."""
        for name, training in self.training.items():
            group = self.groups[name]
            if group.spec is None:
                continue
            client = self._do(training.client())
            found = [_imitated(client, line) for line in group.spec.lines.splitlines()]
            hyper = group.spec.hyperparameters
            step = self.config.policy_gradient.optimizer.step(
                float(hyper.get("learning_rate_multiplier", 1.0))
            )
            size = int(hyper.get("batch_size", self.config.policy_gradient.minibatch_size))
            order: list[Step] = [
                ("cross_entropy", batch, {}, step)
                for epoch in range(int(hyper.get("n_epochs", 1)))
                for batch in self._minibatches(found, name, epoch, size)
            ]
            run.counters["opt_steps"] += self._do(training.steps(order))

    def _minibatches(
        self, found: Sequence[TrainingDatum], name: str, epoch: int, size: int | None = None
    ) -> list[list[TrainingDatum]]:
        iteration = self.groups[name].iteration
        seed = derive(self.config.seed, f"text/minibatches/{name}/{iteration}", epoch)
        order = list(found)
        Random(seed).shuffle(order)
        size = size or self.config.policy_gradient.minibatch_size
        return [order[at : at + size] for at in range(0, len(order), size)]


def _imitated(client: TrainingClient, line: bytes) -> TrainingDatum:
    *prompt, answer = [ChatMessage(**one) for one in json.loads(line)["messages"]]
    tokens = client.encode(prompt)
    return supervised_datum(tokens, client.encode_answer(answer.content))
