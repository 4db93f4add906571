"""TinkerTraining: a TrainingClient over Tinker's API; its requests are numbered, so none is done twice."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from ludus.core import states
from ludus.text.chat import ChatMessage
from ludus.text.models.tokenizer import ChatTokenizer
from ludus.text.provider import ProviderError
from ludus.text.tinker.api import TinkerApi, datum_json
from ludus.text.training_client import AdamStep, BatchOutput, Loss, TrainingClient, TrainingDatum

_MOST_DATUMS = 1024
"""The datums of one request; the server adds the gradients of several."""
_GONE = 410
_WITHOUT_USE = ("/forward_backward", "/optim_step")
"""Requests whose outcomes a server may forget: what they did stays done."""


class TinkerTraining(TrainingClient):
    """One model of a server of Tinker's API."""

    def __init__(self, api: TinkerApi, tokenizer: ChatTokenizer, model_id: str) -> None:
        self._api, self._tokenizer = api, tokenizer
        self.model_id = model_id
        self._num_requests = 0
        # The number of a request is its place: the next is sent once it is answered.
        self._turn = asyncio.Lock()

    def encode(self, messages: Sequence[ChatMessage]) -> tuple[int, ...]:
        """Return the tokens of a conversation, up to where the model's answer begins."""
        return tuple(self._tokenizer.encode_chat(messages, add_generation_prompt=True))

    def encode_answer(self, text: str) -> tuple[int, ...]:
        """Return the tokens of an answer, with the one that ends it."""
        return (*self._tokenizer.encode(text), self._tokenizer.end_of_message)

    async def forward_backward(
        self,
        datums: Sequence[TrainingDatum],
        loss: Loss,
        *,
        config: Mapping[str, float] | None = None,
    ) -> BatchOutput:
        """Add the gradient of a batch, in several requests if it is large."""
        total = 0.0
        logprobs: list[tuple[float, ...]] = []
        for start in range(0, len(datums), _MOST_DATUMS):
            data = [
                datum_json(one.tokens, one.targets, one.inputs)
                for one in datums[start : start + _MOST_DATUMS]
            ]
            batch: dict[str, Any] = {"data": data, "loss_fn": loss}
            if config:
                batch["loss_fn_config"] = dict(config)
            found = await self._send("/forward_backward", {"forward_backward_input": batch})
            total += float(found.get("metrics", {}).get("loss:sum", 0.0))
            outputs = found.get("loss_fn_outputs", [])
            logprobs += [tuple(one["logprobs"]["data"]) for one in outputs]
        return BatchOutput(total, tuple(logprobs))

    async def optim_step(self, step: AdamStep) -> Mapping[str, float]:
        """Take a step along the gradient since the last one."""
        params = {
            "learning_rate": step.learning_rate,
            "beta1": step.beta1,
            "beta2": step.beta2,
            "eps": step.eps,
            "weight_decay": step.weight_decay,
            "grad_clip_norm": step.max_grad_norm or 0.0,
        }
        found = await self._send("/optim_step", {"type": "optim_step", "adam_params": params})
        return found.get("metrics") or {}

    async def save_weights_for_sampler(self, name: str) -> str:
        """Save the weights under a name, and return the path to sample from."""
        body = {"type": "save_weights_for_sampler", "path": name}
        return str((await self._send("/save_weights_for_sampler", body))["path"])

    async def save_state(self, name: str) -> str:
        """Save weights and optimizer, and return the path to load them from."""
        return str(
            (await self._send("/save_weights", {"type": "save_weights", "path": name}))["path"]
        )

    async def load_state(self, path: str) -> None:
        """Load weights and optimizer that `save_state` saved."""
        await self._send("/load_weights", {"type": "load_weights", "path": path, "optimizer": True})

    async def _send(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        async with self._turn:
            if not self.model_id:
                raise ProviderError(
                    "this client has no model yet; load the state of one, or create one"
                )
            numbered = {**body, "model_id": self.model_id, "seq_id": self._num_requests + 1}
            try:
                found = await self._api.outcome_of(path, numbered)
            except ProviderError as error:
                # A request that the server answered with a failure has used up its number.
                self._num_requests += error.code == "request_failed"
                if error.status != _GONE or path not in _WITHOUT_USE:
                    raise
                # Sent again after a kill in a long stage: it was done, and nobody needs its outcome.
                found = {}
            self._num_requests += 1
            return found

    def state_dict(self) -> dict[str, Any]:
        """Return which model it is, and how many requests it was sent."""
        return {"model_id": self.model_id, "num_requests": self._num_requests}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on with that model after that many requests."""
        states.check_keys(state, "model_id", "num_requests")
        self.model_id = states.text(state, "model_id")
        self._num_requests = states.whole(state, "num_requests")
