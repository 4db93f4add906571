"""PolicyProgram: a trained policy as one torch network, from observations to the actions that an env takes.

Shapes: B observations, A outputs, K numbers of an action.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ludus.nn.export.numpy_net import Linear
from ludus.nn.export.numpy_policy import Kind, Normalisation


class PolicyProgram(nn.Module):
    """Normalises observations, computes the outputs and takes the greedy action, as NumpyPolicy does.

    Actions are int64 (B,) for one choice, (B, K) for several, or floats (B, K) within their bounds. With
    masks (B, A), true for the outputs that are allowed, it chooses among these.
    """

    mean: Tensor
    inv_std: Tensor
    low: Tensor
    high: Tensor

    def __init__(
        self,
        *,
        kind: Kind,
        action: object,
        body: nn.Module,
        heads: Mapping[str, nn.Module | Linear],
        normalisation: Normalisation | None,
    ) -> None:
        """See `save_policy` for the arguments."""
        super().__init__()
        self.body = body
        self.heads = nn.ModuleDict({name: _as_module(head) for name, head in heads.items()})
        self._kind: Kind = kind
        self._clip = None if normalisation is None else normalisation.clip
        self._starts: Sequence[int] = ()
        self._nvec: Sequence[int] = ()
        arrays: dict[str, Any] = {}
        if normalisation is not None:
            arrays |= {"mean": normalisation.mean, "inv_std": normalisation.inv_std}
        described: Any = action
        if hasattr(action, "n"):
            self._starts = (int(described.start),)
        elif hasattr(action, "nvec"):
            self._nvec, self._starts = tuple(described.nvec), tuple(described.starts)
        else:
            arrays |= {"low": described.low, "high": described.high}
        for name, array in arrays.items():
            self.register_buffer(name, torch.as_tensor(array, dtype=torch.float32).clone())

    def forward(self, obs: Tensor, masks: Tensor | None = None) -> Tensor:
        """Return an action for each observation."""
        if self._clip is not None:
            obs = ((obs - self.mean) * self.inv_std).clamp(-self._clip, self._clip)
        features = self.body(obs)
        if "advantage" in self.heads:
            advantage = self.heads["advantage"](features)
            outputs_BA = self.heads["value"](features) + advantage
        else:
            (head,) = self.heads.values()
            outputs_BA = head(features)
        outputs_BA = outputs_BA.float()
        if masks is not None:
            outputs_BA = outputs_BA.masked_fill(~masks, float("-inf"))
        return self._chosen(outputs_BA)

    def _chosen(self, outputs_BA: Tensor) -> Tensor:
        if self._nvec:
            blocks = zip(outputs_BA.split(list(self._nvec), 1), self._starts, strict=True)
            return torch.stack([block.argmax(1) + start for block, start in blocks], 1)
        if self._starts:
            return outputs_BA.argmax(1) + self._starts[0]
        if self._kind == "squashed":
            outputs_BA = self.low + (torch.tanh(outputs_BA) + 1) * 0.5 * (self.high - self.low)
        return torch.minimum(torch.maximum(outputs_BA, self.low), self.high)


def _as_module(head: nn.Module | Linear) -> nn.Module:
    """Return a layer; one of arrays becomes a torch layer."""
    if isinstance(head, nn.Module):
        return head
    outputs, inputs = head.weight.shape
    layer = nn.Linear(inputs, outputs, bias=head.bias is not None)
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy(head.weight.copy()))
        if head.bias is not None:
            layer.bias.copy_(torch.from_numpy(head.bias.copy()))
    return layer
