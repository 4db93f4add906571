"""Randomness with a name: seeds that do not depend on one another, and generators that can be put back."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from ludus.seeds import GlobalRandom, derive, forked, generator, seed_everything
from tests.store.test_codec import through_json


def draw() -> list[object]:
    """Draw from every global generator, the Gaussians that they keep for later among them."""
    return [
        torch.rand(3).tolist(),
        torch.randn(3).tolist(),
        np.random.random(2).tolist(),
        np.random.standard_normal(1).tolist(),
        random.random(),
        random.gauss(0, 1),
    ]


@pytest.mark.covers("002-D1")
def test_a_derived_seed_is_the_same_for_ever() -> None:
    assert derive(0, "global") == 4311698954293999207
    assert derive(7, "order", 3) == 8447054841603909260


def test_another_seed_name_or_counter_is_another_derived_seed() -> None:
    expected = {(0, "a", 0), (0, "a", 1), (0, "b", 0), (1, "a", 0), (0, "a/1", 0), (0, "a", 10)}
    assert len({derive(*key) for key in expected}) == len(expected)


@pytest.mark.parametrize("seed", [0, 1, 2**63 - 1])
def test_every_seed_is_a_seed_for_every_generator(seed: int) -> None:
    assert 0 <= derive(seed, "x") < 2**63
    assert generator(seed, "x").initial_seed() == derive(seed, "x")
    with forked():
        seed_everything(derive(seed, "x"))


def test_a_generator_depends_on_its_own_name_alone() -> None:
    one = torch.rand(4, generator=generator(5, "order", 2))
    torch.rand(100)
    generator(5, "other")
    assert torch.equal(torch.rand(4, generator=generator(5, "order", 2)), one)


def test_the_global_generators_go_on_where_they_were_saved() -> None:
    with forked(3):
        draw()
        state = through_json(GlobalRandom().state_dict())
        expected = [draw(), draw()]
        seed_everything(99)
        GlobalRandom().load_state_dict(state)
        assert [draw(), draw()] == expected


def test_saving_draws_nothing() -> None:
    with forked(3):
        expected = draw()
    with forked(3):
        GlobalRandom().state_dict()
        assert draw() == expected


def test_what_a_fork_draws_leaves_no_trace_even_if_it_fails() -> None:
    with forked(1):
        expected = draw()
    with forked(1):
        with pytest.raises(ZeroDivisionError), forked(7):
            draw()[len(draw()) // 0]
        with forked():
            draw()
        assert draw() == expected


def test_a_fork_with_a_seed_draws_the_same_whatever_came_before() -> None:
    with forked(7):
        expected = draw()
    draw()
    with forked(7):
        assert draw() == expected


def test_seeding_draws_as_torch_does_and_asks_for_no_device_that_is_not_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    asked: list[int] = []
    monkeypatch.setattr(torch.cuda, "manual_seed_all", asked.append)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    for is_there in (False, True):
        monkeypatch.setattr(torch.cuda, "is_available", lambda found=is_there: found)
        asked.clear()
        seed_everything(5)
        assert torch.equal(torch.rand(3), expected)
        assert bool(asked) == is_there
