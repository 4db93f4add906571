"""The analyser `message_information`: the mutual information of an agent's symbols and the label.

Shapes: B episodes, T steps, A agents, C channels, V symbols, Y labels.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor

from ludus.arena.analyser import Analyser
from ludus.arena.libraries import TensorDictBase
from ludus.arena.playing.environment import Environment, MessageEnvironment
from ludus.config.base import StrictConfig
from ludus.config.registry import register
from ludus.core.errors import ConfigError


class MessageInformationParameters(StrictConfig):
    """No options."""

    kind: Literal["message_information"]
    """The mutual information of the symbols of each agent and the labels."""


@register("analyser", "message_information")
class MessageInformation(Analyser):
    """Estimates mutual information, in bits, by counting; biased upwards for few episodes and
    many symbols."""

    Config = MessageInformationParameters

    def analyse(
        self, rollouts: TensorDictBase, environment: Environment
    ) -> Mapping[str, Tensor | float]:
        """Return a number for each agent, 0 for those that say nothing."""
        if not isinstance(environment, MessageEnvironment):
            raise ConfigError(
                "'analysers' names message_information, which needs labels, but this scenario has none;"
                " take it out"
            )
        agents, y_BT = rollouts["agents"], rollouts["y"]
        is_label_BTY = torch.stack([y_BT == 0, y_BT == 1], -1).double()
        num_symbols = agents["message_logits"].shape[-1]
        symbols_V = torch.arange(num_symbols, device=y_BT.device)
        found: dict[str, Tensor | float] = {}
        for which, name in enumerate(environment.agent_names):
            said_BTC = agents["action"][..., which, 1:]
            is_said_BTC1 = agents["message_mask"][..., which, :, None]
            is_symbol_BTV = ((said_BTC[..., None] == symbols_V) & is_said_BTC1).double().sum(-2)
            joint_VY = torch.einsum("btv,bty->vy", is_symbol_BTV, is_label_BTY)
            found[name] = _mutual_information(joint_VY)
        return found


def _mutual_information(counts_VY: Tensor) -> Tensor:
    """Return the mutual information in bits of a table of counts, 0 of an empty one."""
    joint_VY = counts_VY / counts_VY.sum().clamp_min(1.0)
    apart_VY = joint_VY.sum(1, keepdim=True) * joint_VY.sum(0, keepdim=True)
    logs_VY = (
        torch.where(joint_VY > 0, joint_VY, 1.0).log2()
        - torch.where(joint_VY > 0, apart_VY, 1.0).log2()
    )
    found: Tensor = (joint_VY * logs_VY).sum()
    return found
