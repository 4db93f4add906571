"""Epsilon-greedy action selection: a legal move for each game, by a network's values.

Shapes: B games, A moves.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ludus.games.kernels.triton_path import power_of_two, why_no_kernels

NUM_DRAWS = 2
"""Uniform random numbers per choice: one for whether to explore, one for which move."""
_GAMES = 128


def best(values_BA: Tensor, legal_BA: Tensor | None) -> Tensor:
    """Return (B,) the legal moves of greatest value, as int64; None means that all are legal.

    Ties go to the first move, and so does a game without a legal move.
    """
    if why_no_kernels(values_BA.device) is None:
        return _by_kernel(values_BA, legal_BA, None)
    return _best_by_tensors(values_BA, legal_BA)


def choose(values_BA: Tensor, legal_BA: Tensor | None, *, rate: Tensor, draws_B2: Tensor) -> Tensor:
    """Return (B,) epsilon-greedy moves among the legal ones, as int64; None means that all are legal.

    `rate` is epsilon as a tensor of one number, so that it may change between replays of a CUDA graph.
    draws_B2 are uniform in [0, 1). Where no move is legal the first one is returned.
    """
    if why_no_kernels(values_BA.device) is None:
        return _by_kernel(values_BA, legal_BA, (rate, draws_B2))
    return by_tensors(values_BA, legal_BA, rate=rate, draws_B2=draws_B2)


def by_tensors(
    values_BA: Tensor, legal_BA: Tensor | None, *, rate: Tensor, draws_B2: Tensor
) -> Tensor:
    """Return the same as `choose`, in plain PyTorch: the reference for the kernel."""
    if legal_BA is None:
        legal_BA = torch.ones_like(values_BA, dtype=torch.bool)
    drawn_B = _legal_at(legal_BA, draws_B2[:, 1])
    return torch.where(draws_B2[:, 0] < rate, drawn_B, _best_by_tensors(values_BA, legal_BA))


def _best_by_tensors(values_BA: Tensor, legal_BA: Tensor | None) -> Tensor:
    if legal_BA is not None:
        values_BA = values_BA.masked_fill(~legal_BA, -torch.inf)
    return values_BA.argmax(1)


def random_move(legal_BA: Tensor, generator: torch.Generator) -> Tensor:
    """Return (B,) a uniformly random legal move of each game, without a host sync."""
    return _legal_at(
        legal_BA, torch.rand(len(legal_BA), generator=generator, device=legal_BA.device)
    )


def _legal_at(legal_BA: Tensor, shares_B: Tensor) -> Tensor:
    """Return (B,) the legal move at this fraction, in [0, 1), of the legal moves; 0 where none is legal."""
    # Cumsum along columns: on a GPU it is much slower along rows of a few moves.
    places_BA = legal_BA.t().cumsum(0).t()
    wanted_B = (shares_B * places_BA[:, -1]).long()
    # The first move at which the count of legal moves exceeds the number to skip.
    return (places_BA > wanted_B.unsqueeze(1)).int().argmax(1)


def _by_kernel(
    values_BA: Tensor, legal_BA: Tensor | None, exploring: tuple[Tensor, Tensor] | None
) -> Tensor:
    """Return the moves by the kernel; `exploring` holds epsilon and the draws, and is None for greedy
    choices."""
    from ludus.games.kernels import choose_triton

    games, num_moves = values_BA.shape
    actions_B = torch.empty(games, dtype=torch.int64, device=values_BA.device)
    legal_BA = None if legal_BA is None else legal_BA.contiguous()
    # A pointer that is not read still has to be valid.
    rate, draws_B2 = exploring or (values_BA, values_BA)
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
        IS_EXPLORING=exploring is not None,
    )
    return actions_B
