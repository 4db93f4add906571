"""Why a game, a network, a learner or a size cannot use the kernels of PPO: a sentence each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ludus.games.elementwise import Numbers, Outcome
from ludus.games.game import FusedGame, Moves, State, Step
from ludus.games.kernels import triton_path
from ludus.games.kernels.ppo.iteration import PpoNumbers
from ludus.games.kernels.ppo.layout import layout_of, why_no_kernels
from ludus.games.ppo.actor_critic import make_actor_critic
from ludus.games.rules import cartpole
from ludus.games.rules.cartpole import CartPole
from ludus.games.rules.pendulum import Pendulum
from ludus.games.rules.tic_tac_toe import TicTacToe
from ludus.nn.actor_critic import ActorCritic, perceptron
from ludus.nn.groups import Group
from ludus.nn.learner import Learner
from ludus.nn.optimizer import Adam, Sgd
from tests.games.ppo.test_plain import NUMBERS

ADAM = Adam(kind="adam", learning_rate=1e-3, beta1=0.9, beta2=0.999, eps=1e-5, weight_decay=0.0)
SGD = Sgd(kind="sgd", learning_rate=1e-3, momentum=0.0, nesterov=False, weight_decay=0.0)
STEEP = Adam(kind="adam", learning_rate=2.0, beta1=0.9, beta2=0.999, eps=1e-5, weight_decay=0.0)


class Wider(ActorCritic):
    """A network that might compute something else."""


def net(*widths: int) -> nn.Module:
    return make_actor_critic(4, Moves(2), widths)


class Longer(CartPole):
    """A game whose step is not that of its functions of numbers."""

    def play(self, state: State, role: str, actions: Tensor) -> Step:
        return super().play(state, role, 1 - actions)


def closing(wind: float) -> type[CartPole]:
    def advance(x: Tensor, v: Tensor, angle: Tensor, spin: Tensor, action: Tensor) -> Outcome:
        return cartpole.advance(x + wind, v, angle, spin, action)

    return type("Closing", (CartPole,), {"advance": staticmethod(advance)})


def by_torch(x: Tensor, v: Tensor, angle: Tensor, spin: Tensor) -> Numbers:
    return torch.erf(x), v, angle, spin


def with_default(x: Tensor, v: Tensor, angle: Tensor, spin: Tensor, scale: float = 1.0) -> Numbers:
    return x * scale, v, angle, spin


def endless(x: Tensor) -> Tensor:
    return endless(x)


def by_endless(x: Tensor, v: Tensor, angle: Tensor, spin: Tensor) -> Numbers:
    return endless(x), v, angle, spin


def seeing(features: Any) -> Any:
    """Return a game that shows other features; they are never computed here."""
    game = CartPole(max_steps=5)
    game.features = features
    return game


def wider() -> ActorCritic:
    return make_actor_critic(4, Moves(2), [8, 8], Wider)


def changed(change: Callable[[ActorCritic], object]) -> Learner:
    network = make_actor_critic(4, Moves(2), [8, 8])
    change(network)
    return learner(network)


def with_relu(network: ActorCritic) -> None:
    network.policy[1] = nn.ReLU()


def with_other_value(network: ActorCritic) -> None:
    network.value = perceptron(4, [8, 16], 1, gain=1.0)


def without_bias(network: ActorCritic) -> None:
    network.value[2] = nn.Linear(8, 8, bias=False)


def learner(network: nn.Module | None = None, config: Any = ADAM, **options: Any) -> Learner:
    return Learner(
        net(64, 64) if network is None else network, config, max_grad_norm=0.5, **options
    )


def why(
    game: FusedGame | None = None, learned: Learner | None = None, **numbers: Any
) -> str | None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(triton_path, "why_no_kernels", lambda device: None)
        return why_no_kernels(
            CartPole(max_steps=500) if game is None else game,
            learner() if learned is None else learned,
            PpoNumbers(**NUMBERS | numbers),
        )


@pytest.mark.covers("001-M10")
def test_a_usual_run_on_a_gpu_is_made_by_kernels() -> None:
    assert why() is None
    assert why(learned=learner(net(128, 24))) is None
    assert why(num_games=8192) is None


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_that_is_the_reason() -> None:
    given = CartPole(max_steps=500), learner(), PpoNumbers(**NUMBERS)
    found = why_no_kernels(*given)
    assert found == triton_path.why_no_kernels(torch.device("cpu"))


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"game": TicTacToe()}, "TicTacToe is not a game of numbers"),
        ({"game": Pendulum(max_steps=200)}, "the actions of Pendulum are not moves, but numbers"),
        ({"game": CartPole(max_steps=5, dtype=torch.float64)}, "torch.float64, not torch.float32"),
        ({"learned": learner(net(64))}, "two hidden layers of width 128 or less"),
        ({"learned": learner(net(64, 64, 64))}, "do not both have two hidden layers"),
        ({"learned": learner(net(64, 256))}, "do not both have two hidden layers"),
        (
            {"learned": learner(make_actor_critic(4, Moves(2), [8, 8], Wider))},
            "the network is Wider, not ActorCritic",
        ),
        ({"game": Longer(max_steps=5)}, "Longer has a function 'play' of its own"),
        ({"game": closing(0.1)(max_steps=5)}, "advance uses 'wind' of the function around it"),
        ({"game": seeing(by_torch)}, "by_torch uses 'torch', which a kernel does not know"),
        ({"game": seeing(with_default)}, "with_default has parameters with defaults"),
        ({"game": seeing(by_endless)}, "endless calls itself"),
        ({"game": seeing(torch.sin)}, "is not a function of a module"),
        ({"learned": changed(with_relu)}, "tanh after each, and nothing else"),
        ({"learned": changed(without_bias)}, "tanh after each, and nothing else"),
        ({"learned": changed(with_other_value)}, "of the value [4, 8, 16, 1]"),
        ({"learned": changed(lambda net: net.policy[2].weight.requires_grad_(False))}, "is frozen"),
        ({"learned": changed(lambda net: net.value.register_forward_hook(print))}, "has hooks"),
        ({"learned": learner(config=SGD)}, "the optimizer is sgd, not adam or adamw"),
        ({"learned": learner(config=STEEP)}, "the learning rate is above 1"),
        ({"learned": learner(ema_decay=0.9)}, "the weights have an EMA"),
        ({"learned": learner(precision="bfloat16")}, "the precision is bfloat16, not float32"),
        ({"learned": learner(groups=[Group("p", ("policy",))])}, "the parameters are in groups"),
        ({"num_games": 12}, "a rollout has 384 steps, which is not a power of two"),
        ({"num_minibatches": 3}, "not a power of two that 3 minibatches divide"),
        ({"rollout_steps": 8192}, "8192 steps a game, and at most 4096 fit"),
    ],
)
def test_each_reason_is_a_sentence(given: dict[str, Any], reason: str) -> None:
    found = why(**given)
    assert found is not None
    assert reason in found


def test_the_two_networks_are_found_in_the_flat_vector() -> None:
    network = make_actor_critic(4, Moves(3), [8, 16])
    layout = layout_of(learner(network), network)
    assert (layout.inputs, layout.first, layout.second, layout.outputs) == (4, 8, 16, 3)
    assert layout.policy_at == 0
    assert layout.value_at == 4 * 8 + 8 + 8 * 16 + 16 + 16 * 3 + 3
    assert layout.num_parameters == sum(weight.numel() for weight in network.parameters())
    assert layout.record == 8
    assert layout.width % 32 == 0
    assert layout.width >= layout.num_parameters + 8
