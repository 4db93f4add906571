"""Check a network given by a script."""

from __future__ import annotations

from typing import Any

from torch import nn

from ludus.core.errors import ConfigError
from ludus.games.game import FusedGame, Moves
from ludus.games.networks import shape_of, tried
from ludus.nn.model import without_model


def check_network(network: object, game: FusedGame) -> nn.Module:
    """Return the network of a script; raise ConfigError unless its outputs suit PPO.

    For observations (B, O) it returns three things: logits or means (B, A), values (B,), and the log
    standard deviations (A,) for continuous actions, else None.
    """
    network = without_model(network)
    if not isinstance(network, nn.Module):
        raise ConfigError(f"{type(network).__name__} is no torch.nn.Module; derive it from that")
    role, name = game.roles[0], type(network).__name__
    actions = game.actions(role)
    num_outputs = actions.count if isinstance(actions, Moves) else len(actions.low)
    last = "None" if isinstance(actions, Moves) else f"log_std ({num_outputs},)"
    form = f"(outputs (B, {num_outputs}), values (B,), {last})"
    size = game.observation_size(role)
    found = tried(network, inputs=size, name=f"the network {name}", learns=True)
    wanted: tuple[Any, ...] = (
        (2, num_outputs), (2,), None if isinstance(actions, Moves) else (num_outputs,)
    )  # fmt: skip
    shapes = tuple(map(shape_of, found)) if isinstance(found, tuple) else shape_of(found)
    if shapes != wanted:
        raise ConfigError(
            f"the network {name} returns {shapes} for 2 observations, not {wanted}; for"
            f" {type(game).__name__} it returns {form}"
        )
    return network
