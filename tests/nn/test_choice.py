"""One place decides which engine executes an update, and says why where it is not the one one would like."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import ludus
from ludus.core.errors import ConfigError, LudusError
from ludus.nn.engines import compiled
from ludus.nn.engines.choice import ENGINES, Chosen, EngineKey, Subject, choose_engine
from ludus.nn.engines.compiled import CompiledMethod
from ludus.nn.engines.gate import is_plain
from ludus.nn.engines.tape import Taped

CPU, CUDA, MPS = (torch.device(name) for name in ("cpu", "cuda", "mps"))
IS_FOR = "is for cpu, and the device is"


class Stranger(nn.Linear):
    """From outside."""


class Vouched(nn.Linear):
    """From outside, and the same each time, so it says."""

    is_repeatable = True


class Fickle(Vouched):
    """Says so too, but branches on a number."""

    is_repeatable = True

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) if x.sum() > 0 else x


class Owner:
    """Asks a network."""

    is_repeatable = True

    def __init__(self, network: nn.Module) -> None:
        self.network = network

    def update(self, x: Tensor) -> Any:
        return self.network(x)


def subject(module: nn.Module | None = None, device: torch.device = CPU) -> Subject:
    network = module or nn.Linear(2, 2)

    owner = Owner(network)
    return Subject(owner.update, owner, [network], device, lambda: [torch.zeros(1, 2)])


def choose(wanted: EngineKey, *given: Any, **options: Any) -> Chosen:
    return choose_engine(wanted, subject(*given), **{"is_long": False, **options})


@pytest.mark.parametrize(
    ("device", "is_long", "engine"),
    [
        (CPU, False, "tape"),
        (CPU, True, "compiled"),
        (CUDA, False, "graph"),
        (CUDA, True, "graph"),
    ],
)
def test_auto_is_by_device_and_length(device: torch.device, is_long: bool, engine: str) -> None:
    chosen = choose("auto", None, device, is_long=is_long)
    assert (chosen.engine, chosen.used, chosen.notes) == (engine, engine, [])


def test_auto_on_a_device_without_a_tape_or_graphs_is_eager_and_says_why() -> None:
    chosen = choose("auto", None, MPS)
    assert (chosen.engine, chosen.used) == ("eager", "eager")
    assert chosen.notes == [f"the update is not taped: the engine 'tape' {IS_FOR} mps"]


@pytest.mark.parametrize("device", [CPU, CUDA])
def test_auto_calls_what_is_not_known_eagerly_and_says_why_once(device: torch.device) -> None:
    chosen = choose("auto", Stranger(2, 2), device, is_long=True)
    both = "compiled nor taped" if device == CPU else "captured as a CUDA graph nor compiled"
    assert chosen.engine == "eager"
    assert len(chosen.notes) == 1
    assert chosen.notes[0].startswith(
        f"the update is neither {both}: Stranger is neither torch's nor ludus's"
    )


@pytest.mark.parametrize(
    ("module", "device", "why"),
    [(None, CUDA, f"the engine 'tape' {IS_FOR} cuda"), (Stranger(2, 2), CPU, "Stranger is nei")],
)
def test_a_tape_that_cannot_be_is_left_out_and_told_and_stays_in_the_config(
    module: nn.Module | None, device: torch.device, why: str
) -> None:
    """The numbers are the same without it, and a resume elsewhere finds the same config."""
    chosen = choose("tape", module, device)
    assert (chosen.engine, chosen.used) == ("tape", "eager")
    assert chosen.notes[0].startswith(f"the update is not taped: {why}")


@pytest.mark.parametrize(
    ("wanted", "module", "device", "why"),
    [
        ("graph", None, CPU, "the engine 'graph' is for cuda, and the device is cpu"),
        ("graph", Stranger(2, 2), CUDA, "Stranger is neither torch's"),
        ("graph", Fickle(2, 2), CUDA, "torch's compiler cannot take the update whole"),
        ("compiled", Stranger(2, 2), CPU, "Stranger is neither torch's"),
        ("compiled", Fickle(2, 2), CPU, "torch's compiler cannot take the update whole"),
    ],
)
def test_graph_and_compiled_by_name_are_refused_with_a_remedy_where_they_cannot_be(
    wanted: EngineKey, module: nn.Module | None, device: torch.device, why: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        choose(wanted, module, device)
    assert str(caught.value).startswith(f"'engine' is {wanted}, but {why}")
    assert str(caught.value).endswith("; set engine to auto")


def test_a_run_that_began_on_cuda_goes_on_elsewhere_without_its_graph() -> None:
    """Else it could not be resumed there: a config may not change."""
    chosen = choose("graph", None, CPU, has_begun=True)
    assert (chosen.engine, chosen.used) == ("graph", "tape")
    assert chosen.notes[0].startswith("the update is not captured as a CUDA graph: the engine")
    with pytest.raises(ConfigError, match="'engine' is graph, but Stranger"):
        choose("graph", Stranger(2, 2), CUDA, has_begun=True)


def test_without_a_compiler_compiled_is_refused_and_auto_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(compiled, "find_cpp", lambda: None)
    with pytest.raises(ConfigError, match=r"torch's compiler needs g\+\+.*set engine to auto"):
        choose("compiled")
    chosen = choose("auto", is_long=True)
    assert chosen.engine == "tape"
    assert chosen.notes[0].startswith("the update is not compiled: torch's compiler needs g++")


@pytest.mark.parametrize(("wanted", "kind"), [("tape", Taped), ("compiled", CompiledMethod)])
def test_the_engine_named_is_the_one_that_executes(wanted: EngineKey, kind: type) -> None:
    own = subject()
    executed: Any = choose_engine(wanted, own, is_long=False).by(own.method)
    assert isinstance(executed.update.update, kind)
    assert choose_engine("eager", own, is_long=True).by(own.method) is own.method


def test_what_compiled_code_has_to_tell_is_told_though_it_was_asked_for_by_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def telling(method: Any, device: torch.device, *, tell: Any = None) -> Any:
        tell("it is not captured")
        return method

    monkeypatch.setitem(ENGINES, "compiled", telling)  # type: ignore[arg-type]
    own, told = subject(), []
    choose_engine("compiled", own, is_long=False, tell=told.append).by(own.method)
    assert told == ["it is not captured"]


@pytest.mark.parametrize(
    ("layer", "expected"),
    [
        (nn.Embedding(3, 2), True),
        (nn.Embedding(3, 2, max_norm=1.0), False),
        (nn.Embedding(3, 2, sparse=True), False),
    ],
)
def test_an_embedding_is_plain_unless_it_does_what_no_compiler_takes(
    layer: nn.Module, expected: bool
) -> None:
    assert is_plain([nn.Sequential(layer, nn.Flatten())]) is expected


@pytest.mark.parametrize("kind", ["dqn", "supervised"])
def test_a_trainer_of_a_run_begun_with_graphs_is_built_without_cuda(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes: dict[str, Any] = {"engine": "graph", "settings.device": "cpu"}
    with pytest.raises(ConfigError, match="'engine' is graph, but the engine 'graph' is for cuda"):
        prepared(ludus.example(kind).replace(**changes))
    monkeypatch.setattr("ludus.session.begun.has_begun", lambda files: True)
    trainer = prepared(ludus.example(kind).replace(**changes))
    assert trainer.config.engine == "graph"
    notes = trainer.agent.engine_notes if kind == "dqn" else trainer.update.engine_notes
    assert notes[0].startswith("the update is not captured as a CUDA graph")


def prepared(config: Any) -> Any:
    trainer: Any = ludus.build_trainer(config)
    trainer.set_logger(ludus.Logger({"backends": []}))
    trainer.prepare(max_steps=None)
    return trainer


class ReplacedMean(nn.Module):
    """Puts a new tensor in its buffer's place each time."""

    is_repeatable = True

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(2))

    def forward(self, x: Tensor) -> Tensor:
        self.mean = 0.9 * self.mean + 0.1 * x.mean(0)
        return x - self.mean


