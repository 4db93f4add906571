"""The networks that a config can name have the shapes and layers it asks for."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from ludus import Model

MLP: dict[str, Any] = {
    "kind": "mlp",
    "inputs": 12,
    "widths": [7, 5],
    "outputs": 3,
    "activation": "relu",
    "layer_norm": False,
    "dropout": 0.0,
}
CNN: dict[str, Any] = {
    "kind": "cnn",
    "channels": 1,
    "height": 9,
    "width": 6,
    "blocks": [4, 8],
    "outputs": 3,
    "activation": "relu",
    "dropout": 0.25,
}


def names(model: Model) -> list[str]:
    return [type(layer).__name__ for layer in model.module.modules()]


def test_an_mlp_has_the_parameters_its_widths_say() -> None:
    model = Model(MLP)
    shapes = [tuple(parameter.shape) for parameter in model.module.parameters()]
    assert shapes == [(7, 12), (7,), (5, 7), (5,), (3, 5), (3,)]


def test_an_mlp_flattens_inputs_of_any_shape() -> None:
    model = Model(MLP).eval()
    inputs = torch.randn(4, 3, 2, 2)
    assert model(inputs).shape == (4, 3)
    assert torch.equal(model(inputs), model(inputs.reshape(4, 12)))


def test_an_mlp_without_hidden_layers_is_linear() -> None:
    model = Model({**MLP, "widths": []})
    one, two = torch.randn(2, 1, 12)
    bias = model.module.get_parameter("layers.0.bias")
    torch.testing.assert_close(model(one + two), model(one) + model(two) - bias)


@pytest.mark.parametrize("activation", ["relu", "tanh", "gelu", "silu"])
def test_an_mlp_is_the_slow_obvious_computation(activation: str) -> None:
    model = Model({**MLP, "activation": activation}).eval()
    functions = {"relu": torch.relu, "tanh": torch.tanh}
    apply = functions.get(activation, getattr(nn.functional, activation))
    weights = list(model.module.parameters())
    x = inputs = torch.randn(4, 12)
    for index in range(0, 6, 2):
        x = x @ weights[index].T + weights[index + 1]
        x = apply(x) if index < 4 else x
    torch.testing.assert_close(model(inputs), x)


def test_layer_norm_and_dropout_stand_where_they_are_asked_for() -> None:
    assert "LayerNorm" not in names(Model(MLP))
    assert "Dropout" not in names(Model(MLP))
    full = names(Model({**MLP, "layer_norm": True, "dropout": 0.5}))
    assert full[2:6] == ["Linear", "LayerNorm", "ReLU", "Dropout"]
    assert full[-1] == "Linear"


def test_a_cnn_takes_images_and_rows_alike() -> None:
    model = Model(CNN).eval()
    images = torch.randn(5, 1, 9, 6)
    assert model(images).shape == (5, 3)
    assert torch.equal(model(images), model(images.reshape(5, 54)))


def test_each_block_of_a_cnn_halves_the_image_rounding_up() -> None:
    model = Model(CNN)
    blocks = model.module.get_submodule("blocks")
    assert blocks(torch.randn(2, 1, 9, 6)).shape == (2, 8, 3, 2)
    assert model.module.get_parameter("head.1.weight").shape == (3, 8 * 3 * 2)


def test_a_cnn_of_many_blocks_still_has_a_pixel_left() -> None:
    model = Model({**CNN, "blocks": [2] * 6}).eval()
    assert model(torch.randn(2, 54)).shape == (2, 3)


def test_a_cnn_computes_in_eval_mode_without_chance() -> None:
    model = Model(CNN)
    inputs = torch.randn(6, 54)
    assert not torch.equal(model(inputs), model(inputs))
    model.eval()
    assert torch.equal(model(inputs), model(inputs))
