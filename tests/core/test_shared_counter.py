"""Two rooms of ludus may count the same thing under one name; a plugin may not take it from them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ludus.config import families
from ludus.config.registry import find
from ludus.core import counters
from ludus.core.errors import LudusError


@pytest.fixture
def restored() -> Iterator[None]:
    families.families()
    kept = {name: list(owners) for name, owners in counters._OWNERS.items()}
    yield
    counters._OWNERS.clear()
    counters._OWNERS.update(kept)


def test_a_counter_of_two_rooms_is_had_by_the_trainers_of_both(restored: None) -> None:
    assert {"ludus.active", "ludus.games"} <= set(counters.owners("round"))
    for kind in ("active", "fused_ppo"):
        assert "round" in counters.of(find("trainer", kind))
    assert "round" not in counters.of(find("trainer", "dqn"))
    assert "labels" in counters.of(find("trainer", "active"))
    assert "labels" not in counters.of(find("trainer", "fused_ppo"))


def test_a_room_that_declares_anew_leaves_the_counters_of_the_other(restored: None) -> None:
    counters.declare(("labels",), "ludus.active")
    assert counters.owners("round") == ["ludus.games"]
    assert "round" not in counters.of(find("trainer", "active"))
    counters.declare((), "ludus.games")
    assert counters.owners("round") == []


def test_a_plugin_may_not_declare_the_counter_of_a_room(restored: None) -> None:
    with pytest.raises(LudusError, match="round"):
        families.declare(__name__, counters=("round",))
    assert __name__ not in counters.owners("round")
