"""A network is asked as it is now, by fused layers too; where it does not change, it is read once."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ludus.games.dqn.inference import Acting, Inference
from ludus.nn.learner import Learner
from ludus.nn.optimizer import Adam

ADAM = Adam(
    kind="adam", learning_rate=0.1, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.0
)  # fmt: skip


def acting() -> tuple[nn.Sequential, Acting]:
    """Return a network and how it is asked, by a copy of its weights as on a GPU."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3))
    made = Acting(
        Learner(net, ADAM, max_grad_norm=None, precision="bfloat16"), inputs=5, precision="bfloat16"
    )
    made._fused = Inference(net, inputs=5, precision="bfloat16")
    return net, made


def moved(net: nn.Sequential) -> Tensor:
    """Change the weights; return what the network says now."""
    with torch.no_grad():
        net[2].bias.add_(1.0)  # type: ignore[operator,union-attr]
        values: Tensor = net(torch.ones(2, 5))
        return values


def test_values_are_those_of_the_weights_of_the_moment() -> None:
    net, own = acting()
    for _ in range(3):
        wanted = moved(net)
        found = own.values(torch.ones(2, 5))
        assert found.dtype == torch.bfloat16
        assert torch.allclose(found.float(), wanted, atol=0.05)


def test_weights_are_read_once_where_they_do_not_change() -> None:
    net, own = acting()
    wanted = moved(net)
    with own.steady():
        moved(net)
        assert torch.allclose(own.values(torch.ones(2, 5)).float(), wanted, atol=0.05)
    assert torch.allclose(own.values(torch.ones(2, 5)).float(), wanted + 1, atol=0.05)


def test_a_network_that_is_no_chain_of_layers_any_more_is_called() -> None:
    net, own = acting()
    net.append(nn.Tanh())
    wanted = moved(net)
    with own.steady():
        assert torch.allclose(own.values(torch.ones(2, 5)).float(), wanted, atol=0.05)
