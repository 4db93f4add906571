"""The body `mlp`: everything there is as one row."""

from __future__ import annotations

import torch

from ludus.arena.agents.bodies.mlp import Mlp, MlpParameters
from ludus.arena.scenario import ObservationSizes

SEEN = ObservationSizes(shapes={"bits": (4,)}, num_symbols=3, max_message_rounds=2, num_channels=1)


def body(widths: list[int]) -> Mlp:
    torch.manual_seed(0)
    return Mlp(MlpParameters(kind="mlp", widths=widths), SEEN)


def rows(**changes: torch.Tensor) -> dict[str, torch.Tensor]:
    given = {
        "bits": torch.tensor([[1.0, 0.0, 1.0, 1.0]]),
        "message_history": torch.tensor([[[2], [-1]]]),
        "round": torch.tensor([1]),
    }
    return {**given, **changes}


def test_it_has_features_of_the_row_and_of_each_symbol() -> None:
    found = body([16, 8])(rows())
    assert found.whole.shape == (1, 8)
    assert found.symbols.shape == (1, 3, 8)
    assert found.present is None
    assert body([16, 8]).width == 8


def test_it_sees_the_data_the_messages_and_the_round() -> None:
    mlp = body([16])
    whole = mlp(rows()).whole
    others = {
        "bits": torch.tensor([[1.0, 0.0, 1.0, 0.0]]),
        "message_history": torch.tensor([[[1], [-1]]]),
        "round": torch.tensor([2]),
    }
    for name, other in others.items():
        assert not torch.equal(mlp(rows(**{name: other})).whole, whole), name


def test_silence_is_not_the_first_symbol() -> None:
    mlp = body([16])
    silent = mlp(rows(message_history=torch.tensor([[[-1], [-1]]]))).whole
    assert not torch.equal(mlp(rows(message_history=torch.tensor([[[0], [-1]]]))).whole, silent)


def test_widths_are_the_layers() -> None:
    shapes = [
        tuple(layer.weight.shape) for layer in body([16, 8]).layers if hasattr(layer, "weight")
    ]
    assert shapes == [(16, 4 + 2 * 4 + 3), (8, 16)]
