"""What every body must do, whatever it looks at."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from ludus.arena.agents.body import Body, Rows, make_body
from ludus.arena.scenario import ObservationSizes
from ludus.config.families import listed
from ludus.config.registry import find
from ludus.config.sections import validate
from ludus.core.errors import ConfigError

SECTIONS: dict[str, dict[str, Any]] = {
    "cnn": {"kind": "cnn", "num_layers": 1, "width": 4, "sees": "named"},
    "gnn": {"kind": "gnn", "num_layers": 1, "width": 4, "compares": True},
    "mlp": {"kind": "mlp", "widths": [6]},
}
SHAPES: dict[str, tuple[int, ...]] = {
    "adjacency": (2, 8, 8),
    "node_mask": (2, 8),
    "image": (1, 8, 8),
}
SEEN = ObservationSizes(SHAPES, num_symbols=16, max_message_rounds=3, num_channels=2)


def body(kind: str) -> Body:
    torch.manual_seed(0)
    section = validate(find("body", kind).Config, SECTIONS[kind], source="test")
    return make_body(section, SEEN, agent="verifier")


def rows(device: str = "cpu") -> Rows:
    source = torch.Generator().manual_seed(0)
    made = {
        name: torch.randint(2, (5, *shape), generator=source).float()
        for name, shape in SHAPES.items()
    }
    made["node_mask"] = made["node_mask"].bool()
    made["message_history"] = torch.randint(-1, 16, (5, 3, 2), generator=source)
    made["round"] = torch.tensor([0, 1, 2, 3, 3])
    return {name: tensor.to(device) for name, tensor in made.items()}


def test_every_body_that_ludus_has_is_tried_here() -> None:
    # `vector` looks at what envs show their agents, not at data, and is tried there.
    assert sorted([*SECTIONS, "vector"]) == sorted(listed("body"))


@pytest.mark.parametrize("kind", SECTIONS)
def test_its_features_are_as_many_as_it_says(kind: str) -> None:
    one = body(kind)
    found = one(rows())
    assert found.whole.shape == (5, one.width)
    assert found.symbols.shape == (5, 16, one.symbol_width or one.width)
    assert (found.context is None) == (one.context_width == 0)
    assert found.context is None or found.context.shape[::2] == (5, one.context_width)
    assert found.present is None or found.present.shape == (5, 16)


@pytest.mark.parametrize("kind", SECTIONS)
def test_a_row_is_looked_at_by_itself(kind: str) -> None:
    one, given = body(kind), rows()
    whole = one(given)
    alone = one({name: tensor[2:3] for name, tensor in given.items()})
    assert torch.allclose(alone.whole, whole.whole[2:3], atol=1e-5)
    assert torch.allclose(alone.symbols, whole.symbols[2:3], atol=1e-5)
    if whole.context is not None:
        assert torch.allclose(alone.context, whole.context[2:3], atol=1e-5)


@pytest.mark.parametrize("kind", SECTIONS)
def test_nothing_in_it_asks_for_a_value(kind: str) -> None:
    # A tensor without values cannot be waited for: whatever would stop a device raises here.
    found = body(kind).to("meta")(rows("meta"))
    assert found.whole.is_meta


@pytest.mark.parametrize("kind", ["cnn", "gnn"])
def test_a_scenario_without_what_it_needs_is_refused(kind: str) -> None:
    section = validate(find("body", kind).Config, SECTIONS[kind], source="test")
    seen = ObservationSizes({"bits": (4,)}, num_symbols=2, max_message_rounds=1, num_channels=1)
    told = f"'agents.verifier.body.kind' is {kind}, which needs '.*', but the data of this scenario are bits"
    with pytest.raises(ConfigError, match=told):
        make_body(section, seen, agent="verifier")
