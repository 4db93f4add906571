"""The body `cnn`: an image, and the patches that messages named."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from ludus.arena.agents.bodies.cnn import Cnn, CnnParameters
from ludus.arena.scenario import ObservationSizes
from ludus.core.errors import ConfigError

KEYS: dict[str, Any] = {"kind": "cnn", "num_layers": 2, "width": 6, "sees": "all"}
SILENCE = torch.full((1, 2, 1), -1)


def body(num_symbols: int = 16, shape: tuple[int, ...] = (1, 8, 8), **changes: Any) -> Cnn:
    torch.manual_seed(0)
    seen = ObservationSizes({"image": shape}, num_symbols, max_message_rounds=2, num_channels=1)
    return Cnn(CnnParameters(**{**KEYS, **changes}), seen)


def rows(history: torch.Tensor = SILENCE, **changes: torch.Tensor) -> dict[str, torch.Tensor]:
    image = torch.arange(64.0).reshape(1, 1, 8, 8) / 64
    return {"image": image, "message_history": history, "round": torch.tensor([0]), **changes}


def named(*symbols: int) -> torch.Tensor:
    return torch.tensor(symbols).reshape(1, 2, 1)


def test_it_has_features_of_the_image_and_of_each_patch() -> None:
    found = body()(rows())
    assert body().width == 12
    assert found.whole.shape == (1, 12)
    assert found.symbols.shape == (1, 16, 12)
    assert found.present is None


def test_a_message_marks_its_patch_in_its_own_plane() -> None:
    marks = body()._marks(named(-1, 6))
    assert marks.shape == (1, 2, 8, 8)
    assert not marks[0, 0].any()
    expected = torch.zeros(8, 8)
    expected[2:4, 4:6] = 1.0
    assert torch.equal(marks[0, 1], expected)


def test_features_of_a_patch_are_of_that_place() -> None:
    cnn = body(num_layers=1)
    image = rows()["image"].clone()
    image[0, 0, 3, 4] += 1.0
    differs = (cnn(rows(image=image)).symbols - cnn(rows()).symbols)[0, :, :6].abs().amax(-1)
    # One convolution reaches one pixel further: the patch of pixel (3, 4), and those beside it.
    assert {int(place) for place in torch.nonzero(differs)[:, 0]} <= {5, 6, 9, 10}
    assert differs[6] > 0


def test_it_sees_the_image_the_messages_and_the_round() -> None:
    cnn = body()
    whole = cnn(rows()).whole
    others = [rows(image=rows()["image"].flip(-1)), rows(named(3, -1))]
    others.append(rows(round=torch.tensor([1])))
    assert not any(torch.equal(cnn(other).whole, whole) for other in others)


def test_one_that_sees_named_patches_is_blind_to_the_others() -> None:
    cnn = body(sees="named")
    image = rows()["image"].clone()
    image[0, 0, 0, 0] += 1.0
    unseen, seen = named(6, 9), named(6, 0)
    assert torch.equal(cnn(rows(unseen, image=image)).whole, cnn(rows(unseen)).whole)
    assert not torch.equal(cnn(rows(seen, image=image)).whole, cnn(rows(seen)).whole)
    assert not torch.equal(body()(rows(unseen, image=image)).whole, body()(rows(unseen)).whole)


def test_layers_and_width_are_those_of_the_config() -> None:
    shapes = [tuple(layer.weight.shape) for layer in body(num_layers=3, width=5).layers]
    assert shapes == [(5, 3, 3, 3), (5, 5, 3, 3), (5, 5, 3, 3)]


@pytest.mark.parametrize(
    ("num_symbols", "shape"), [(15, (1, 8, 8)), (9, (1, 8, 8)), (16, (1, 8, 4))]
)
def test_symbols_that_are_no_square_grid_are_refused(
    num_symbols: int, shape: tuple[int, ...]
) -> None:
    with pytest.raises(ConfigError, match=f"there are {num_symbols} symbols; choose another body"):
        body(num_symbols, shape)
