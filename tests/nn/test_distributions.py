"""Distributions over actions: several choices at once, and both ways of sampling."""

from __future__ import annotations

import numpy as np
import torch

from ludus.nn.distributions import Categorical, MultiCategorical


def test_several_choices_are_drawn_each_by_its_own_logits_and_uniform_number() -> None:
    both = MultiCategorical((2, 3), (0, 5))
    logits = torch.randn(4000, 5, generator=torch.Generator().manual_seed(0))
    uniform = torch.rand(4000, both.num_draws, generator=torch.Generator().manual_seed(1))
    drawn = both.draw(logits, None, uniform)
    assert drawn.shape == (4000, both.width)
    for column, (size, start) in enumerate(((2, 0), (3, 2))):
        block, number = logits[:, start : start + size], uniform[:, column : column + 1]
        assert torch.equal(drawn[:, column], Categorical(size).draw(block, None, number))


def test_the_host_and_the_device_sample_the_same_distribution() -> None:
    logits = torch.tensor([[0.5, 1.0, -0.5]]).expand(30_000, 3)
    uniform = torch.rand(30_000, 1, generator=torch.Generator().manual_seed(0))
    three = Categorical(3, start=2)
    there = three.draw(logits, None, uniform)
    here = three.sample(logits.numpy(), None, None, np.random.default_rng(0))
    wanted = logits[0].softmax(0)
    for drawn in (there, torch.from_numpy(here)):
        torch.testing.assert_close(torch.bincount(drawn) / 30_000, wanted, atol=0.01, rtol=0.0)
    assert three.to_env(here).min() == 2
