"""The datacenter: it sends edges their model, estimates its state if configured, and retrains it.

Its state is on disk before it answers, so a killed datacenter resumes where it was.

Shapes: N samples.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from safetensors.torch import save
from torch import Tensor

from ludus.active.stream.config import RetrainingConfig
from ludus.active.stream.edges import Edges, Watch, word
from ludus.active.stream.retrainer import check_training, refuse_few
from ludus.active.stream.stored_state import StoredState
from ludus.active.stream.wire import Message, WireError
from ludus.core import states
from ludus.core.errors import LudusError, RunError
from ludus.nn.model import Model
from ludus.process.child import Child, ChildDied, ChildFailed
from ludus.seeds import derive, forked
from ludus.store.local import LocalStorage

Reply = tuple[dict[str, Any], Mapping[str, Tensor]]


class Datacenter:
    """Answers the messages of edges; `tend`, called regularly by one thread, does the long work.

    All edges share one model, and its updates are counted. Drift is tracked for each edge separately.
    """

    def __init__(
        self, config: RetrainingConfig, storage: LocalStorage, *, tell: Callable[[str], None]
    ) -> None:
        self.config, self._storage, self._tell = config, storage, tell
        storage.make_root()
        training = config.training
        self._models = {one.name: one.model for one in training.candidates}
        self._begun_with = {one.name: one.weights for one in training.candidates}
        self._retrained: dict[str, int] = {}
        """The update that made the weights, by name of the model."""
        if not self._models:
            assert training.model is not None, "a config without candidates has a model"
            self._models, self._begun_with = {"model": training.model}, {"model": None}
        self._name, self._update = next(iter(self._models)), 0
        self._status, self._problem = "idle", ""
        self._asked_by, self._num_failed = "", 0
        self._edges = Edges(self._watch)
        self._child: Child | None = None
        self._held = StoredState(storage, "datacenter")
        if (state := self._held.read()) is not None:
            self._load(state)
            tell(f"going on from {storage.place}: update {self._update}, {self._status}")
        self.model()

    def model(self) -> Model:
        """Return the current model of the edges."""
        section, weights = self._models[self._name], self._weights(self._name)
        with forked(derive(self.config.training.seed, f"candidate/{self._name}")):
            model = Model(section, loss=self.config.training.loss)
        if weights is not None:
            model.load_model(weights)
        return model

    def check(self, *, num_samples: int | None = None) -> None:
        """Raise ConfigError, before a stream begins, if no retraining could start."""
        check_training(self._task(self._update + 1)["config"], num_samples=num_samples)

    @property
    def failure(self) -> str | None:
        """Why the last retraining failed, if none has ever succeeded."""
        return self._problem if self._status == "failed" and not self._update else None

    def _weights(self, name: str) -> str | None:
        made_by = self._retrained.get(name)
        return self._begun_with[name] if made_by is None else self._kept(made_by)

    def answer(self, message: Message) -> Reply:
        """Return the reply to an edge; raise WireError for an invalid message."""
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
        self._edges.hear(message)
        return answers[message.kind](message)

    def _handshake(self, message: Message) -> Reply:
        host = message.header.get("state_estimation_host")
        if (host == "datacenter") != (self.config.state_estimation is not None):
            setting = "has none" if self.config.state_estimation is None else "has one"
            raise LudusError(
                f"the edge wants its state estimated by the {host}, and the datacenter's config {setting} in"
                " 'state_estimation'; make the two files agree"
            )
        training, header = self.config.training, message.header
        assert training.data is not None, "a datacenter's config has data"
        own = {"seed": training.seed, "data": training.data.model_dump(mode="json")}
        if other := [key for key in own if header.get(key) != own[key]]:
            raise LudusError(
                f"{' and '.join(map(repr, other))} of the edge and of the datacenter's 'training' are not"
                " the same, so what the edge sends could be what the datacenter tests on; make the two"
                " files agree"
            )
        if isinstance(sent := header.get("send_samples"), int):
            refuse_few(training, sent)
        if self._edges.meet(message):
            self._save()
        return self._updated()

    def _watch(self, life: str) -> Watch:
        return Watch(life, self.config.state_estimation, seed=self.config.training.seed)

    def _updated(self) -> Reply:
        model = self.model()
        about = {"update": self._update, "name": self._name, "loss": model.loss, "status": "done"}
        weights = {name: one.detach().clone() for name, one in model.state_dict().items()}
        return {**about, "model": self._models[self._name].model_dump(mode="json")}, weights

    def _check_state(self, message: Message) -> Reply:
        verdict = self._edges.of(message).look(_whole(message, "window"), message.tensors)
        self._save()
        return verdict, {}

    def _reset_state(self, message: Message) -> Reply:
        number, is_retrained = _whole(message, "reset"), message.header.get("is_retrained")
        if not isinstance(is_retrained, bool):
            raise WireError("a message reset_state has no is_retrained; it was dropped")
        self._edges.of(message).reset(number, is_retrained=is_retrained)
        self._save()
        return {}, {}

    def _prep_retraining(self, message: Message) -> Reply:
        number, name = self._next(message), word(message, "edge")
        # The first request is trained for; another edge that asks meanwhile gets the same model.
        is_taken = self._status == "prepared" and self._asked_by != name
        if number <= self._update or self._status == "running" or is_taken:
            return {"status": self._status, "update": self._update}, {}
        tensors = message.tensors
        if set(tensors) != {"inputs", "targets"} or not (
            tensors["inputs"].ndim > 0
            and tensors["targets"].ndim == 1
            and len(tensors["inputs"]) == len(tensors["targets"]) > 0
        ):
            raise WireError("samples came without inputs, or without a target for each")
        if self._status == "failed":
            # A run under the same name would resume with the samples of the failed one.
            self._num_failed += 1
        self._storage.write(self._samples(number), save(dict(tensors)))
        self._status, self._problem, self._asked_by = "prepared", "", name
        self._save()
        return {"status": self._status, "num_samples": len(tensors["inputs"])}, {}

    def _retraining(self, message: Message) -> Reply:
        number = self._next(message)
        if number <= self._update:
            return self._updated()
        if self._status == "prepared":
            self._status = "running"
            self._save()
        return {"status": self._status, "problem": self._problem}, {}

    def _next(self, message: Message) -> int:
        """Return the number of the requested update: the next one, or a finished one."""
        number = _whole(message, "update")
        if number > self._update + 1:
            raise LudusError(
                f"the edge asks for update {number}, and the datacenter is at {self._update}: its folder"
                " was removed, or it is another one; give the edge another name"
            )
        return number

    @property
    def is_busy(self) -> bool:
        """Whether a retraining is running."""
        return self._status == "running"

    def tend(self) -> None:
        """Start the requested retraining, or process its result."""
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
            self._update, self._status, self._num_failed = self._update + 1, "idle", 0
            self._name = str(header["name"])
            self._retrained[self._name] = self._update
            self._tell(f"update {self._update}: {self._name} is retrained")
        self._child.close()
        self._child = None
        self._save()

    def _task(self, number: int) -> dict[str, Any]:
        candidates = [
            {"name": name, "model": model.model_dump(), "weights": self._weights(name)}
            for name, model in self._models.items()
        ]
        training = self.config.training.replace(**{"settings.display": "none"})
        data = {**training.model_dump(), "candidates": candidates, "model": None}
        again = f"_{self._num_failed}" if self._num_failed else ""
        return {
            "config": data, "run": f"update_{number}{again}",
            "root": str(self._storage.path("runs")),
            "samples": str(self._storage.path(self._samples(number))), "kept": self._kept(number),
        }  # fmt: skip

    def _samples(self, number: int) -> str:
        return f"samples_{number}.safetensors"

    def _kept(self, number: int) -> str:
        return str(self._storage.path(f"models/update_{number}"))

    def close(self) -> None:
        """Stop a running retraining; the next datacenter of this name resumes it."""
        if self._child is not None:
            self._child.kill()

    def _save(self) -> None:
        plain = ("name", "update", "status", "problem", "asked_by", "num_failed")
        state = {key: getattr(self, f"_{key}") for key in plain}
        state |= {"models": self._sections(), "retrained": dict(self._retrained)}
        self._held.write({**state, "edges": self._edges.state_dict()})

    def _sections(self) -> dict[str, Any]:
        return {name: one.model_dump(mode="json") for name, one in self._models.items()}

    def _load(self, state: Mapping[str, Any]) -> None:
        if state.get("models") != self._sections():
            raise RunError(
                f"{self._storage.place} was begun with other models; give the datacenter another name"
            )
        with states.fitting("datacenter"):
            edges = states.mapping(state, "edges")
            with states.within("edges"):
                self._edges.load_state_dict(edges)
            self._update = states.whole(state, "update")
            self._num_failed = states.whole(state, "num_failed")
            for key in ("name", "status", "problem", "asked_by"):
                setattr(self, f"_{key}", states.text(state, key))
            self._retrained = states.counts(state, "retrained")


def _whole(message: Message, key: str) -> int:
    number = message.header.get(key)
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < 2**63:
        raise WireError(f"a message {message.kind} has no {key}; it was dropped")
    return number
