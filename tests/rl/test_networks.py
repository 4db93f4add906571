"""Network bodies have the shape their config says, and NumPy computes them as torch does."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import TypeAdapter
from torch import nn

from ludus.config.sections import validate
from ludus.core.errors import ConfigError
from ludus.nn.actor_critic import head
from ludus.nn.export.numpy_net import NumpyMlp, numpy_steps
from ludus.nn.flat import FlatParameters
from ludus.rl.acting import acting_net
from ludus.rl.networks import _body
from ludus.rl.networks._body import NetworkSection, make_body
from ludus.rl.networks.cnn import CnnBody

MLP = {"kind": "mlp", "widths": [16, 8], "activation": "tanh", "layer_norm": False, "init": "torch"}
CNN = {
    "kind": "cnn",
    "channels": [4, 8],
    "kernels": [4, 3],
    "strides": [2, 1],
    "width": 10,
    "activation": "relu",
    "init": "orthogonal",
    "channels_last": False,
    "scale": 255.0,
}


def make(section: dict[str, Any], obs_shape: tuple[int, ...]) -> nn.Module:
    return make_body(TypeAdapter(NetworkSection).validate_python(section), obs_shape)


@pytest.mark.parametrize(
    ("changes", "obs_shape", "num_features"),
    [
        ({}, (5,), 8),
        ({"layer_norm": True, "activation": "gelu"}, (3, 2), 8),
        ({"widths": []}, (3, 2), 6),
        ({"widths": []}, (4,), 4),
    ],
)
def test_an_mlp_gives_as_many_features_as_it_says(
    changes: dict[str, Any], obs_shape: tuple[int, ...], num_features: int
) -> None:
    body = make({**MLP, **changes}, obs_shape)
    assert body.num_features == num_features
    assert body(torch.randn(7, *obs_shape)).shape == (7, num_features)


def test_an_mlp_ends_with_its_activation() -> None:
    body = make({**MLP, "activation": "relu"}, (5,))
    assert isinstance(body.layers, nn.Sequential)
    assert isinstance(body.layers[-1], nn.ReLU)
    assert (body(torch.randn(50, 5)) >= 0).all()


def test_an_mlp_takes_bytes_too() -> None:
    assert make(MLP, (3,))(torch.zeros(2, 3, dtype=torch.uint8)).dtype == torch.float32


def test_orthogonal_weights_keep_lengths_and_have_no_bias() -> None:
    torch.manual_seed(0)
    body = make({**MLP, "widths": [6], "init": "orthogonal"}, (6,))
    layer = body.layers[0]
    assert torch.allclose(layer.weight @ layer.weight.T, 2 * torch.eye(6), atol=1e-5)
    assert layer.bias.eq(0).all()
    last = head(6, 3, gain=0.01)
    assert torch.allclose(last.weight @ last.weight.T, 1e-4 * torch.eye(3), atol=1e-8)
    assert last.bias.eq(0).all()
    assert head(6, 3, gain=None).bias.ne(0).all()


def test_a_cnn_sees_the_same_image_in_either_order() -> None:
    torch.manual_seed(0)
    first = make(CNN, (3, 12, 10))
    last = make({**CNN, "channels_last": True}, (12, 10, 3))
    last.load_state_dict(first.state_dict())
    images = torch.randint(0, 256, (5, 3, 12, 10), dtype=torch.uint8)
    features = first(images)
    assert features.shape == (5, first.num_features) == (5, 10)
    assert torch.equal(features, last(images.permute(0, 2, 3, 1)))
    assert torch.allclose(features, first.layers(images / 255.0), atol=1e-6)


def test_an_image_too_small_for_its_kernels_is_named() -> None:
    with pytest.raises(ConfigError, match=r"convolution 2 has a kernel of 3.* 2 x 3 by then"):
        make(CNN, (1, 7, 8))
    with pytest.raises(ConfigError, match=r"no image.*mlp"):
        make(CNN, (4,))


def test_lists_that_describe_different_convolutions_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"list 2, 1 and 2 convolutions"):
        validate(CnnBody.Config, {**CNN, "kernels": [3]}, source="network")


@pytest.mark.parametrize("activation", ["relu", "tanh", "gelu", "silu"])
@pytest.mark.parametrize("layer_norm", [False, True])
@pytest.mark.parametrize("num", [1, 2, 8, 33])
def test_numpy_computes_what_torch_does(activation: str, layer_norm: bool, num: int) -> None:
    torch.manual_seed(1)
    body = make({**MLP, "activation": activation, "layer_norm": layer_norm}, (5, 2))
    net = nn.Sequential(body.layers, nn.Linear(8, 3))
    steps = numpy_steps(net)
    assert steps is not None
    numpy_net = NumpyMlp(steps)
    for scale in (1.0, 30.0):
        obs = scale * torch.randn(num, 5, 2)
        found = numpy_net(obs.numpy())
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, net(obs).detach().numpy(), rtol=1e-4, atol=2e-5)


def test_numpy_knows_both_ways_of_gelu() -> None:
    x = torch.linspace(-12, 12, 4001).reshape(1, -1)
    for approximate in ("none", "tanh"):
        net = nn.Sequential(nn.GELU(approximate=approximate))
        found = NumpyMlp(numpy_steps(net) or [])(x.numpy())
        np.testing.assert_allclose(found, net(x).numpy(), rtol=1e-5, atol=1e-6)


def test_numpy_sees_a_training_step_at_once() -> None:
    net = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2))
    flat = FlatParameters(net)
    numpy_net = NumpyMlp(numpy_steps(net) or [])
    obs = torch.randn(3, 4)
    before = numpy_net(obs.numpy()).copy()
    flat.vectors[0].mul_(1.5)
    after = numpy_net(obs.numpy())
    assert not np.allclose(before, after)
    np.testing.assert_allclose(after, net(obs).detach().numpy(), rtol=1e-5, atol=1e-6)


def test_numpy_takes_batches_of_every_size_and_type_in_turn() -> None:
    net = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2, bias=False))
    numpy_net = NumpyMlp(numpy_steps(net) or [])
    for num in [*range(100), 3, 1]:
        obs = np.linspace(-1, 1, num * 4).reshape(num, 4)
        expected = net(torch.tensor(obs, dtype=torch.float32)).detach().numpy()
        np.testing.assert_allclose(numpy_net(obs), expected, rtol=1e-5, atol=1e-6)


def test_a_nan_is_not_hidden() -> None:
    net = nn.Sequential(nn.Linear(1, 1), nn.ReLU())
    assert math.isnan(NumpyMlp(numpy_steps(net) or [])(np.array([[math.nan]]))[0, 0])


@pytest.mark.parametrize(
    "net",
    [
        nn.Sequential(nn.Linear(2, 2), nn.AlphaDropout(0.5)),
        nn.BatchNorm1d(2, track_running_stats=False),
        nn.Sequential(nn.Linear(2, 2).double()),
        nn.Sequential(nn.Linear(2, 2, device="meta")),
        nn.Sequential(nn.Flatten(0)),
        nn.Bilinear(2, 2, 2),
    ],
)
def test_numpy_declines_what_it_does_not_know(net: nn.Module) -> None:
    assert numpy_steps(net) is None


@pytest.mark.parametrize("affine", [False, True])
def test_numpy_computes_batch_norm_and_dropout_as_eval_mode_does(affine: bool) -> None:
    norm = nn.BatchNorm1d(6, affine=affine)
    net = nn.Sequential(nn.Linear(4, 6), norm, nn.Dropout(0.5), nn.Tanh(), nn.Linear(6, 2))
    numpy_net = NumpyMlp(numpy_steps(net) or [])
    obs = torch.randn(7, 4)
    for _ in range(3):
        # What training moves is seen at once.
        net.train()(torch.randn(16, 4) * 3 + 1)
        expected = net.eval()(obs).detach().numpy()
        np.testing.assert_allclose(numpy_net(obs.numpy()), expected, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(numpy_net(obs[:1].numpy()), expected[:1], rtol=1e-5, atol=1e-6)


def test_a_layer_on_the_last_axis_of_a_table_is_left_to_torch() -> None:
    """NumPy flattens observations at once, which is not what such a network does."""
    for net in (
        nn.Sequential(nn.Linear(3, 4), nn.Flatten()),
        nn.Sequential(nn.LayerNorm(3, elementwise_affine=False), nn.Flatten(), nn.Linear(6, 8)),
        nn.Sequential(nn.Flatten(), nn.Linear(6, 8)),
    ):
        obs = np.random.default_rng(0).normal(size=(5, 2, 3)).astype(np.float32)
        compute = acting_net([net], None, torch.device("cpu"), (2, 3))
        expected = net(torch.from_numpy(obs)).detach().numpy()
        np.testing.assert_allclose(compute(obs), expected, rtol=1e-5, atol=1e-6)


class Body(nn.Module):
    """A body of one's own with something amiss."""

    def __init__(self, amiss: str) -> None:
        super().__init__()
        self.amiss = amiss
        self.layer = nn.Linear(3, 5)
        if amiss != "silent":
            self.num_features: Any = 4 if amiss == "narrow" else 5.0 if amiss == "float" else 5

    def forward(self, obs: torch.Tensor) -> Any:
        if self.amiss == "raises":
            raise RuntimeError("no such thing\nand more")
        if self.amiss == "batch norm":
            return nn.functional.batch_norm(self.layer(obs), None, None, training=True)
        return [1] if self.amiss == "list" else self.layer(obs)


@pytest.mark.parametrize(
    ("amiss", "told"),
    [
        ("silent", "has num_features None; set self.num_features, in its __init__"),
        ("float", "has num_features 5.0; set self.num_features"),
        ("narrow", r"returns \(1, 5\) for one observation of shape \(3,\), not \(1, 4\)"),
        ("list", "returns list for one observation"),
        ("raises", "cannot take a batch of one observation .*RuntimeError: no such thing$"),
        ("batch norm", ".* in eval mode, as acting does: ValueError"),
    ],
)
def test_a_body_of_ones_own_that_does_not_fit_is_told_in_one_sentence(
    amiss: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_body, "find", lambda *names: lambda section, shape: Body(amiss))
    section: Any = SimpleNamespace(kind="mine")
    with pytest.raises(ConfigError, match=rf"^the network 'mine' \(Body\) {told}"):
        _body.make_body(section, (3,))
