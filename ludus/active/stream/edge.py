"""The edge: it predicts a stream, detects drift of its model, and loads the datacenter's retrained ones.

It is saved after each check. A killed edge repeats what came after: the random samples are the same, and
requests to the datacenter are idempotent.

Shapes: N latest examples, B of a step, C classes, D features.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from ludus.active.drift.shifts import Simulator, StreamEnded
from ludus.active.stream.config import StreamConfig
from ludus.active.stream.judge import StreamJudge
from ludus.active.stream.link import Link, Requests, Stopped
from ludus.active.stream.predictor import Predictor
from ludus.active.stream.retrainer import training_pool
from ludus.active.stream.stored_state import StoredState
from ludus.active.stream.wire import LinkLost, Message
from ludus.config.registry import find
from ludus.config.sections import kind_of
from ludus.core import states
from ludus.core.errors import LudusError, RunError
from ludus.seeds import generator
from ludus.store.local import LocalStorage
from ludus.store.strict_json import one_line

_POLL_SECONDS = 0.1
_LOG = "stream.jsonl"
# Settings that may change on resume: the length of the stream, and the link to the datacenter.
_MAY_CHANGE = {"version", "kind", "name", "num_steps", "link"}


class Edge:
    """A stream, the model that predicts it, and its link to a datacenter."""

    def __init__(
        self,
        config: StreamConfig,
        link: Link,
        storage: LocalStorage,
        *,
        tell: Callable[[str], None],
    ) -> None:
        self.config, self._link, self._storage, self._tell = config, link, storage, tell
        self._examples = training_pool(config.data, seed=config.seed)
        self._targets_N = self._examples.targets(torch.arange(self._examples.size)).long()
        shift = find("shift", kind_of(config.shift))(config.shift)
        num_classes = int(self._targets_N.max()) + 1
        self.simulator = Simulator(
            self._targets_N, shift, num_classes=num_classes, seed=config.seed
        )
        self._judge = StreamJudge(config.state_estimation, self._ask, seed=config.seed)
        self._predictor = Predictor(config.features_layer, storage)
        self.rows_N = torch.empty(0, dtype=torch.int64)
        """The latest examples, oldest first."""
        self._life = secrets.token_hex(8)
        self._is_asking, self._num_sent = False, 0
        self._failure, self._has_learnt = "", False
        self.is_over = threading.Event()
        """Set to stop at the next step; the edge resumes from its last check."""
        storage.make_root()
        self._held = StoredState(storage, "edge")
        self._load()
        self._requests = Requests(
            link,
            self._introduction(),
            waits=config.wait_for_update,
            is_over=self.is_over,
            tell=tell,
        )
        self._requests.update = self.update

    @property
    def update(self) -> int:
        """The number of the model's last update; -1 before there is a model."""
        return self._predictor.update

    def run(self) -> None:
        """Process the stream, or resume it; the loss of the datacenter does not end it."""
        try:
            self._run()
        except Stopped:
            pass
        finally:
            self._storage.close()
            self._link.close()
        if self.is_over.is_set():
            self._tell(f"ended in order at step {self.simulator.step}; the same command goes on")
        elif self._failure and not self._has_learnt:
            raise LudusError(
                f"no retraining of this stream succeeded; the last one failed: {self._failure}; mend"
                " that, and give the edge and the datacenter other names to start over"
            )

    def _run(self) -> None:
        config = self.config
        if self.update < 0:
            # Without a first model there is nothing to predict with, so the datacenter must answer here.
            try:
                self._take(self._requests.introduce())
            except LinkLost as error:
                message = f"{error}; start the datacenter first, and then the edge"
                raise LudusError(message) from None
            self._save()
        elif self.simulator.step >= config.num_steps:
            self._tell(
                f"all {config.num_steps} steps of {self._storage.place} were done already; raise num_steps"
                " to go on, or give the edge another name to start over"
            )
        while self.simulator.step < config.num_steps:
            if self.is_over.is_set():
                return
            try:
                rows_B = self.simulator.draw(config.samples_per_step)
            except StreamEnded as error:
                self._tell(f"{error}; the stream ends here")
                break
            self.rows_N = torch.cat([self.rows_N, rows_B])[-config.keep_samples :]
            if self.simulator.step % config.check_every_steps == 0:
                self._check(self.simulator.step)
                self._save()
        self._save()
        self._tell(
            f"the end, at step {self.simulator.step} with update {self.update}; each check is a line of"
            f" {self._storage.place}/{_LOG}"
        )
        self._ask("normal", {"step": self.simulator.step, "is_last": True}, waits=False)

    def _introduction(self) -> dict[str, Any]:
        config = self.config
        return {
            "state_estimation_host": config.state_estimation_host, "edge": config.name,
            "life": self._life, "seed": config.seed, "data": config.data.model_dump(mode="json"),
            "send_samples": config.send_samples,
        }  # fmt: skip

    def _check(self, step: int) -> None:
        """Estimate the state, request retraining if needed, and load a finished one."""
        config = self.config
        rows_B = self.rows_N[-config.check_every_steps * config.samples_per_step :]
        window = self._predictor.look(self._examples.inputs(rows_B), self._targets_N[rows_B])
        assert window.targets is not None
        is_right = window.log_probs.argmax(1) == window.targets
        found = self._judge.look(window)
        line = {"step": step, "update": self.update, "accuracy": float(is_right.double().mean())}
        if found.get("is_spent"):
            self._tell(
                f"step {step}: max_consecutive retrainings have not helped; going on as it is"
            )
        is_asked = False
        if found.get("retrain") and not self._is_asking:
            self._tell(f"step {step}: {'; '.join(found.get('reasons', []))}; asking for retraining")
            is_asked = self._is_asking = self._send_samples()
        self._write({**line, **found.get("metrics", {}), "retrain": is_asked})
        if not self._is_asking and not found.get("retrain"):
            self._ask("normal", {"step": step}, waits=False)
        while self._is_asking:
            self._poll()
            if not config.wait_for_update:
                break
            if self._is_asking and self.is_over.wait(_POLL_SECONDS):
                raise Stopped("asked to end")

    def samples(self, number: int) -> Tensor:
        """Return the rows that message `number` sends: a new random sample of the latest."""
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
        status = None if answer is None else answer.header.get("status")
        if status in ("prepared", "running"):
            return
        self._is_asking = False
        if answer is None:
            return
        if status == "done":
            self._take(answer)
            self._has_learnt = True
            self._judge.reset(is_retrained=True)
        elif status == "failed":
            self._failure = str(answer.header.get("problem"))
            self._tell(f"the retraining failed: {self._failure}; going on as it is")
            self._judge.reset(is_retrained=False)
        else:
            self._tell(
                f"the datacenter has forgotten the retraining, it is {status!r}; asking again at the"
                " next check that asks for one"
            )

    def _take(self, answer: Message) -> None:
        name = self._predictor.take(answer)
        self._requests.update = self.update
        self._tell(f"the model is {name}, update {self.update}")

    def _ask(
        self, kind: str, header: Mapping[str, Any], tensors: Mapping[str, Tensor] | None = None,
        *, waits: bool | None = None,
    ) -> Message | None:  # fmt: skip
        try:
            return self._requests.ask(kind, header, tensors, waits=waits)
        except (Stopped, LinkLost):
            raise
        except LudusError as error:
            raise LudusError(f"the stream ends at step {self.simulator.step}: {error}") from None

    def _write(self, line: Mapping[str, Any]) -> None:
        self._storage.append(_LOG).write(one_line(line).encode() + b"\n")

    def _save(self) -> None:
        log = self._storage.append(_LOG)
        self._storage.sync_appends()
        self._held.write(
            {
                "config": self._fixed(),
                "life": self._life,
                "log": log.offset,
                "update": self.update,
                "is_asking": self._is_asking,
                "num_sent": self._num_sent,
                "failure": self._failure,
                "has_learnt": self._has_learnt,
                "rows": self.rows_N,
                "simulator": self.simulator.state_dict(),
                "judge": self._judge.state_dict(),
            }
        )
        self._predictor.forget_others()

    def _fixed(self) -> dict[str, Any]:
        return self.config.model_dump(mode="json", exclude=_MAY_CHANGE)

    def _load(self) -> None:
        """Resume from the last check, if there was one."""
        state = self._held.read()
        if state is None:
            self._storage.cut_back({}, keep=())
            return
        begun, now = states.mapping(state, "config"), self._fixed()
        if other := [key for key in now if begun.get(key) != now[key]]:
            raise RunError(
                f"{self._storage.place} was begun with another {', '.join(map(repr, other))}; give the"
                " edge another name to start over"
            )
        with states.fitting("edge"):
            self._life = states.text(state, "life")
            self._is_asking = states.flag(state, "is_asking")
            update = states.whole(state, "update")
            self._num_sent = states.whole(state, "num_sent")
            if "failure" in state:  # an earlier ludus does not say it
                self._failure = states.text(state, "failure")
                self._has_learnt = states.flag(state, "has_learnt")
            self.rows_N = states.shaped(state, "rows", self.rows_N, (None,))
            self.simulator.load_state_dict(states.mapping(state, "simulator"))
            judge = states.mapping(state, "judge")
            with states.within("judge"):
                self._judge.load_state_dict(judge)
        self._predictor.load(update)
        self._storage.cut_back({_LOG: states.whole(state, "log")}, keep=())
        self._tell(f"going on from {self._storage.place}: step {self.simulator.step}")
