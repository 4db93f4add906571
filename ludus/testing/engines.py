"""Contract of an engine: an update that it executes does what the eager one does.

`check_engine` changes the numbers at each call. `check_followed` changes the update itself between two
calls: the mode of its networks, a hook, a frozen group, loaded weights, the shape and type of the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from copy import deepcopy

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from ludus.core.errors import LudusError
from ludus.nn.engines.choice import Engine, EngineKey, Executor, Subject, choose_engine
from ludus.testing.engine_cases import CHANGES, OTHER_INPUTS, Change, EngineCase, Inputs, Undo

CALLS = 6
"""Enough calls for an engine to warm up, to capture, and to replay."""


def check_engine(
    engine: Engine, make: Callable[[], EngineCase], *, rtol: float = 0.0, atol: float = 0.0
) -> None:
    """Fail unless results and state equal the eager ones after each call; without tolerance, bit for bit.

    `make` builds the same case each time. Inputs have other numbers at every call.
    """
    eager, executed = make(), make()
    before = deepcopy(dict(eager.state()))
    call = engine(executed.method, executed.device)
    for number in range(CALLS):
        inputs = _noisy(eager.inputs, number)
        expected = eager.method(*inputs)
        found = call(*inputs)
        _check(found, expected, rtol, atol, f"what call {number + 1} returned")
        _check(dict(executed.state()), dict(eager.state()), rtol, atol, "the state it left")
    if not _differ(dict(eager.state()), before):
        raise AssertionError(
            "the update changed nothing, so nothing was compared; give other inputs"
        )


def check_followed(
    execute: Callable[[Subject], Executor],
    make: Callable[[], EngineCase],
    *,
    rtol: float = 0.0,
    atol: float = 0.0,
    changes: Collection[str] | None = None,
) -> set[str]:
    """Fail unless an executed update follows each change and its undoing; the default is all changes.

    To follow is to do as the eager call does, or to refuse with a LudusError of one sentence and leave
    the state alone. Return the names of the changes that made a difference: the others prove nothing.
    """
    shown = set()
    for name in [*CHANGES, *OTHER_INPUTS] if changes is None else changes:
        changed = _changed if name in CHANGES else _given_others
        if changed(lambda what: _Pair(execute, make, rtol, atol, what), name):
            shown.add(name)
    return shown


def _changed(pair_of: Callable[[str], _Pair], name: str) -> bool:
    """Compare before, during and after a change; return whether it made a difference."""
    pair = pair_of(name)
    pair.call(CALLS)
    undo = pair.change(CHANGES[name])
    if undo is None:
        return False
    if pair.call(2):
        undo()
        pair.call(2)
        return not pair.is_as_unchanged()
    return True


def _given_others(pair_of: Callable[[str], _Pair], name: str) -> bool:
    """Compare with other inputs, each in turn, between the usual ones."""
    is_shown = False
    for index in range(len(pair_of(name).eager.inputs)):
        pair = pair_of(f"{name} of input {index + 1}")
        given = OTHER_INPUTS[name](pair.eager.inputs, index)
        if given is None:
            continue
        pair.call(CALLS)
        if pair.call(2, given):
            pair.call(2)
        is_shown |= not pair.is_as_unchanged()
    return is_shown


def by_name(engine: EngineKey) -> Callable[[Subject], Executor]:
    """Return the executor that a config with this `engine` would choose for a subject."""
    return lambda subject: choose_engine(engine, subject, is_long=False).by


class _Pair:
    """An eager update and an executed one that are changed alike, and an unchanged eager one."""

    def __init__(
        self,
        execute: Callable[[Subject], Executor],
        make: Callable[[], EngineCase],
        rtol: float,
        atol: float,
        what: str,
    ) -> None:
        self.eager, self._executed, self._unchanged = make(), make(), make()
        self._method = execute(self._executed.subject)(self._executed.method)
        self._limits, self._what = (rtol, atol), what
        self._num_calls = 0

    def change(self, change: Change) -> Undo | None:
        """Change both; return a function that undoes it in both, None if not applicable."""
        undo, other = change(self.eager), change(self._executed)
        if undo is None or other is None:
            return None

        def both() -> None:
            undo()
            other()

        return both

    def call(self, times: int, inputs: Inputs | None = None) -> bool:
        """Call all, and compare the executed with the eager one; return whether neither was refused."""
        given = self.eager.inputs if inputs is None else inputs
        for _ in range(times):
            self._num_calls += 1
            noisy = _noisy(given, self._num_calls)
            self._unchanged.method(*_noisy(self._unchanged.inputs, self._num_calls))
            before = deepcopy(dict(self._executed.state()))
            try:
                expected = self.eager.method(*noisy)
            except (RuntimeError, ValueError) as error:
                self._check_fails(noisy, error)
                return False
            try:
                found = self._method(*noisy)
            except LudusError as error:
                if "\n" in str(error):
                    raise AssertionError(
                        f"{self._what} is refused in many lines: {error}"
                    ) from error
                _check(dict(self._executed.state()), before, 0, 0, f"{self._what}, refused")
                return False
            what = f"after a change ({self._what}), call {self._num_calls}"
            _check(found, expected, *self._limits, what)
            _check(dict(self._executed.state()), dict(self.eager.state()), *self._limits, what)
        return True

    def _check_fails(self, inputs: Inputs, error: Exception) -> None:
        try:
            self._method(*inputs)
        except (RuntimeError, ValueError, LudusError):
            return
        raise AssertionError(
            f"after a change ({self._what}) the eager call fails ({error}), the executed one does not"
        )

    def is_as_unchanged(self) -> bool:
        """Return whether the changes made no difference to the eager update."""
        return not _differ(dict(self.eager.state()), dict(self._unchanged.state()))


def _noisy(inputs: Inputs, number: int) -> list[Tensor | None]:
    """Return the inputs with small noise added to floating-point ones; indices stay the same."""
    found: list[Tensor | None] = []
    for value in inputs:
        if value is not None and value.is_floating_point():
            noise = torch.rand(value.shape, generator=torch.Generator().manual_seed(number))
            value = value + 0.1 * noise.to(value)
        found.append(value)
    return found


def _differ(one: object, other: object) -> bool:
    try:
        torch.testing.assert_close(one, other, rtol=0, atol=0, equal_nan=True)
    except AssertionError:
        return True
    return False


def _check(found: object, expected: object, rtol: float, atol: float, what: str) -> None:
    found, expected = (tree_map_only(Tensor, Tensor.detach, tree) for tree in (found, expected))
    torch.testing.assert_close(
        found, expected, rtol=rtol, atol=atol, equal_nan=True, msg=lambda text: f"{what}: {text}"
    )