class ReplacedWeight(Vouched):
    """Puts a new parameter in the place of its own."""

    is_repeatable = True

    def forward(self, x: Tensor) -> Tensor:
        self.weight = nn.Parameter(self.weight * 0.9)
        return super().forward(x)


class Tally(Owner):
    """Adds up in a tensor what it is given."""

    is_repeatable = True

    def __init__(self, network: nn.Module) -> None:
        super().__init__(network)
        self.total = torch.zeros(2)

    def update(self, x: Tensor) -> Any:
        self.total.add_(x.sum(0))
        return super().update(x)


class ReplacedTally(Tally):
    """Does it in a new tensor each time."""

    is_repeatable = True

    def update(self, x: Tensor) -> Any:
        self.total = self.total + x.sum(0)
        return self.network(x)


class CountingOwner(Owner):
    """Counts in Python."""

    is_repeatable = True
    num_calls = 0

    def update(self, x: Tensor) -> Any:
        self.num_calls += 1
        return super().update(x)


@pytest.mark.parametrize(
    ("owner", "why"),
    [
        (Owner(ReplacedMean()), "ReplacedMean puts another tensor in the place of its mean, yet"),
        (
            Owner(nn.Sequential(ReplacedWeight(2, 2))),
            "puts another tensor in the place of its weight",
        ),
        (ReplacedTally(nn.Linear(2, 2)), "ReplacedTally changes total as it runs, yet says"),
        (CountingOwner(nn.Linear(2, 2)), "CountingOwner changes num_calls as it runs, yet says"),
        (Tally(Vouched(2, 2)), None),
    ],
)
def test_what_no_engine_would_repeat_is_refused_at_the_first_update(
    owner: Owner, why: str | None
) -> None:
    own = Subject(owner.update, owner, [owner.network], CPU, lambda: None)
    update = choose_engine("tape", own, is_long=False).by(own.method)
    x = torch.ones(3, 2)
    if why is not None:
        with pytest.raises(LudusError, match=why):
            update(x)
        return
    for _ in range(4):
        update(x)
    assert isinstance(owner, Tally)
    assert owner.total.tolist() == [12.0, 12.0]


