"""Choose a legal move for each game: the best by a network's values, or with some probability any other.

Shapes: B games, A moves.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ludus.games.kernels.triton_path import power_of_two, why_no_kernels

NUM_DRAWS = 2
"""How many uniform random numbers a choice takes: whether to explore, and which move then."""
_GAMES = 128


def choose(values_BA: Tensor, legal_BA: Tensor | None, *, rate: Tensor, draws_B2: Tensor) -> Tensor:
    """Return (B,) epsilon-greedy moves among the legal ones, as int64; None means that all are legal.

    `rate` is a tensor of one number, so that it may change between replays of a CUDA graph. draws_B2 are
    uniform in [0, 1). Where no move is legal the first one is returned.
    """
    if why_no_kernels(values_BA.device) is None:
        return _by_kernel(values_BA, legal_BA, rate, draws_B2)
    return by_tensors(values_BA, legal_BA, rate=rate, draws_B2=draws_B2)


def by_tensors(
    values_BA: Tensor, legal_BA: Tensor | None, *, rate: Tensor, draws_B2: Tensor
) -> Tensor:
    """Return what `choose` does, by PyTorch alone: the reference of the kernel."""
    if legal_BA is None:
        legal_BA = torch.ones_like(values_BA, dtype=torch.bool)
    best_B = values_BA.masked_fill(~legal_BA, -torch.inf).argmax(1)
    places_BA = legal_BA.t().cumsum(0).t()
    wanted_B = (draws_B2[:, 1] * places_BA[:, -1]).long()
    # The first move before which, itself included, stand more legal ones than are to be skipped.
    drawn_B = (places_BA > wanted_B.unsqueeze(1)).int().argmax(1)
    return torch.where(draws_B2[:, 0] < rate, drawn_B, best_B)


def _by_kernel(
    values_BA: Tensor, legal_BA: Tensor | None, rate: Tensor, draws_B2: Tensor
) -> Tensor:
    from ludus.games.kernels import choose_triton

    games, num_moves = values_BA.shape
    actions_B = torch.empty(games, dtype=torch.int64, device=values_BA.device)
    legal_BA = None if legal_BA is None else legal_BA.contiguous()
    choose_triton.choose_kernel[(-(-games // _GAMES),)](
        values_BA,
        values_BA if legal_BA is None else legal_BA.view(torch.uint8),
        rate,
        draws_B2,
        actions_B,
        games,
        values_BA.stride(0),
        draws_B2.stride(0),
        A=num_moves,
        P=power_of_two(num_moves),
        G=_GAMES,
        IS_MASKED=legal_BA is not None,
    )
    return actions_B
