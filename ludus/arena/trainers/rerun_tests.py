"""The trainer kind `rerun_tests`: tests every model that an earlier run has kept, without training."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, NamedTuple

from torch import Tensor

from ludus.config.base import Positive, TrainerConfig
from ludus.config.registry import register_trainer
from ludus.core import Repeat, Run, Stage, Stateful, states
from ludus.core.abilities import Evaluates, Recalls, find_ability
from ludus.core.errors import CheckpointError, ConfigError, LudusError, StorageError
from ludus.core.trainer import Trainer as AnyTrainer
from ludus.session.build import rebuild_trainer
from ludus.session.resumption import refuse_edited
from ludus.session.trainer import Trainer
from ludus.show.terminal import tell
from ludus.store import checkpoint
from ludus.store.checkpoint_files import numbers
from ludus.store.models import read_model
from ludus.store.storage import Storage


class RerunTestsParameters(TrainerConfig):
    """The earlier run, and which of its models to test."""

    run: str
    """The directory of the earlier run."""
    models: list[str] | None
    """The models to test, such as final or best; null: all of them, in the order of their
    training.
    """
    checkpoints: bool
    """Also test the agents of each checkpoint that still exists."""
    episodes: Positive | None
    """The number of test episodes of each; null: as many as that run's own test has."""
    other_episodes: bool
    """Test in episodes that follow from this file's seed; false: in those of that run's own test."""

    def problems(self) -> Iterator[str]:
        """Yield each key that the others make impossible."""
        if self.models == [] and not self.checkpoints:
            yield "'models' is empty and 'checkpoints' is false, so there is nothing to test; set one"


class KeptModel(NamedTuple):
    """A model to test."""

    name: str
    """Its path in the run: models/final, checkpoints/0000000120."""
    counters: Mapping[str, int]
    """The counters of the run when it was kept."""


