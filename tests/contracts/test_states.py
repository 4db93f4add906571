"""Every part refuses what no part ever saved: changed in each value, one at a time, and by chance."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from ludus.core.errors import CheckpointError
from ludus.core.runtime import InMemoryRuntime
from ludus.session.logger import Logger
from ludus.testing import states
from tests.conftest import modules_in

PARTS = modules_in("contracts/parts")
every_part = pytest.mark.parametrize("case", PARTS.values(), ids=PARTS.keys())


@functools.cache
def state_of(case: Any) -> Any:
    return states.saved_state(case.make, case.use)


def try_out(case: Any) -> Any:
    """Return what a part with a changed state must survive: its use, unless that takes too long."""
    return getattr(case, "try_out", case.use)


@every_part
def test_a_state_with_one_value_changed_is_refused_by_key_or_taken_as_it_is(case) -> None:
    optional, harmless = getattr(case, "OPTIONAL", ()), getattr(case, "HARMLESS", ())
    assert states.check_every_value(
        case.make, try_out(case), state_of(case), optional=optional, harmless=harmless
    )


ANYTHING = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=5),
    st.binary(max_size=5),
    st.lists(st.integers(-3, 3), max_size=3),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
    st.builds(
        lambda shape, value: np.full(shape, value),
        st.lists(st.integers(0, 3), max_size=3),
        st.floats(),
    ),
    st.builds(
        lambda shape, value: torch.full(shape, value),
        st.lists(st.integers(0, 3), max_size=3),
        st.integers(-(2**40), 2**40),
    ),
)


@every_part
@settings(max_examples=40, deadline=None, derandomize=True, database=None)
@given(data=st.data())
def test_a_state_with_anything_anywhere_is_refused_by_key_or_taken_as_it_is(case, data) -> None:
    state = state_of(case)
    found = [path for path, _ in states.places(state) if path]
    path = data.draw(st.sampled_from(found))
    value = data.draw(ANYTHING)
    changed = states.replaced(state, path, value)
    may_fill = "/".join(map(str, path)) in getattr(case, "OPTIONAL", ())
    states.check_refused_or_taken(
        case.make, try_out(case), changed, f"{path} {value!r}", may_fill=may_fill
    )


TRAINERS = modules_in("contracts/trainers")


@functools.cache
def trained(case: Any) -> tuple[Any, Any]:
    """Return a trainer that has walked some of its plan, without files, and its state."""
    trainer = case.make()
    trainer.set_logger(Logger({"backends": []}))
    trainer.add(Interrupt(), name="interrupt")
    trainer.fit(runtime=InMemoryRuntime)
    return trainer, states.from_disk(trainer.state_dict())


class Interrupt:
    """Asks for a pause after a few boundaries, so that much is under way."""

    num_left = 9

    def __getattr__(self, name: str) -> Any:
        if name not in ("after_step", "after_train_step", "after_collect"):
            raise AttributeError(name)
        return self._count

    def _count(self, run: Any) -> None:
        self.num_left -= 1
        run.interrupted = self.num_left <= 0


@pytest.mark.parametrize("name", ["dqn", "iqn", "ppo", "sac", "supervised"])
@settings(max_examples=150, deadline=None, derandomize=True, database=None)
@given(data=st.data())
def test_a_trainer_refuses_a_changed_state_by_the_name_of_the_part(name: str, data) -> None:
    trainer, state = trained(TRAINERS[name])
    part = data.draw(st.sampled_from(sorted(state)))
    found = [(path, value) for path, value in states.places(state[part]) if path]
    path, value = found[data.draw(st.integers(0, len(found) - 1))]
    spoilt = [other for _, other in states.spoilt(value)]
    other = data.draw(st.one_of(st.sampled_from(spoilt), ANYTHING))
    changed = {**state, part: states.replaced(state[part], path, other)}
    try:
        trainer.load_state_dict(states.from_disk(changed))
    except CheckpointError as error:
        assert part in str(error)  # noqa: PT017 - either it is taken, or it is refused like this
