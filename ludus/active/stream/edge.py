"""The edge: it predicts a stream, watches the state of its model, and takes up what a datacenter retrains.

Shapes: N latest examples, B of a step, C classes, D features.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ludus.active.drift.estimator import Window
from ludus.active.drift.simulator import Simulator, StreamEnded
from ludus.active.drift.trigger import Trigger
from ludus.active.examples import PoolExamples
from ludus.active.models.features import Features
from ludus.active.scoring import log_probabilities
from ludus.active.stream.config import StreamConfig
from ludus.active.stream.link import Link
from ludus.active.stream.wire import LinkLost, Message, WireError
from ludus.config.base import ModelSection, StrictConfig
from ludus.config.registry import find
from ludus.config.sections import validate
from ludus.core.errors import LudusError
from ludus.nn.model import Model
from ludus.seeds import generator

_POLL_SECONDS = 0.1
_LOG = "stream.jsonl"


class Edge:
    """A stream, the model that predicts it, and its link to a datacenter."""

    def __init__(
        self, config: StreamConfig, link: Link, *, root: str, tell: Callable[[str], None]
    ) -> None:
        self.config, self._link, self._tell = config, link, tell
        dataset = find("dataset", config.data.kind)(config.data)  # type: ignore[attr-defined]
        train = dataset.load(generator(config.seed, "split")).train
        self._examples = PoolExamples(
            train, device=torch.device("cpu"), workers=0, seed=config.seed
        )
        self._targets_N = self._examples.targets(torch.arange(self._examples.size)).long()
        shift = find("shift", config.shift.kind)(config.shift)  # type: ignore[attr-defined]
        num_classes = int(self._targets_N.max()) + 1
        self.simulator = Simulator(
            self._targets_N, shift, num_classes=num_classes, seed=config.seed
        )
        estimation = config.state_estimation
        self._trigger = None if estimation is None else Trigger(estimation, seed=config.seed)
        self._features = Features(config.features_layer)
        self.rows_N = torch.empty(0, dtype=torch.int64)
        """The latest examples, the oldest first."""
        self.update = -1
        """The number of the model's last update; -1 before there is a model."""
        self._model: Model | None = None
        self._is_asking, self._num_sent, self._num_windows = False, 0, 0
        self._is_lost = False
        folder = Path(root) / config.name
        folder.mkdir(parents=True, exist_ok=True)
        self._log = folder / _LOG
        self._log.write_text("")

    def run(self) -> None:
        """Go through the stream; a datacenter that is gone is no end of it."""
        config = self.config
        # Without a first model there is nothing to predict with, so this one time it must answer.
        self._take(self._link.ask("handshake", self._introduction(), {}))
        for step in range(1, config.num_steps + 1):
            try:
                rows_B = self.simulator.draw(config.samples_per_step)
            except StreamEnded as error:
                self._tell(f"{error}; the stream ends here")
                break
            self.rows_N = torch.cat([self.rows_N, rows_B])[-config.keep_samples :]
            if step % config.check_every_steps == 0:
                self._check(step)
        self._ask("normal", {"step": self.simulator.step, "is_last": True})
        self._link.close()

    def _introduction(self) -> dict[str, Any]:
        return {"state_estimation_host": self.config.state_estimation_host}

    def _check(self, step: int) -> None:
        """Estimate the state, ask for retraining where it is needed, and take up what is done."""
        config = self.config
        window = self._look(self.rows_N[-config.check_every_steps * config.samples_per_step :])
        assert window.targets is not None
        is_right = window.log_probs.argmax(1) == window.targets
        found = self._verdict(window)
        self._num_windows += 1
        line = {"step": step, "update": self.update, "accuracy": float(is_right.double().mean())}
        self._write({**line, **found.get("metrics", {}), "retrain": found.get("retrain", False)})
        if found.get("is_spent"):
            self._tell(
                f"step {step}: max_consecutive retrainings have not helped; going on as it is"
            )
        if found.get("retrain") and not self._is_asking:
            self._tell(f"step {step}: {'; '.join(found.get('reasons', []))}; asking for retraining")
            self._is_asking = self._send_samples()
        if not self._is_asking and not found.get("retrain"):
            self._ask("normal", {"step": step})
        while self._is_asking:
            self._poll()
            if not config.wait_for_update:
                break
            time.sleep(_POLL_SECONDS)

    def _verdict(self, window: Window) -> Mapping[str, Any]:
        if self._trigger is None:
            tensors = {"log_probs": window.log_probs}
            tensors |= {} if window.targets is None else {"targets": window.targets}
            tensors |= {} if window.features is None else {"features": window.features}
            answer = self._ask("check_state", {"window": self._num_windows}, tensors)
            return {} if answer is None else answer.header
        found = self._trigger.look(window)
        return {
            "retrain": found.retrain, "reasons": list(found.reasons), "is_spent": found.is_spent,
            "metrics": dict(found.metrics),
        }  # fmt: skip

    def _look(self, rows_B: Tensor) -> Window:
        model = self._model
        assert model is not None
        with torch.no_grad(), model.evaluating():
            outputs, features = self._features(model, self._examples.inputs(rows_B))
        log_probs_BC = log_probabilities(outputs, model.loss)
        return Window(log_probs_BC, self._targets_N[rows_B], features.flatten(1).float())

    def samples(self, number: int) -> Tensor:
        """Return the rows that message `number` sends: some of the latest, drawn anew for each."""
        draws = generator(self.config.seed, "stream/samples", number)
        order = torch.randperm(len(self.rows_N), generator=draws)
        return self.rows_N[order[: self.config.send_samples]]

    def _send_samples(self) -> bool:
        rows_B = self.samples(self._num_sent)
        self._num_sent += 1
        tensors = {"inputs": self._examples.inputs(rows_B), "targets": self._targets_N[rows_B]}
        asked = {"update": self.update + 1}
        return self._ask("prep_retraining", asked, tensors) is not None

    def _poll(self) -> None:
        answer = self._ask("retraining", {"update": self.update + 1})
        if answer is None:
            self._is_asking = False
        elif answer.header.get("status") == "done":
            self._is_asking = False
            self._take(answer)
            self._reset()
        elif answer.header.get("status") == "failed":
            self._is_asking = False
            self._tell(f"the retraining failed: {answer.header.get('problem')}; going on as it is")
            self._reset()

    def _reset(self) -> None:
        if self._trigger is not None:
            self._trigger.retrained()
        self._ask("reset_state", {"is_retrained": True})

    def _take(self, answer: Message) -> None:
        """Let the model that came be the one that predicts, once it is known to be one."""
        header = answer.header
        section = validate(_Given, {"model": header.get("model")}, source="the datacenter's model")
        loss, update = header.get("loss"), header.get("update")
        if loss not in ("cross_entropy", "binary_cross_entropy") or not isinstance(update, int):
            raise WireError("the datacenter sent a model that tells no classes apart")
        model = Model(section.model, loss=loss)
        model.load_state_dict(answer.tensors)
        self._features.check(model)
        self._model, self.update = model, update
        self._tell(f"the model is {header.get('name')}, update {update}")

    def _ask(
        self, kind: str, header: Mapping[str, Any], tensors: Mapping[str, Tensor] | None = None
    ) -> Message | None:
        """Return the answer, or None where the datacenter is gone, which is told once."""
        try:
            if self._is_lost:
                self._link.ask("handshake", self._introduction(), {})
                self._is_lost = False
                self._tell("the datacenter is back")
            return self._link.ask(kind, header, tensors or {})
        except LinkLost as error:
            if not self._is_lost:
                self._tell(f"the datacenter is gone: {error}; going on with the model there is")
            self._is_lost = True
            return None
        except LudusError as error:
            raise LudusError(f"the stream ends at step {self.simulator.step}: {error}") from None

    def _write(self, line: Mapping[str, Any]) -> None:
        with self._log.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


class _Given(StrictConfig):
    model: ModelSection
    """The network that a datacenter gives."""
