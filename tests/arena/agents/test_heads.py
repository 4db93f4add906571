"""How heads begin: a policy near the uniform one, values spread as the body says."""

from __future__ import annotations

import pytest
import torch

from ludus.arena.agents.body import Body, BodyFeatures
from ludus.arena.agents.heads import HeadParameters, PolicyHead, ValueHead


class Large(Body):
    has_symbols = False
    width = 8
    value_gain = 3.0


class Plain(Body):
    has_symbols = False
    width = 8


@pytest.mark.parametrize(
    ("body", "in_env", "gain"),
    [(Plain(), False, 0.1), (Plain(), True, 1.0), (Large(), False, 3.0), (Large(), True, 3.0)],
)
@pytest.mark.parametrize("widths", [[], [16]])
def test_values_begin_around_0_as_wide_as_the_body_says(
    body: Body, in_env: bool, gain: float, widths: list[int]
) -> None:
    head = ValueHead(HeadParameters(widths=widths), body, in_env=in_env)
    last = head.layers[-1]
    assert isinstance(last, torch.nn.Linear)
    assert last.weight.norm().item() == pytest.approx(gain)
    assert last.bias.item() == 0.0
    if not widths:
        source = torch.Generator().manual_seed(0)
        values = head(BodyFeatures(torch.randn(4096, 8, generator=source), None, None))
        assert values.mean().item() == pytest.approx(0.0, abs=0.1 * gain)
        assert values.std().item() == pytest.approx(gain, rel=0.1)


def test_a_policy_begins_near_the_uniform_one() -> None:
    head = PolicyHead(HeadParameters(widths=[]), Plain(), 1, num_symbols=5)
    said = head(
        BodyFeatures(torch.randn(64, 8, generator=torch.Generator().manual_seed(0)), None, None)
    )
    assert said.message.softmax(-1).sub(1 / 5).abs().max() < 0.02
    assert said.decision.softmax(-1).sub(1 / 3).abs().max() < 0.02
