"""The provider of tables, trained by gradients: a step adds to how often an answer was learned."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from ludus.config.registry import register
from ludus.text.chat import ChatAnswer, ChatChoice, ChatMessage, ChatRequest, TokenLogprob
from ludus.text.provider import ProviderConfig
from ludus.text.training_client import AdamStep, BatchOutput, Loss, TrainingClient, TrainingDatum
from tests.text.tabular import Tabular, TabularConfig

END = 256
SCALE = 2000.0
"""What a learning rate of 1 and an advantage of 1 add to a count."""


class TabularTrainingConfig(ProviderConfig):
    """Tables in a file."""

    kind: Literal["tabular_training"]
    """Models that are tables, trained by gradients."""


@register("provider", "tabular_training")
class TabularTraining(Tabular):
    """Each request of a training has a number, and is done once."""

    Config: Any = TabularTrainingConfig

    def __init__(self, config: Any, services: Any) -> None:
        super().__init__(TabularConfig(kind="tabular"), services)
        self.config = config
        self.created: list[dict[str, Any]] = []
        self.losses: list[tuple[Loss, int, dict[str, float]]] = []
        self.steps: list[AdamStep] = []

    async def open(self) -> None:
        await super().open()
        self.data.setdefault("trainings", {})

    async def chat(self, request: ChatRequest) -> ChatAnswer:
        """Answer with the tokens of each sample: its bytes, and the end."""
        found = await super().chat(request)
        choices = tuple(
            ChatChoice(
                one.text,
                one.finish_reason,
                one.num_tokens,
                tuple(TokenLogprob(token, -0.5) for token in (*one.text.encode(), END)),
            )
            for one in found.choices
        )
        return ChatAnswer(choices, found.prompt_tokens, found.completion_tokens)

    async def create_training(
        self, base_model: str, *, lora_rank: int | None, seed: int
    ) -> TrainingClient:
        name = f"training-{len(self.data['trainings'])}"
        self.created.append({"base_model": base_model, "lora_rank": lora_rank, "seed": seed})
        table = json.loads(json.dumps(self.data["models"][base_model]))
        self.data["trainings"][name] = {"table": table, "gradient": [], "done": 0}
        self._save()
        return TabularClient(self, name)

    async def reopen_training(self, base_model: str) -> TrainingClient:
        return TabularClient(self, "")

    def once(self, name: str, number: int) -> dict[str, Any] | None:
        """Return a training whose next request has this number; None if it is done already."""
        own: dict[str, Any] = self.data["trainings"][name]
        assert number <= own["done"], "a request is missing"
        if number < own["done"]:
            return None
        own["done"] += 1
        return own


class TabularClient(TrainingClient):
    """Counts its requests."""

    def __init__(self, provider: TabularTraining, name: str) -> None:
        self._provider, self._name, self._number = provider, name, 0

    def encode(self, messages: Sequence[ChatMessage]) -> tuple[int, ...]:
        return (END + 1, *messages[-1].content.encode())

    def encode_answer(self, text: str) -> tuple[int, ...]:
        return (*text.encode(), END)

    def _next(self) -> dict[str, Any] | None:
        self._number += 1
        return self._provider.once(self._name, self._number - 1)

    async def forward_backward(
        self,
        datums: Sequence[TrainingDatum],
        loss: Loss,
        *,
        config: Mapping[str, float] | None = None,
    ) -> BatchOutput:
        self._provider.losses.append((loss, len(datums), dict(config or {})))
        if (own := self._next()) is not None:
            own["gradient"] += [_row(one) for one in datums]
            self._provider._save()
        return BatchOutput(0.0, ())

    async def optim_step(self, step: AdamStep) -> Mapping[str, float]:
        self._provider.steps.append(step)
        if (own := self._next()) is not None:
            for prompt, answer, weight in own["gradient"]:
                row = own["table"].setdefault(prompt, {})
                row[answer] = row.get(answer, 0.0) + SCALE * step.learning_rate * weight
            own["gradient"] = []
            self._provider._save()
        return {}

    async def save_weights_for_sampler(self, name: str) -> str:
        found = f"{self._name}/{name}"
        if (own := self._next()) is not None:
            self._provider.data["models"][found] = json.loads(json.dumps(own["table"]))
            self._provider._save()
        return found

    async def save_state(self, name: str) -> str:
        raise AssertionError("no trainer asks for it")

    def state_dict(self) -> dict[str, Any]:
        return {"name": self._name, "number": self._number}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._name, self._number = state["name"], state["number"]


def _row(datum: TrainingDatum) -> tuple[str, str, float]:
    """Return the prompt, the answer and the weight of a datum."""
    weights = datum.inputs["advantages" if "advantages" in datum.inputs else "weights"]
    length = next(place for place, weight in enumerate(weights) if weight) + 1
    answer = bytes(one for one in datum.targets[length - 1 :] if one < END)
    prompt = bytes(one for one in datum.tokens[:length] if one < END)
    return prompt.decode(), answer.decode(), weights[length - 1]