class Queue:
    """The models to test, in order; a part, as the earlier run may continue and keep other models
    meanwhile."""

    def __init__(self) -> None:
        self.models: list[KeptModel] = []

    def at(self, place: int) -> KeptModel:
        """Return the model at this index."""
        if place >= len(self.models):
            raise CheckpointError(
                "what was to be tested is not there; resume from a checkpoint that holds the list"
            )
        return self.models[place]

    def state_dict(self) -> dict[str, Any]:
        """Return all of them."""
        return {"models": [[one.name, dict(one.counters)] for one in self.models]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the list."""
        states.check_keys(state, "models")
        found = []
        for row in states.rows(state, "models"):
            if not isinstance(row, list) or len(row) != 2:
                raise states.StateError("models", "is no list of names and counters")
            line = {"name": row[0], "counters": row[1]}
            found.append(KeptModel(states.text(line, "name"), states.counts(line, "counters")))
        self.models = found


@register_trainer("rerun_tests")
class RerunTests(Trainer):
    """Steps through what an earlier run has kept, and only tests.

    train
      list_models
      model x as many as there are
        test

    A record is written for each, under the counters that the earlier run had reached, so that a report
    shows the tests along its training. It works for every kind that `ludus eval` can evaluate.
    """

    Config = RerunTestsParameters
    # It is built from the earlier run's config; tested weights are loaded into its agents and removed
    # again.
    derived: ClassVar[tuple[str, ...]] = ("_tested", "_able")
    config: RerunTestsParameters

    def prepare(self, *, max_steps: int | None) -> None:
        """Build the trainer of the earlier run."""
        super().prepare(max_steps=max_steps)
        try:
            tested, self._storage = rebuild_trainer(self.config.run, [], is_for_weights=True)
        except LudusError as error:
            raise ConfigError(f"'run': {error}") from None
        self._tested: AnyTrainer = tested
        if find_ability(tested, Evaluates) is None:
            raise ConfigError(
                f"'run' is {self.config.run}, of kind '{tested.config.kind}', whose weights alone cannot be"
                " evaluated; name another run"
            )
        saved = checkpoint.read_newest(self._storage, damaged=tell)
        if saved is not None:
            refuse_edited(self._storage, saved, tested.config)
        tested.config = tested.config.replace(settings=self.config.settings)
        tested.prepare(max_steps=None)
        able = find_ability(tested, Evaluates)
        assert able is not None
        self._able: Evaluates = able
        self._queue = Queue()
        self._listed()

    def _listed(self) -> list[KeptModel]:
        """Return the models to test; raise ConfigError where there are none."""
        found = [*_kept(self._storage)]
        if self.config.models is not None:
            found = [self._named(name, found) for name in self.config.models]
        if self.config.checkpoints:
            found += _checkpoints(self._storage)
        if not found:
            raise ConfigError(
                f"'run' is {self.config.run}, which has kept no model yet; let it end, set its"
                " keep_every_iterations, or set 'checkpoints' to true"
            )
        return sorted(found, key=lambda one: (one.counters.get("opt_steps", 0), one.name))

    def _named(self, name: str, found: list[KeptModel]) -> KeptModel:
        models = {one.name: one for one in _kept(self._storage, with_copies=True)}
        if f"models/{name}" not in models:
            there = ", ".join(one.name.removeprefix("models/") for one in found) or "none"
            raise ConfigError(
                f"'models' names {name}, which {self.config.run} has not kept; it has {there}"
            )
        return models[f"models/{name}"]

    def plan(self) -> Repeat:
        """Return a test for each model."""
        test = Stage(name="test", work=self._test)
        return Repeat(
            name="train",
            times=1,
            body=(
                Stage(name="list_models", work=self._list),
                Repeat(
                    name="model",
                    times=lambda run: len(self._queue.models),
                    body=(test,),
                    note="each that is listed",
                ),
            ),
        )

    def _list(self, run: Run) -> None:
        self._queue.models = self._listed()

    def _test(self, run: Run) -> None:
        model = self._queue.at(run.round("model"))
        weights, about = self._read(model)
        if about and (recalls := find_ability(self._tested, Recalls)) is not None:
            recalls.recall(about)
        seed = self.config.seed if self.config.other_episodes else None
        found = self._able.evaluate_weights(weights, episodes=self.config.episodes, seed=seed)
        for name in run.counters:
            run.counters[name] = model.counters.get(name, 0)
        run.log.text("model", model.name)
        run.record({f"test/{name.removeprefix('eval/')}": one for name, one in found.items()})
        run.log.write(run)

    def _read(self, model: KeptModel) -> tuple[Mapping[str, Tensor], Mapping[str, Any]]:
        """Return the weights, and the metadata of a kept model."""
        folder, _, name = model.name.partition("/")
        try:
            if folder == "models":
                return read_model(self._storage, model.name)
            state = checkpoint.read(self._storage, int(name), may_lose_best=True).state
        except (CheckpointError, StorageError) as error:
            raise CheckpointError(f"{model.name} was to be tested: {error}") from None
        return self._able.weights_of(state), {}

    def parts(self) -> Mapping[str, Stateful]:
        """Return the list of models."""
        return {"queue": self._queue}

    def close(self) -> None:
        """Close the trainer of the earlier run."""
        self._tested.close()


def _kept(storage: Storage, *, with_copies: bool = False) -> Iterator[KeptModel]:
    """Yield the models of a run; those that are copies of others only `with_copies`."""
    for name in sorted(storage.names("models")):
        if storage.exists(f"models/{name}/model.json"):
            _, about = read_model(storage, f"models/{name}")
            is_copy = about.get("model", f"models/{name}") != f"models/{name}"
            if with_copies or not is_copy:
                yield KeptModel(
                    f"models/{name}", _counters(about, f"{storage.place}/models/{name}")
                )


def _counters(about: Mapping[str, Any], place: str) -> dict[str, int]:
    """Return the counters of the run; the metadata are not covered by the hash of the weights."""
    try:
        return states.counts(about, "counters") if "counters" in about else {}
    except states.StateError as error:
        raise CheckpointError(
            f"{place}/model.json has changed since it was saved: {error}; restore the file"
        ) from None


def _checkpoints(storage: Storage) -> Iterator[KeptModel]:
    for number in numbers(storage):
        state = checkpoint.read(storage, number, may_lose_best=True).state
        yield KeptModel(f"checkpoints/{number:010d}", dict(state["run"]["counters"]))
