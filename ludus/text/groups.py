"""Groups of agents that share a model: which model they speak by now, and the jobs that tune the next one."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ludus.core import states
from ludus.core.errors import LudusError
from ludus.text.chat import ChatMessage
from ludus.text.jobs import Job, JobSpec, Method

SUFFIX_LENGTH = 64
_AGAIN = "/try-"


class PureTextSharedModelGroup:
    """Agents that speak by one model; a part.

    A trainer calls `create_supervised_fine_tune_job` or `create_dpo_fine_tune_job` of each group with its
    examples. Jobs are created after that, and the group switches to its next model once those of all groups
    have succeeded.
    """

    def __init__(
        self,
        name: str,
        agents: Sequence[str],
        *,
        model: str,
        is_frozen: bool,
        is_from_scratch: bool,
        hyperparameters: Mapping[str, float | int],
        seed: int,
        run_name: str,
    ) -> None:
        self.name, self.agents, self.is_frozen = name, tuple(agents), is_frozen
        self.first_model = self.model = model
        """The models it began with, once pretrained, and speaks by now."""
        self.next_model: str | None = None
        """The model that its job has made, until the group switches to it."""
        self.job_id: str | None = None
        self.iteration = 0
        self.spec: JobSpec | None = None
        """The job to create; it is made again from the rollouts after a kill."""
        self._is_from_scratch = is_from_scratch
        self._hyperparameters = dict(hyperparameters)
        self._seed, self._run_name = seed, run_name

    @property
    def base_model(self) -> str:
        """The model that the next job tunes."""
        return self.first_model if self._is_from_scratch else self.model

    def create_supervised_fine_tune_job(
        self, conversations: Sequence[Sequence[ChatMessage]], **hyperparameters: float | int
    ) -> None:
        """Ask for a job that learns the last message of each conversation."""
        lines = [{"messages": [one._asdict() for one in whole]} for whole in conversations]
        self._ask("supervised", lines, hyperparameters)

    def create_dpo_fine_tune_job(
        self,
        pairs: Sequence[tuple[Sequence[ChatMessage], str, str]],
        **hyperparameters: float | int,
    ) -> None:
        """Ask for a job that learns preferences: each a prompt, the better answer and the worse one."""
        lines = [
            {
                "input": {"messages": [one._asdict() for one in prompt]},
                "preferred_output": [{"role": "assistant", "content": better}],
                "non_preferred_output": [{"role": "assistant", "content": worse}],
            }
            for prompt, better, worse in pairs
        ]
        self._ask("dpo", lines, hyperparameters)

    def _ask(
        self, method: Method, lines: Sequence[object], more: Mapping[str, float | int]
    ) -> None:
        if self.is_frozen:
            raise LudusError(
                f"the group '{self.name}' is frozen, so no job may tune it; leave it out, or set"
                f" 'agents.{self.agents[0]}.frozen' to false"
            )
        data = b"".join(json.dumps(line, ensure_ascii=False).encode() + b"\n" for line in lines)
        where = f"{self._run_name}/{self.iteration}/{self.name}"
        self.spec = JobSpec(
            model=self.base_model,
            method=method,
            lines=data,
            hyperparameters={**self._hyperparameters, **more},
            seed=self._seed,
            suffix=_suffix(f"{self._run_name}-{self.iteration}-{self.name}"),
            scope=where,
        )

    def ask_again(self) -> None:
        """Ask for the same job once more, as one that differs from those that have failed."""
        assert self.spec is not None
        first, mark, tries = self.spec.scope.partition(_AGAIN)
        number = int(tries) + 1 if mark else 2
        self.spec = replace(self.spec, scope=f"{first}{_AGAIN}{number}")

    def note_job(self, job: Job) -> None:
        """Note the job that was created."""
        self.job_id = job.id

    def note_ended(self, job: Job) -> None:
        """Note the model of a job that has succeeded; raise LudusError for one that has not."""
        if job.status != "succeeded" or job.fine_tuned_model is None:
            what = "was cancelled" if job.status == "cancelled" else "failed"
            why = f": {job.error}" if job.error else ""
            raise LudusError(f"the fine-tuning job {job.id} of the group '{self.name}' {what}{why}")
        self.next_model = job.fine_tuned_model

    def switch_to_next_model(self) -> None:
        """Speak by the tuned model from now on, if there is one."""
        self.model, self.next_model = self.next_model or self.model, None
        self.job_id = self.spec = None

    def state_dict(self) -> dict[str, Any]:
        """Return the models and the open job."""
        return {
            "first_model": self.first_model,
            "model": self.model,
            "next_model": self.next_model,
            "job_id": self.job_id,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore them."""
        states.check_keys(state, "first_model", "model", "next_model", "job_id")
        optional = {
            key: None if state[key] is None else states.text(state, key)
            for key in ("next_model", "job_id")
        }
        first = states.text(state, "first_model")
        self.first_model, self.model = first, states.text(state, "model")
        self.next_model, self.job_id = optional["next_model"], optional["job_id"]


def _suffix(text: str) -> str:
    """Return a suffix that every provider takes: 64 letters, digits and hyphens at most."""
    plain = "".join(c if c.isascii() and (c.isalnum() or c == "-") else "-" for c in text)
    return plain[-SUFFIX_LENGTH:].lstrip("-")
