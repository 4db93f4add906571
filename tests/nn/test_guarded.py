"""A network of any class is compiled with its guards on: it computes what the eager one computes, always."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ludus.core.errors import ConfigError, LudusError
from ludus.core.states import StateError
from ludus.nn.engines import compiled, network
from ludus.nn.engines.guarded import MAX_SHAPES, GuardedCall, shapes_of
from ludus.nn.engines.network import Plan, choose_call
from ludus.nn.engines.trial import Trial, distance

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script_method:DeprecationWarning")
CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def _traced_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dynamo and its guards are what is tested here; Inductor takes seconds, and has tests of its own."""
    monkeypatch.setattr(compiled, "BACKEND", "eager")


class Layer(nn.Module):
    """A layer of somebody's own."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.factor = nn.Linear(4, 4), 1.0

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.tanh(self.inner(x)) * self.factor


class Breaking(Layer):
    """Looks at a number in the middle."""

    def forward(self, x: Tensor) -> Tensor:
        y = super().forward(x)
        return y if float(y.detach().sum()) > -1e9 else -y


class Net(nn.Module):
    """Layers, and the loss of a batch."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(layers or [Layer(), Layer()])

    def forward(self, batch: tuple[Tensor, Tensor], index: int) -> dict[str, Tensor]:
        x, y = batch
        for layer in self.layers:
            x = layer(x)
        return {"loss": (x - y).square().mean()}


def batch(rows: int = 3) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(rows)
    return torch.randn(rows, 4, generator=generator), torch.randn(rows, 4, generator=generator)


def alike(call: Callable[..., Any], net: nn.Module, rows: int = 3) -> bool:
    return torch.allclose(call(batch(rows), 0)["loss"], net(batch(rows), 0)["loss"])


def trial_of(net: nn.Module, precision: str = "float32") -> Trial:
    return Trial(net, (batch(), 0), precision=precision)


def test_what_is_changed_between_two_calls_is_noticed_as_an_eager_call_would() -> None:
    net = Net()
    call = GuardedCall(net.forward)
    assert alike(call, net)
    first = call(batch(), 0)["loss"]
    net.layers[1].factor = 3.0
    assert alike(call, net)
    assert not torch.allclose(call(batch(), 0)["loss"], first)
    handle = net.layers[0].register_forward_hook(lambda module, inputs, output: output * 2)
    assert alike(call, net)
    handle.remove()
    assert alike(call, net)
    net.layers.append(Layer())
    assert alike(call, net)
    net.layers[0] = Breaking()
    assert alike(call, net)


def test_a_graph_break_in_every_layer_is_allowed_and_told_with_its_line() -> None:
    net = Net(*[Breaking() for _ in range(3)])
    call = GuardedCall(net.forward)
    assert alike(call, net)
    assert call.num_graphs > 1
    assert call.breaks
    assert "test_guarded.py:" in call.breaks[0]


def test_shapes_that_change_each_batch_are_compiled_up_to_a_bound_and_that_is_told_once() -> None:
    net, notes = Net(), list[str]()
    call = GuardedCall(net.forward, tell=notes.append)
    for rows in range(2, 2 + MAX_SHAPES):
        assert alike(call, net, rows)
    num_graphs = call.num_graphs
    for rows in range(20, 24):
        assert alike(call, net, rows)
    assert call.num_graphs == num_graphs
    assert len(notes) == 1
    assert "more than 8 shapes, the last float32[20, 4] float32[20, 4] -" in notes[0]


def test_the_shapes_that_are_compiled_are_state_so_that_a_resumed_run_compiles_the_same() -> None:
    net = Net()
    first = GuardedCall(net.forward)
    for rows in range(2, 2 + MAX_SHAPES):
        first(batch(rows), 0)
    resumed = GuardedCall(net.forward, tell=lambda note: None)
    resumed.load_state_dict(first.state_dict())
    # The first batch after a resume is one that the broken run computed eagerly.
    assert alike(resumed, net, 30)
    assert resumed.num_graphs == 0
    assert alike(resumed, net, 4)
    assert resumed.num_graphs == 1
    assert resumed.state_dict() == first.state_dict()
    with pytest.raises(StateError):
        resumed.load_state_dict({**first.state_dict(), "shapes": [3]})


