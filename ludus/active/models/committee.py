"""A committee: networks of one architecture with different initial weights, trained together.

Shapes: B examples, C classes, M members.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

from ludus.active.models.features import last_called
from ludus.core.errors import ConfigError
from ludus.nn.model import Inputs, Model, compute_loss, count_correct


class Members(nn.Module):
    """The networks of a committee; its outputs are the log of their mean probabilities."""

    def __init__(self, members: list[nn.Module], *, is_binary: bool) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)
        self._is_binary = is_binary

    def each(self, inputs: Inputs) -> list[Tensor]:
        """Return the outputs of each member."""
        return [member(inputs) for member in self.members]

    def forward(self, inputs: Inputs) -> Tensor:
        """Return joint outputs of the same kind as a member's."""
        return self.joined(self.each(inputs))

    def joined(self, outputs: list[Tensor]) -> Tensor:
        """Return the outputs of the committee, given those of its members."""
        stacked = torch.stack(outputs).float()
        if self._is_binary:
            return stacked.sigmoid().mean(0).clamp(1e-7, 1 - 1e-7).logit()
        return stacked.log_softmax(-1).logsumexp(0)


class Committee(Model):
    """Trains every member on the same batches, each by its own loss."""

    module: Members

    def members(self, inputs: Inputs) -> list[Tensor]:
        """Return the outputs of each member for a batch."""
        return self.module.each(inputs)

    def training_step(self, batch: tuple[Inputs, Tensor], batch_idx: int) -> dict[str, Tensor]:
        """Return the mean loss of the members, each with its own gradient, and the joint accuracy.

        `max_grad_norm` applies to all members together: if one has a large gradient, all are clipped.
        """
        assert self.loss is not None
        inputs, targets = batch
        outputs = self.module.each(inputs)
        losses = [compute_loss(self.loss, one, targets) for one in outputs]
        joined = self.module.joined([one.detach() for one in outputs])
        total = torch.stack(losses).sum()
        return {
            # The value is the mean, comparable with validation; the gradient is that of the sum, as a mean
            # would shrink each member's gradient with the number of members.
            "loss": total.detach() / len(losses) + (total - total.detach()),
            "correct": count_correct(self.loss, joined, targets),
        }

    def evaluation_step(self, batch: Any, batch_idx: int) -> dict[str, Tensor]:
        """Return the loss of the committee as a whole."""
        return super().training_step(batch, batch_idx)


def make_committee(model: Model, count: int, *, is_trained: bool = False) -> Committee:
    """Return a committee whose first member is this model's network.

    The others are copies whose layers are reinitialised where they have reset_parameters: not frozen ones,
    and in a pre-trained network only the last linear layer, to keep what it has learned.
    """
    if type(model) is not Model:
        raise ConfigError(
            f"a committee trains plain networks by the loss of the config, and {type(model).__name__} is a"
            " Model of its own; give its network alone, or use a strategy without a committee"
        )
    others = [_reinitialised(model.module, is_trained=is_trained) for _ in range(1, count)]
    is_binary = model.loss == "binary_cross_entropy"
    committee = Committee(Members([model.module, *others], is_binary=is_binary), loss=model.loss)
    committee.architecture = f"{model.architecture}_x{count}"
    return committee


def check_members(committee: Committee, inputs: Inputs, *, is_trained: bool) -> None:
    """Raise ConfigError if all members are equal, or have lost their pre-trained weights."""
    first, second = committee.module.members[0], committee.module.members[1]
    pairs = zip(first.named_parameters(), second.parameters(), strict=True)
    other = [name for (name, one), two in pairs if not torch.equal(one, two)]
    if not other:
        raise ConfigError(
            "no layer that can be reinitialised draws its weights, so all members of the committee are the"
            " same; give the network a linear layer, or use a strategy without a committee"
        )
    called = last_called(second, lambda: committee(inputs))
    last = [name for name, one in second.named_modules() if one is called]
    if is_trained and last and not all(name.startswith(f"{last[0]}.") for name in other):
        raise ConfigError(
            f"of a trained network the linear layer that is listed last is reinitialised in each member, and"
            f" this one calls {last[0]} last; let its __init__ make the head last"
        )


def _reinitialised(module: nn.Module, *, is_trained: bool) -> nn.Module:
    copy = deepcopy(module)
    layers = [
        layer for layer in copy.modules() if callable(getattr(layer, "reset_parameters", None))
    ]
    if not layers:
        raise ConfigError(
            f"no layer of {type(module).__name__} has a method reset_parameters, so all members of a"
            " committee would be the same; give it one, or use a strategy without a committee"
        )
    layers = [one for one in layers if any(weight.requires_grad for weight in one.parameters())]
    if is_trained:
        linear = [one for one in layers if isinstance(one, nn.Linear)]
        layers = [*layers, *linear][-1:]
    if not layers:
        raise ConfigError(
            f"every layer of {type(module).__name__} that could be reinitialised is frozen, so all members of"
            " a committee would be the same; let its last layer learn, or use a strategy without a committee"
        )
    frozen = [(one, one.detach().clone()) for one in copy.parameters() if not one.requires_grad]
    for layer in layers:
        layer.reset_parameters()  # type: ignore[operator]
    # A partly frozen layer is reinitialised as a whole.
    with torch.no_grad():
        for one, before in frozen:
            one.copy_(before)
    return copy
