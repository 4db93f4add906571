"""Check a network that a script gives, and make a run a given number of updates long."""

from __future__ import annotations

from typing import Any

from torch import nn

from ludus.core.errors import ConfigError
from ludus.games.game import FusedGame, Moves
from ludus.games.networks import shape_of, tried
from ludus.games.ppo.config import FusedPpoConfig


def check_network(network: object, game: FusedGame) -> nn.Module:
    """Return the network of a script; raise ConfigError unless it says what PPO asks for.

    For observations (B, O) it returns three things: logits or means (B, A), values (B,), and the log
    standard deviations (A,) where actions are numbers, else None.
    """
    network = getattr(network, "module", network)
    if not isinstance(network, nn.Module):
        raise ConfigError(f"{type(network).__name__} is no torch.nn.Module; derive it from that")
    role, name = game.roles[0], type(network).__name__
    actions = game.actions(role)
    num_outputs = actions.count if isinstance(actions, Moves) else len(actions.low)
    last = "None" if isinstance(actions, Moves) else f"log_std ({num_outputs},)"
    form = f"(outputs (B, {num_outputs}), values (B,), {last})"
    size = game.observation_size(role)
    found = tried(network, inputs=size, name=f"the network {name}")
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


def with_length(config: FusedPpoConfig, max_steps: int) -> tuple[FusedPpoConfig, list[str]]:
    """Return the config of a run of at least so many optimisation steps, in whole rounds, and a sentence
    for each key that had to change besides its length."""
    if max_steps < 1:
        raise ConfigError(f"fit was given max_steps={max_steps}; a run has one step at least")
    rounds = -(-max_steps // config.opts_a_round)
    fitted = config.model_copy(update={"max_rounds": rounds})
    changes = fitted.unreached()
    notes = [
        f"for fit(max_steps={max_steps}) '{key}' is {value} rather than {getattr(config, key)}"
        for key, value in changes.items()
    ]
    if rounds * config.opts_a_round != max_steps:
        notes.append(
            f"for fit(max_steps={max_steps}) the run makes {rounds * config.opts_a_round} optimisation"
            f" steps, {rounds} whole rounds of {config.opts_a_round}"
        )
    return config.replace(max_rounds=rounds, **changes), notes