def test_a_network_that_changes_at_each_call_is_called_eagerly_after_a_while() -> None:
    net, notes = Net(), list[str]()
    call = GuardedCall(net.forward, tell=notes.append)
    for number in range(40):
        net.layers[0].factor = 1.0 + number
        assert alike(call, net)
    assert not call.is_used
    assert len(notes) == 1
    assert "changes again and again" in notes[0]
    resumed = GuardedCall(net.forward, tell=notes.append)
    resumed.load_state_dict(call.state_dict())
    assert alike(resumed, net)
    assert resumed.num_graphs == 0


def test_changes_are_counted_over_a_resume_and_many_of_them_are_said_to_be_inexact() -> None:
    net = Net()

    def called(call: GuardedCall, numbers: range) -> GuardedCall:
        for number in numbers:
            net.layers[0].factor = 1.0 + number
            call(batch(), 0)
        return call

    first = called(GuardedCall(net.forward, tell=lambda note: None), range(8))
    assert first.inexact_because() == []
    resumed = GuardedCall(net.forward, tell=lambda note: None)
    resumed.load_state_dict(first.state_dict())
    called(resumed, range(8, 12))
    assert resumed.is_used
    assert "compiled again 10 times" in resumed.inexact_because()[0]
    called(resumed, range(12, 20))
    assert not resumed.is_used
    # What is only compiled again, since a process is new, is no change.
    again = GuardedCall(net.forward)
    again.load_state_dict(called(GuardedCall(net.forward), range(1)).state_dict())
    assert called(again, range(1)).state_dict()["num_changes"] == 0


def test_what_the_compiler_refuses_is_called_eagerly_with_the_reason_or_is_an_error() -> None:
    def refuses(traced: Any, inputs: Any) -> Any:
        raise NotImplementedError("no such operation here")

    net, notes = Net(), list[str]()
    call = GuardedCall(net.forward, tell=notes.append)
    call._compiled = torch.compile(net.forward, backend=refuses)
    assert alike(call, net)
    assert not call.is_used
    assert "no such operation here" in notes[0]
    assert "it is called eagerly" in notes[0]
    strict = GuardedCall(net.forward)
    strict._compiled = torch.compile(Net().forward, backend=refuses)
    with pytest.raises(LudusError, match=r"no such operation here.*set engine to auto or eager"):
        strict(batch(), 0)


def test_a_mistake_of_the_network_itself_is_raised_as_it_is() -> None:
    class Wrong(Layer):
        def forward(self, x: Tensor) -> Tensor:
            raise ValueError("my own mistake")

    call = GuardedCall(Net(Wrong()).forward, tell=lambda note: None)
    with pytest.raises(ValueError, match="my own mistake"):
        call(batch(), 0)


def test_shapes_are_named_by_type_and_size_in_any_structure() -> None:
    assert shapes_of([{"a": torch.zeros(2, 3), "b": [torch.zeros(1, dtype=torch.int64)]}, 0]) == (
        "float32[2, 3] int64[1] -"
    )


