"""A provider without networks: its models are tables of how often each answer to a prompt was learned.

It learns the small tasks in milliseconds, keeps models and jobs in a file, and repeats its answers: trainers
can be killed hundreds of times on it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any, Literal

from ludus.config.registry import register
from ludus.seeds import derive
from ludus.store.files import write_durably
from ludus.text.chat import ChatAnswer, ChatChoice, ChatRequest, TokenLogprob
from ludus.text.jobs import Job, JobSpec
from ludus.text.provider import ModelInfo, Provider, ProviderConfig, ProviderError, ProviderServices

ANSWERS = ("accept", "reject", "a", "b", "hm")
Table = dict[str, dict[str, float]]


class TabularConfig(ProviderConfig):
    """Tables in a file."""

    kind: Literal["tabular"]
    """Models that are tables."""


@register("provider", "tabular")
class Tabular(Provider):
    """Answers in proportion to how often they were learned for the same last message."""

    Config = TabularConfig
    is_repeatable = True

    def __init__(self, config: ProviderConfig, services: ProviderServices) -> None:
        super().__init__(config, services)
        self._file: Path | None = None
        self.data: dict[str, Any] = {}
        self.requests: list[ChatRequest] = []

    async def open(self) -> None:
        folder = self.services.directory()
        folder.mkdir(parents=True, exist_ok=True)
        self._file = folder / "tables.json"
        self.data = {"models": {"tiny": {}}, "jobs": {}}
        if self._file.exists():
            self.data = json.loads(self._file.read_text())

    def _save(self) -> None:
        assert self._file is not None
        new = self._file.with_suffix(".new")
        write_durably(new, [json.dumps(self.data, sort_keys=True).encode()])
        new.replace(self._file)

    async def models(self) -> Sequence[ModelInfo]:
        return [ModelInfo(name) for name in self.data["models"]]

    async def chat(self, request: ChatRequest) -> ChatAnswer:
        self.requests.append(request)
        if request.model not in self.data["models"]:
            raise ProviderError(f"no model {request.model}", status=404, code="model_not_found")
        table: Table = self.data["models"][request.model]
        weights = chances(table, request.messages[-1].content)
        choices = []
        for number in range(request.n):
            random = Random(derive(request.seed, "sample", number))
            if request.temperature == 0:
                text = max(ANSWERS, key=weights.__getitem__)
            else:
                text = random.choices(ANSWERS, [weights[one] for one in ANSWERS])[0]
            logprobs = (TokenLogprob(1, -0.5),)
            if len(text) > request.max_tokens:
                cut = text[: request.max_tokens]
                choices.append(ChatChoice(cut, "length", len(cut), logprobs))
            else:
                choices.append(ChatChoice(text, "stop", len(text) + 1, logprobs))
        length = sum(len(one.content) for one in request.messages)
        return ChatAnswer(tuple(choices), length, sum(one.num_tokens for one in choices))

    async def create_job(self, spec: JobSpec) -> Job:
        job_id = f"job-{spec.key[:12]}"
        if job_id in self.data["jobs"]:
            raise AssertionError("the same job was created twice")
        table = json.loads(json.dumps(self.data["models"][spec.model]))
        for line in spec.lines.splitlines():
            learn(table, json.loads(line))
        name = f"{spec.model.partition(':')[0]}:{spec.key[:8]}"
        self.data["models"][name] = table
        self.data["jobs"][job_id] = {"key": spec.key, "model": spec.model, "tuned": name}
        self._save()
        return self._job(job_id)

    def _job(self, job_id: str) -> Job:
        one = self.data["jobs"][job_id]
        return Job(job_id, "succeeded", one["model"], one["key"], one["tuned"], trained_tokens=100)

    async def find_jobs(self, key: str) -> list[Job]:
        return [self._job(name) for name, one in self.data["jobs"].items() if one["key"] == key]

    async def job(self, job_id: str) -> Job:
        return self._job(job_id)

    async def cancel_job(self, job_id: str) -> Job:
        return self._job(job_id)


def chances(table: Table, prompt: str) -> dict[str, float]:
    """Return the weight of each answer."""
    found = dict.fromkeys(ANSWERS, 1.0)
    for answer, count in table.get(prompt, {}).items():
        if answer in found:
            found[answer] = max(found[answer] + count, 0.01)
    return found


def learn(table: Table, line: dict[str, Any]) -> None:
    """Count the answers of one line of a training file."""
    if "messages" in line:
        *_, question, answer = line["messages"]
        _count(table, question["content"], answer["content"], 1.0)
        return
    question = line["input"]["messages"][-1]["content"]
    _count(table, question, line["preferred_output"][0]["content"], 1.0)
    _count(table, question, line["non_preferred_output"][0]["content"], -0.3)


def _count(table: Table, question: str, answer: str, weight: float) -> None:
    row = table.setdefault(question, {})
    row[answer] = row.get(answer, 0.0) + weight
