"""The net_arch language makes the networks it says, and names the element that it cannot read."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

from ludus.core.errors import ConfigError
from ludus.games.networks import ResidualBlock, check_apart, check_net, make_net


def kinds(net: nn.Module) -> list[str]:
    return [type(layer).__name__ for layer in net.children()]


@pytest.mark.covers("001-S6")
def test_widths_batch_norm_residuals_and_repeats_are_layers() -> None:
    net = make_net([8, "b", {"repeat": 2, "net_arch": [6, "b"]}, "r5", 4], 3, 2)
    normed = ["Linear", "BatchNorm1d", "ReLU"]
    rest = ["ResidualBlock", "ReLU", "Linear", "ReLU", "Linear"]
    assert kinds(net) == normed * 3 + rest
    widths = [layer.out_features for layer in net if isinstance(layer, nn.Linear)]
    assert widths == [8, 6, 6, 4, 2]
    assert net(torch.zeros(7, 3)).shape == (7, 2)


def test_repeats_may_stand_in_repeats() -> None:
    inner = {"repeat": 3, "net_arch": [4]}
    net = make_net([{"repeat": 2, "net_arch": [inner, 5]}], 3, 2)
    assert [layer.out_features for layer in net if isinstance(layer, nn.Linear)] == [
        4, 4, 4, 5, 4, 4, 4, 5, 2,
    ]  # fmt: skip


@pytest.mark.covers("001-S6")
def test_a_residual_block_adds_its_input_projected_where_widths_differ() -> None:
    same, other = ResidualBlock(4, 4).eval(), ResidualBlock(4, 3).eval()
    for block in (same, other):
        for parameter in block.layers.parameters():
            nn.init.zeros_(parameter)
    x = torch.randn(5, 4)
    assert torch.equal(same(x), x)
    assert torch.equal(other(x), other.skip(x))


@pytest.mark.covers("001-D5")
def test_padding_is_not_a_point_at_the_origin() -> None:
    net = make_net([16], 2, 3)
    assert not torch.allclose(net(torch.tensor([[-1.0, -1.0]])), net(torch.zeros(1, 2)))


@pytest.mark.covers("001-D5")
def test_an_activation_stands_before_the_output_layer() -> None:
    for arch in ([8], [8, "b"], ["r8"], [{"repeat": 2, "net_arch": [8]}]):
        assert kinds(make_net(arch, 3, 2))[-2:] == ["ReLU", "Linear"]


@pytest.mark.parametrize(
    ("arch", "told"),
    [
        ([8, "x"], "'net_arch.1' is 'x'; an element is a width"),
        (["b", 8], "'net_arch.0' is b, batch norm of the layer before it"),
        (["r0"], "'net_arch.0' is 'r0'"),
        ([8, 0], "'net_arch.1' must be greater than or equal to 1"),
        ([8, 1.5], "'net_arch.1' must be a whole number or text"),
        ([{"repeat": 2, "net_arch": [8, "q"]}], "'net_arch.0.net_arch.1' is 'q'"),
        ([{"repeat": 2}], "'net_arch.0.net_arch' is missing"),
        ([{"repeat": 10**9, "net_arch": [8]}], "more than 1000 layers"),
        ([2**21], "'net_arch.0' is 2097152; the widest layer"),
    ],
)
def test_a_wrong_element_is_named(arch: Any, told: str) -> None:
    with pytest.raises(ConfigError) as refused:
        make_net(arch, 3, 2)
    assert told in str(refused.value)


def test_a_network_of_ones_own_must_give_a_value_for_each_action() -> None:
    net = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    means = net[1].running_mean.clone()
    assert check_net(net, role="host", inputs=3, outputs=2) is net
    assert net.training, "its mode is left as it was"
    assert torch.equal(net[1].running_mean, means)
    with pytest.raises(
        ConfigError, match=r"gives \(2, 2\) for 2 observations; the host has 4 actions"
    ):
        check_net(net, role="host", inputs=3, outputs=4)
    with pytest.raises(
        ConfigError, match=r"agent_net, a Sequential, cannot take observations of shape \(B, 5\)"
    ):
        check_net(net, role="agent", inputs=5, outputs=2)
    with pytest.raises(ConfigError, match="host_net is a str; give a torch"):
        check_net("net", role="host", inputs=3, outputs=4)


class Given(nn.Module):
    """Gives what a function makes of its layer's values."""

    def __init__(self, made: Any) -> None:
        super().__init__()
        self.layer, self.made = nn.Linear(3, 2), made

    def forward(self, obs: torch.Tensor) -> Any:
        return self.made(self.layer(obs))


@pytest.mark.parametrize(
    ("net", "told"),
    [
        (nn.LazyLinear(2), r"has layers without a size yet; call it once with .* \(1, 3\)"),
        (nn.Sequential(nn.Linear(3, 2), nn.LazyBatchNorm1d()), "has layers without a size yet"),
        (Given(lambda values: values.long()), "gives numbers of type torch.int64; give floats"),
        (Given(lambda values: values.detach()), "cannot learn: no gradient comes back"),
        (nn.Linear(3, 2).requires_grad_(False), "cannot learn: no gradient comes back"),
        (nn.Identity(), r"gives \(2, 3\) for 2|cannot learn"),
    ],
)
def test_a_network_that_cannot_be_trained_is_told_before_it_plays(net: Any, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        check_net(net, role="host", inputs=3, outputs=2, learns=True)


def test_a_network_that_only_plays_needs_no_gradient() -> None:
    for net in (Given(lambda values: values.detach()), nn.Linear(3, 2).requires_grad_(False)):
        assert check_net(net, role="host", inputs=3, outputs=2) is net


def test_networks_that_share_a_parameter_are_told_by_role() -> None:
    trunk = nn.Linear(3, 8)
    one, other = (nn.Sequential(trunk, nn.Linear(8, 2)) for _ in range(2))
    with pytest.raises(ConfigError, match="host_net and agent_net share parameters"):
        check_apart({"host": one, "agent": other})
    check_apart({"host": one, "agent": copy.deepcopy(other)})
    trunk.requires_grad_(False)
    check_apart({"host": one, "agent": other})  # what nobody learns may be shared