class Deviant(Layer):
    """Computes something else when it is compiled."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * (1.1 if torch.compiler.is_compiling() else 1.0)


class Drops(Layer):
    """Draws at each call."""

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.dropout(super().forward(x), 0.5)


class Counts(Layer):
    """Keeps a plain number and a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.num_calls = 0
        self.register_buffer("total", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.num_calls += 1
        self.total += x.sum().detach()
        return super().forward(x)


@pytest.mark.parametrize("layer", [Layer, Breaking, Drops])
def test_a_trial_finds_compiled_and_eager_passes_alike(layer: type[nn.Module]) -> None:
    net = Net(layer(), layer())
    assert trial_of(net).why_not_alike(net.forward, GuardedCall(net.forward)) is None


def test_a_trial_finds_what_is_computed_otherwise_when_compiled() -> None:
    net = Net(Deviant())
    why = trial_of(net).why_not_alike(net.forward, GuardedCall(net.forward))
    assert why is not None
    assert "more than rounding" in why
    assert "eagerly" in why


def test_a_trial_leaves_nothing_behind() -> None:
    net = Net(Counts(), Drops())
    torch.manual_seed(5)
    weights = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    before, trial = torch.get_rng_state(), trial_of(net)
    assert trial.seconds(net.forward) > 0
    trial.outcome(net.forward)
    assert torch.equal(torch.get_rng_state(), before)
    assert net.layers[0].num_calls == 0
    for name, tensor in net.state_dict().items():
        assert torch.equal(tensor, weights[name])
    assert all(weight.grad is None for weight in net.parameters())


class Counting:
    """Calls a network, and counts that in a plain attribute, as a Model of a script may."""

    def __init__(self, net: Net) -> None:
        self.net, self.num_calls = net, 0

    def forward(self, *given: Any) -> dict[str, Tensor]:
        self.num_calls += 1
        return self.net(*given)  # type: ignore[no-any-return]


def test_a_trial_leaves_nothing_in_the_owner_of_what_is_called() -> None:
    owner = Counting(Net())
    trial = Trial(owner.net, (batch(), 0), precision="float32", owners=[owner])
    trial.outcome(owner.forward)
    assert owner.num_calls == 0
    trial_of(owner.net).outcome(owner.forward)
    assert owner.num_calls == 1


def test_the_distance_of_outcomes_is_relative_and_infinite_where_one_is_not_a_number() -> None:
    net = Net()
    first = trial_of(net).outcome(net.forward)
    assert distance(first, first) == 0
    with torch.no_grad():
        net.layers[0].inner.weight[0, 0] = math.nan
    assert distance(trial_of(net).outcome(net.forward), first) == math.inf


def plan(net: nn.Module, num_passes: int, **options: Any) -> Plan:
    return Plan(net, CPU, num_passes, lambda: trial_of(net), **options)


def choose(wanted: str, subject: Plan, *, has_begun: bool = False) -> Any:
    notes: list[str] = []
    chosen = choose_call(wanted, subject, has_begun=has_begun, tell=notes.append)
    return chosen.forward, [*notes, *chosen.notes]


def test_a_short_run_is_not_compiled_and_says_how_long_it_takes() -> None:
    call, notes = choose("auto", plan(Net(), 10))
    assert call is None
    assert "10 of them would not gain back the" in notes[0]


def test_a_long_run_is_compiled_if_that_is_faster_and_says_by_how_much(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seconds = {"eager": 0.010, "compiled": 0.004}

    def timed(trial: Trial, forward: object) -> float:
        return seconds["compiled" if isinstance(forward, GuardedCall) else "eager"]

    monkeypatch.setattr(Trial, "seconds", timed)
    call, notes = choose("auto", plan(Net(), 1_000_000))
    assert call is not None
    assert "takes 4 ms instead of 10 ms (2.50 times as fast)" in notes[0]
    seconds["compiled"] = 0.0099
    call, notes = choose("auto", plan(Net(), 1_000_000))
    assert call is None
    assert notes == [
        "the network is not compiled: a forward and backward pass takes 9.9 ms instead of 10 ms"
    ]


def test_one_that_computes_otherwise_is_not_compiled_and_refused_by_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(network, "compile_seconds", lambda module: 0.0)
    call, notes = choose("auto", plan(Net(Deviant()), 1000))
    assert call is None
    assert "more than rounding" in notes[0]
    with pytest.raises(ConfigError, match="'engine' is compiled, but its gradient differs"):
        choose("compiled", plan(Net(Deviant()), 1000))


def test_a_run_that_has_begun_compiled_goes_on_so_without_a_trial() -> None:
    def refuse() -> Trial | None:
        raise AssertionError("tried again")

    call, notes = choose("compiled", Plan(Net(), CPU, 10, refuse), has_begun=True)
    assert call is not None
    assert notes == []


def test_what_speaks_against_it_is_told_or_refused_by_name() -> None:
    subject = plan(Net(), 10, why_not="its training_step uses batch_idx")
    call, notes = choose("auto", subject)
    assert call is None
    assert notes == ["the network is not compiled: its training_step uses batch_idx"]
    with pytest.raises(ConfigError, match="'engine' is compiled, but its training_step uses"):
        choose("compiled", subject)
    call, notes = choose("auto", Plan(Net(), CPU, 10, lambda: None))
    assert call is None
    assert "cannot be looked at before the run begins" in notes[0]
    with pytest.raises(ConfigError, match="on the CPU and on CUDA"):
        choose("compiled", plan(Net(), 10)._replace(device=torch.device("mps")))


def test_a_resumed_run_is_not_told_to_change_its_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "why_no_compiler", lambda device: "there is no g++")
    plan = Plan(Net(), CPU, 10, lambda: None)
    with pytest.raises(
        ConfigError, match=r"there is no g\+\+; a resume computes with compiled code"
    ):
        choose_call("compiled", plan, has_begun=True, tell=lambda note: None)
    with pytest.raises(ConfigError, match="set engine to auto"):
        choose_call("compiled", plan, has_begun=False, tell=lambda note: None)
