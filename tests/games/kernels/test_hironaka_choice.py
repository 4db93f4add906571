"""Which path plays Hironaka's game: kernels or plain functions, by device and size, with the reason."""

from __future__ import annotations

import pytest
import torch

from ludus.games.kernels import hironaka as kernels, triton_path
from ludus.games.kernels.triton_path import power_of_two, why_no_kernels

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


def test_without_triton_the_reason_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton_path, "_has_triton", lambda: False)
    assert why_no_kernels(CUDA) == "triton is not installed (pip install triton)"


def test_with_triton_a_cuda_device_is_all_that_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(triton_path, "_has_triton", lambda: True)
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    assert why_no_kernels(CUDA) is None
    assert why_no_kernels(CPU) == "Triton kernels need a CUDA device, and this one is cpu"
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert why_no_kernels(CPU) is None


@pytest.mark.parametrize(
    ("shape", "dtype", "reason"),
    [
        ((2, 65, 3), torch.float32, "64 points in 8 dimensions at most, and a game has 65 in 3"),
        ((2, 20, 9), torch.float32, "64 points in 8 dimensions at most, and a game has 20 in 9"),
        ((2, 20, 3), torch.float64, "for float32, and the points are torch.float64"),
    ],
)
def test_games_that_the_kernels_cannot_hold_are_played_plainly(
    shape: tuple[int, int, int],
    dtype: torch.dtype,
    reason: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kernels, "why_no_kernels", lambda device: None)
    assert reason in str(kernels.why_not(torch.zeros(shape, dtype=dtype)))
    assert kernels.why_not(torch.zeros(2, 64, 8)) is None


def test_a_tile_has_the_least_power_of_two_that_holds_the_points() -> None:
    assert [power_of_two(n) for n in (1, 2, 3, 20, 32, 33)] == [1, 2, 4, 32, 32, 64]
