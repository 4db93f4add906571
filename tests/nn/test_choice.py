"""One place decides which engine executes an update, and says why where it is not the one one would like."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import ludus
from ludus.core.errors import ConfigError
from ludus.nn.engines import compiled
from ludus.nn.engines.choice import Chosen, EngineKey, Subject, choose_engine
from ludus.nn.engines.compiled import CompiledMethod
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


def subject(module: nn.Module | None = None, device: torch.device = CPU) -> Subject:
    network = module or nn.Linear(2, 2)

    class Owner:
        is_repeatable = True

        def update(self, x: Tensor) -> Any:
            return network(x)

    owner = Owner()
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
    assert isinstance(choose_engine(wanted, own, is_long=False).by(own.method), kind)
    assert choose_engine("eager", own, is_long=True).by(own.method) is own.method
    vouched = subject(Vouched(2, 2))
    watched: Any = choose_engine("tape", vouched, is_long=False).by(vouched.method)
    assert isinstance(watched.update, Taped)


@pytest.mark.parametrize("kind", ["dqn", "supervised"])
def test_a_trainer_of_a_run_begun_with_graphs_is_built_without_cuda(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes: dict[str, Any] = {"engine": "graph", "settings.device": "cpu"}
    with pytest.raises(ConfigError, match="'engine' is graph, but the engine 'graph' is for cuda"):
        prepared(ludus.example(kind).replace(**changes))
    monkeypatch.setattr(PLACES[kind], lambda files: True)
    trainer = prepared(ludus.example(kind).replace(**changes))
    assert trainer.config.engine == "graph"
    assert trainer._engine_notes[0].startswith("the update is not captured as a CUDA graph")


PLACES = {"dqn": "ludus.rl.engine.has_begun", "supervised": "ludus.supervised.base.has_begun"}


def prepared(config: Any) -> Any:
    trainer: Any = ludus.build_trainer(config)
    trainer.set_logger(ludus.Logger({"backends": []}))
    trainer.prepare(max_steps=None)
    return trainer
