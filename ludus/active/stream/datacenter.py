"""The datacenter: it gives edges their model, estimates its state if asked to, and retrains it.

What it must not forget is on the disk before it answers, so one that was killed goes on where it stood.

Shapes: N samples.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from safetensors.torch import save
from torch import Tensor

from ludus.active.drift.estimator import Window
from ludus.active.drift.trigger import Trigger
from ludus.active.stream.config import RetrainingConfig
from ludus.active.stream.wire import Message, WireError
from ludus.core.errors import LudusError, RunError
from ludus.nn.model import Model
from ludus.process.child import Child, ChildDied, ChildFailed
from ludus.seeds import derive, forked
from ludus.store.codec import decode, encode
from ludus.store.local import LocalStorage
from ludus.store.strict_json import dump_json, parse_json
from ludus.store.tensors import read_stored

Reply = tuple[dict[str, Any], Mapping[str, Tensor]]
_STATE = "state.json"
_MAX_STATE = 1 << 24


class Datacenter:
    """Answers the messages of edges; `tend`, called now and then by one thread, does the long work."""

    def __init__(self, config: RetrainingConfig, *, root: str, tell: Callable[[str], None]) -> None:
        self.config, self._tell = config, tell
        self._storage = LocalStorage(Path(root) / config.name)
        self._storage.make_root()
        training = config.training
        self._models = {one.name: one.model for one in training.candidates}
        self._weights = {one.name: one.weights for one in training.candidates}
        if not self._models:
            assert training.model is not None, "a config without candidates has a model"
            self._models, self._weights = {"model": training.model}, {"model": None}
        self._trigger = (
            None
            if config.state_estimation is None
            else Trigger(config.state_estimation, seed=training.seed)
        )
        self._name, self._update = next(iter(self._models)), 0
        self._status, self._problem = "idle", ""
        self._last_window = -1
        self._last_verdict: dict[str, Any] = {"retrain": False}
        self._child: Child | None = None
        self._num_saves = 0
        if self._storage.exists(_STATE):
            self._load()
            tell(f"going on from {self._storage.place}: update {self._update}, {self._status}")
        self.model()

    def model(self) -> Model:
        """Return the model that edges are given now."""
        section, weights = self._models[self._name], self._weights[self._name]
        with forked(derive(self.config.training.seed, f"candidate/{self._name}")):
            model = Model(section, loss=self.config.training.loss)
        if weights is not None:
            model.load_model(weights)
        return model

    def answer(self, message: Message) -> Reply:
        """Return what an edge is told; raise WireError for what no edge would say."""
        answers = {
            "handshake": self._handshake,
            "normal": lambda message: ({"status": self._status}, {}),
            "check_state": self._check_state,
            "reset_state": self._reset_state,
            "prep_retraining": self._prep_retraining,
            "retraining": self._retraining,
        }
        if message.kind not in answers:
            raise WireError(
                f"a message of kind {message.kind!r} is unknown; known: {', '.join(answers)}"
            )
        return answers[message.kind](message)

    def _handshake(self, message: Message) -> Reply:
        host = message.header.get("state_estimation_host")
        if (host == "datacenter") != (self._trigger is not None):
            told = "has none" if self._trigger is None else "has one"
            raise LudusError(
                f"the edge wants its state estimated by the {host}, and the datacenter's config {told} in"
                " 'state_estimation'; make the two files agree"
            )
        return self._updated()

    def _updated(self) -> Reply:
        model = self.model()
        about = {"update": self._update, "name": self._name, "loss": model.loss, "status": "done"}
        weights = {name: one.detach().clone() for name, one in model.state_dict().items()}
        return {**about, "model": self._models[self._name].model_dump(mode="json")}, weights

    def _check_state(self, message: Message) -> Reply:
        number = _whole(message, "window")
        if self._trigger is None:
            raise WireError("an edge asks for a state estimation, and the datacenter does none")
        # An edge that was not answered asks again; a window counts once.
        if number != self._last_window:
            tensors = message.tensors
            if "log_probs" not in tensors:
                raise WireError("a window without predictions came; nothing was measured")
            window = Window(tensors["log_probs"], tensors.get("targets"), tensors.get("features"))
            found = self._trigger.look(window)
            self._last_window = number
            self._last_verdict = {
                "retrain": found.retrain, "reasons": list(found.reasons),
                "metrics": dict(found.metrics), "is_spent": found.is_spent,
            }  # fmt: skip
            self._save()
        return dict(self._last_verdict), {}

    def _reset_state(self, message: Message) -> Reply:
        if self._trigger is not None:
            if message.header.get("is_retrained") is True:
                self._trigger.retrained()
            else:
                self._trigger.reset()
            self._last_window = -1
            self._save()
        return {}, {}

    def _prep_retraining(self, message: Message) -> Reply:
        number = _whole(message, "update")
        if number != self._update + 1 or self._status == "running":
            return {"status": self._status, "update": self._update}, {}
        tensors = message.tensors
        if set(tensors) != {"inputs", "targets"} or len(tensors["inputs"]) != len(
            tensors["targets"]
        ):
            raise WireError("samples came without inputs, or without a target for each")
        self._storage.write(f"samples_{number}.safetensors", save(dict(tensors)))
        self._status, self._problem = "prepared", ""
        self._save()
        return {"status": self._status, "num_samples": len(tensors["inputs"])}, {}

    def _retraining(self, message: Message) -> Reply:
        number = _whole(message, "update")
        if number == self._update:
            return self._updated()
        if number == self._update + 1 and self._status == "prepared":
            self._status = "running"
            self._save()
        return {"status": self._status, "problem": self._problem}, {}

    @property
    def is_busy(self) -> bool:
        """Whether a retraining is under way."""
        return self._status == "running"

    def tend(self) -> None:
        """Begin the retraining that is asked for, and take up what has come of it."""
        if not self.is_busy:
            return
        if self._child is None:
            self._child = Child("ludus.active.stream.retrainer", name="the retraining")
            self._child.send({"do": "retrain", **self._task(self._update + 1)})
            self._tell(f"update {self._update + 1}: retraining")
        if not self._child.wait(0.0):
            return
        try:
            header, _ = self._child.receive()
        except (ChildDied, ChildFailed) as error:
            self._status, self._problem = "failed", str(error).splitlines()[0]
            self._tell(f"update {self._update + 1}: {error}; the model stays as it is")
        else:
            self._update, self._status = self._update + 1, "idle"
            self._name = str(header["name"])
            self._weights[self._name] = self._kept(self._update)
            self._tell(f"update {self._update}: {self._name} is retrained")
        self._child.close()
        self._child = None
        self._save()

    def _task(self, number: int) -> dict[str, Any]:
        candidates = [
            {"name": name, "model": model.model_dump(), "weights": self._weights[name]}
            for name, model in self._models.items()
        ]
        training = self.config.training.replace(**{"settings.display": "none"})
        data = {**training.model_dump(), "candidates": candidates, "model": None}
        return {
            "config": data, "run": f"update_{number}", "root": str(self._storage.path("runs")),
            "samples": str(self._storage.path(f"samples_{number}.safetensors")),
            "kept": self._kept(number),
        }  # fmt: skip

    def _kept(self, number: int) -> str:
        return str(self._storage.path(f"models/update_{number}"))

    def close(self) -> None:
        """End a retraining that is under way; the next datacenter of this name goes on with it."""
        if self._child is not None:
            self._child.kill()

    def _save(self) -> None:
        trigger = None if self._trigger is None else self._trigger.state_dict()
        tree, tensors, _ = encode({"trigger": trigger})
        self._num_saves += 1
        held = f"state_{self._num_saves}.safetensors"
        self._storage.write(held, save({name: one.contiguous() for name, one in tensors.items()}))
        state = {
            "name": self._name, "update": self._update, "status": self._status,
            "problem": self._problem, "last_window": self._last_window,
            "last_verdict": self._last_verdict, "num_saves": self._num_saves, "tree": tree,
            "models": {name: one.model_dump(mode="json") for name, one in self._models.items()},
            "weights": self._weights,
        }  # fmt: skip
        self._storage.write(_STATE, dump_json(state))
        before = f"state_{self._num_saves - 1}.safetensors"
        if self._storage.exists(before):
            self._storage.remove(before)

    def _load(self) -> None:
        place = f"{self._storage.place}/{_STATE}"
        state = parse_json(self._storage.read(_STATE, limit=_MAX_STATE), source=place)
        models = {name: one.model_dump(mode="json") for name, one in self._models.items()}
        if state["models"] != models:
            raise RunError(
                f"{self._storage.place} was begun with other models; give the datacenter another name"
            )
        self._num_saves = state["num_saves"]
        tensors = read_stored(self._storage, f"state_{self._num_saves}.safetensors")
        trigger = decode(state["tree"], tensors, [])["trigger"]
        if self._trigger is not None and trigger is not None:
            self._trigger.load_state_dict(trigger)
        self._name, self._update = state["name"], state["update"]
        self._status, self._problem = state["status"], state["problem"]
        self._last_window, self._last_verdict = state["last_window"], state["last_verdict"]
        self._weights = state["weights"]


def _whole(message: Message, key: str) -> int:
    number = message.header.get(key)
    if not isinstance(number, int) or isinstance(number, bool) or number < 0:
        raise WireError(f"a message {message.kind} has no {key}; it was dropped")
    return number