class Stubborn(nn.Dropout):
    """From outside, and says nothing."""


@pytest.mark.parametrize("wanted", ["tape", "compiled"])
def test_what_a_script_changes_in_between_is_followed_or_told(
    wanted: EngineKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiled, "BACKEND", "eager")
    network = nn.Sequential(nn.Linear(2, 2), nn.LeakyReLU(0.1))
    owner, model = Owner(network), ludus.Model(network, loss="mse")
    own = Subject(owner.update, owner, [network], CPU, lambda: None, others=[model])
    told: list[str] = []
    update: Any = choose_engine(wanted, own, is_long=False, tell=told.append).by(own.method)
    x = -torch.ones(3, 2)

    def check() -> object:
        for _ in range(3):
            torch.testing.assert_close(update(x), network(x))
        return update.update

    made = [check()]
    network[1].negative_slope = 0.9
    made.append(check())
    network[1] = nn.Tanh()
    made.append(check())
    model.loss = "l1"
    made.append(check())
    assert len({*map(id, made)}) == 4
    assert check() is made[-1]
    network[1] = Stubborn(0.0)
    if wanted == "compiled":
        with pytest.raises(LudusError, match="'engine' is compiled, but Stubborn is neither"):
            check()
        return
    assert check() == owner.update
    assert len(told) == 1
    assert told[0].startswith("the update is taped no more: Stubborn is neither torch's")
