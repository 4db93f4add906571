"""A compiled method returns what the method does, the first time and every time after that."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch._inductor.config as inductor
from torch import Tensor

from ludus.core.errors import LudusError
from ludus.nn.engines import compiled
from ludus.nn.engines.compiled import CompiledMethod
from ludus.nn.engines.graph import CapturedCode, leaves_of


class Owner:
    """Has methods of every form of result, and counts in a tensor."""

    def __init__(self) -> None:
        self.total = torch.zeros(3)

    def one(self, x: Tensor) -> Tensor:
        return x * 2 + 1

    def two(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x * 2, x.sum()

    def none(self, x: Tensor) -> None:
        self.total.add_(x)

    def perhaps(self, values: Any) -> Tensor:
        x, y = values
        found: Tensor = x * 1 if y is None else x + y
        return found

    def from_a_list(self, pieces: list[Tensor], more: Tensor | None) -> Tensor:
        return pieces[0] * 2 + (pieces[1] if more is None else more)

    def its_own(self, x: Tensor) -> Tensor:
        """Return a tensor that no code makes, so that the way round torch's checks is not taken."""
        self.total.add_(x)
        return self.total


@pytest.fixture(autouse=True)
def traced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "BACKEND", "eager")


def rounds() -> list[Tensor]:
    return [torch.tensor([1.0, 2.0, 3.0]) * (number + 1) for number in range(3)]


@pytest.mark.parametrize("name", ["one", "two", "its_own"])
def test_a_result_is_that_of_the_method_at_every_call(name: str) -> None:
    plain, owner = Owner(), Owner()
    compiled: Any = CompiledMethod(getattr(owner, name), torch.device("cpu"))
    for x in rounds():
        wanted, found = getattr(plain, name)(x), compiled(x)
        assert type(found) is type(wanted)
        pairs = zip(wanted, found, strict=True) if name == "two" else [(wanted, found)]
        assert all(torch.equal(one, other) for one, other in pairs)


def test_a_method_without_a_result_has_none_and_does_its_work() -> None:
    owner = Owner()
    compiled: Any = CompiledMethod(owner.none, torch.device("cpu"))
    assert [compiled(x) for x in rounds()] == [None] * 3
    assert owner.total.tolist() == [6.0, 12.0, 18.0]


@pytest.mark.parametrize("kind", [list, tuple])
@pytest.mark.parametrize("is_missing", [False, True])
def test_arguments_may_come_in_a_list_or_be_missing(kind: Any, is_missing: bool) -> None:
    compiled: Any = CompiledMethod(Owner().from_a_list, torch.device("cpu"))
    for x in rounds():
        found = compiled(kind([x, x + 1]), None if is_missing else x)
        assert found.tolist() == (x * 3 + is_missing).tolist()


def test_an_argument_may_be_missing_at_one_call_and_there_at_the_next() -> None:
    """Torch is told to look at tensors alone, so it would take the code of the other call."""
    compiled: Any = CompiledMethod(Owner().from_a_list, torch.device("cpu"))
    for number in range(6):
        x, is_missing = torch.full((3,), float(number)), number % 2 == 0
        found = compiled([x, x + 1], None if is_missing else x)
        assert found.tolist() == (x * 3 + is_missing).tolist()


def test_what_is_missing_inside_a_list_is_seen_too() -> None:
    compiled: Any = CompiledMethod(Owner().perhaps, torch.device("cpu"))
    for number in range(6):
        x = torch.full((3,), float(number))
        found = compiled([x, None if number % 2 else x])
        assert found.tolist() == (x if number % 2 else 2 * x).tolist()


def test_another_order_in_memory_or_another_type_has_code_of_its_own() -> None:
    """Compiled code reads memory as that of the first call lay, whatever it is given."""
    owner = Owner()
    compiled = CompiledMethod(owner.one, torch.device("cpu"))
    x = torch.arange(9.0).reshape(3, 3)
    for _ in range(2):
        for given in (x, x.t(), x.double()):
            assert torch.equal(compiled(given), owner.one(given))
    assert len(compiled._graphs) == 3


Backend = Callable[[Any, Any], Callable[..., Any]]


def built_by(monkeypatch: pytest.MonkeyPatch, backend: Backend) -> Any:
    """Return a compiled method whose trace is given to this backend."""
    monkeypatch.setattr(
        CompiledMethod, "_build", lambda self, traced, inputs, **options: backend(traced, inputs)
    )
    return CompiledMethod(Owner().one, torch.device("cpu"))


def test_inductor_is_deterministic_while_an_update_is_compiled_and_as_it_was_after(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It would choose reductions by timing them, which another process answers otherwise."""
    seen = []

    def look(traced: Any, inputs: Any) -> Callable[..., Any]:
        seen.append(inductor.deterministic)
        return traced.forward  # type: ignore[no-any-return]

    assert not inductor.deterministic
    built_by(monkeypatch, look)(torch.ones(3))
    assert seen == [True]
    assert not inductor.deterministic


def test_a_warning_inside_the_compiler_ends_no_run_whose_warnings_are_errors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def warn(traced: Any, inputs: Any) -> Callable[..., Any]:
        warnings.warn("torch.jit.script is deprecated", DeprecationWarning, stacklevel=2)
        return traced.forward  # type: ignore[no-any-return]

    filters = [*warnings.filters]
    assert built_by(monkeypatch, warn)(torch.ones(3)).tolist() == [3.0] * 3
    assert [*warnings.filters] == filters


def raising(x: Tensor) -> Tensor:
    raise ValueError("no such thing")


def test_what_the_tracer_met_is_in_the_message() -> None:
    assert compiled.why_not_traced(raising, [torch.ones(3)]) == (
        "torch's compiler cannot take the update whole (Observed exception: raised exception"
        " ValueError('no such thing'))"
    )


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (RuntimeError("no C++ compiler\nis here"), "RuntimeError: no C++ compiler"),
        (NotImplementedError(), "NotImplementedError"),
    ],
)
def test_what_the_compiler_raised_is_in_the_message(
    error: Exception, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(traced: Any, inputs: Any) -> Callable[..., Any]:
        raise error

    with pytest.raises(LudusError) as caught:
        built_by(monkeypatch, fail)(torch.ones(3))
    assert str(caught.value) == (
        f"torch's compiler cannot take the update whole ({told}); set engine to auto, tape or eager"
    )


def test_compiled_code_is_captured_as_a_function_of_tensors_and_given_its_batch_whole() -> None:
    def update(batch: Any, rate: Tensor, share: Tensor | None) -> tuple[Any, ...]:
        return type(batch), [one.item() for one in batch], rate.item(), share

    captured = CapturedCode(update, torch.device("cpu"), None)
    one, two, rate = torch.tensor(1.0), torch.tensor(2.0), torch.tensor(0.5)
    for kind in (tuple, list):
        of_leaves = captured._of_leaves(((kind, 2), None, None))
        assert leaves_of((kind([one, two]), rate, None)) == [one, two, rate, None]
        assert of_leaves(one, two, rate, None) == update(kind([one, two]), rate, None)
    assert captured._of_leaves((None, None)) is update
