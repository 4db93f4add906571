"""Update directions of agents in a Stackelberg sequence: a leader accounts for the followers' response.

Everything is computed from the loss of each agent, as a graph of the parameters of all of them, by products
of derivatives with vectors; no Hessian is ever formed.

Stackelberg (Fiez, Chasnov and Ratliff, 2020). Followers are where the gradient of their own losses is 0, so
that a leader's step moves them by minus the inverse of their Hessian times the mixed derivative. The leader
follows the total derivative of its loss: its gradient, less the mixed derivative of the follower's loss
times the inverse Hessian times the gradient of the leader's loss by the follower's parameters.

With three groups or more this is nested: a group in the middle is where its own total derivative is 0, with
the groups after it responding, so its response has the Jacobian of that total derivative in place of the
Hessian. Total derivatives are computed from the last group to the first, each as a graph of the parameters
that the groups before it differentiate again. Agents of one group respond to those before them and not to
each other.

LOLA (Foerster et al., 2018) in the form of Letcher et al. (2019). Followers take one gradient step of a
given rate, and the leader follows the gradient of its loss after that step, to first order in the rate: its
gradient, less rate times the mixed derivative of its own loss times the followers' gradients (looking
ahead), less rate times the mixed derivative of the followers' losses times its gradient by their parameters
(shaping). SOS weakens the shaping: by a factor of at most 1, so small that the direction does not oppose
looking ahead, and small near fixed points, where shaping would move agents away from them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ludus.arena.objectives.inverse_hessian import Product

Losses = Mapping[str, Tensor]
Parameters = Mapping[str, Sequence[Tensor]]
Groups = Sequence[Sequence[str]]
"""Agents from the leaders to the last followers."""
Directions = dict[str, Tensor]
"""For each agent one vector, over all its parameters in their order."""
Solve = Callable[[Product, Tensor], Tensor]
"""Returns the inverse of a Hessian, given by its products, times a vector."""


class Sos(NamedTuple):
    """The parameters by which stable opponent shaping weakens the shaping."""

    scaling: float
    """The share of the looking-ahead direction's length that must remain along it."""
    threshold: float
    """The norm of the gradients below which shaping fades with its square."""


def gradient(value: Tensor, parameters: Sequence[Tensor], *, is_graph: bool = False) -> Tensor:
    """Return the gradient of a number as one vector, 0 for parameters it does not depend on."""
    return _pulls(value, None, {"": parameters}, is_graph=is_graph)[""]


def _pulls(
    value: Tensor, weight: Tensor | None, parameters: Parameters, *, is_graph: bool
) -> Directions:
    """Return the vector-Jacobian product of a value, by the parameters of each agent; no weight: a number."""
    every = [one for own in parameters.values() for one in own]
    if value.requires_grad:
        found = torch.autograd.grad(
            value,
            every,
            grad_outputs=weight,
            create_graph=is_graph,
            retain_graph=True,
            materialize_grads=True,
        )
    else:
        found = tuple(torch.zeros_like(one) for one in every)
    pieces = iter(found)
    return {
        name: torch.cat([next(pieces).reshape(-1) for _ in own]) for name, own in parameters.items()
    }


def own_gradients(losses: Losses, parameters: Parameters) -> Directions:
    """Return the gradient of each agent's loss by its own parameters, as a graph."""
    return {name: gradient(losses[name], own, is_graph=True) for name, own in parameters.items()}


def stackelberg_directions(
    losses: Losses, parameters: Parameters, fields: Directions, groups: Groups, solve: Solve
) -> Directions:
    """Return the total derivative of each agent's loss, with all groups after its own responding.

    `fields` are the gradients that `own_gradients` returns.
    """
    nested = _Nested(parameters, groups, solve)
    # Nobody responds to the last group.
    nested.totals = {name: fields[name] for group in groups[-1:] for name in group}
    for level in reversed(range(len(groups) - 1)):
        for name in groups[level]:
            # Only the groups before a group differentiate its total derivative again.
            nested.totals[name] = nested.pulled(
                losses[name], None, [name], level, is_graph=level > 0
            )[name]
    return {name: nested.totals[name].detach() for group in groups for name in group}


class _Nested:
    """Derivatives that account for the response of the groups after a level."""

    def __init__(self, parameters: Parameters, groups: Groups, solve: Solve) -> None:
        self.parameters, self.groups, self.solve = parameters, groups, solve
        self.totals: Directions = {}
        """The total derivative of each follower's loss by its own parameters, as a graph."""

    def pulled(
        self,
        value: Tensor,
        weight: Tensor | None,
        wanted: Sequence[str],
        level: int,
        *,
        is_graph: bool,
    ) -> Directions:
        """Return weight times the total Jacobian of a value by the parameters of agents up to this level."""
        later = [name for group in self.groups[level + 1 :] for name in group]
        chosen = {name: self.parameters[name] for name in (*wanted, *later)}
        pulls = _pulls(value, weight, chosen, is_graph=is_graph)
        for depth in reversed(range(level + 1, len(self.groups))):
            between = [name for group in self.groups[level + 1 : depth] for name in group]
            above = [*wanted, *between]
            for follower in self.groups[depth]:
                answer = self.solve(self._jacobian(follower, depth, is_graph), pulls[follower])
                back = self.pulled(self.totals[follower], answer, above, depth, is_graph=is_graph)
                for name in above:
                    pulls[name] = pulls[name] - back[name]
        return {name: pulls[name] for name in wanted}

    def _jacobian(self, follower: str, depth: int, is_graph: bool) -> Product:
        """Return products with the Jacobian of a follower's total derivative by its own parameters."""
        total = self.totals[follower]
        return lambda vector: self.pulled(total, vector, [follower], depth, is_graph=is_graph)[
            follower
        ]


def lookahead_directions(
    losses: Losses,
    parameters: Parameters,
    fields: Directions,
    followers: Mapping[str, Sequence[str]],
    *,
    rate: float,
    sos: Sos | None = None,
) -> tuple[Directions, Tensor]:
    """Return the direction of each agent by LOLA, or by SOS, and its share of shaping."""
    ahead: Directions = {}
    shaping: Directions = {}
    for name, own in parameters.items():
        looked = shaped = fields[name].new_zeros(())
        for follower in followers[name]:
            pull = gradient(losses[name], parameters[follower], is_graph=True)
            looked = looked + pull.dot(fields[follower].detach())
            shaped = shaped + fields[follower].dot(pull.detach())
        ahead[name] = fields[name].detach() - rate * gradient(looked, own)
        shaping[name] = -rate * gradient(shaped, own)
    share = torch.ones_like(next(iter(ahead.values())).sum())
    if sos is not None:
        share = _share(fields, ahead, shaping, sos)
    return {name: ahead[name] + share * shaping[name] for name in ahead}, share


def _share(fields: Directions, ahead: Directions, shaping: Directions, sos: Sos) -> Tensor:
    """Return the share of the shaping that SOS keeps, by its two criteria."""
    crossed = _dot(shaping, ahead)
    by_length = torch.clamp(-sos.scaling * _dot(ahead, ahead) / crossed, max=1.0)
    by_length = torch.where(crossed >= 0, 1.0, by_length)
    detached = {name: field.detach() for name, field in fields.items()}
    square = _dot(detached, detached)
    near = torch.where(square < sos.threshold**2, square, 1.0)
    return torch.minimum(by_length, near)


def _dot(one: Directions, other: Directions) -> Tensor:
    return torch.stack([one[name].dot(other[name]) for name in one]).sum()
