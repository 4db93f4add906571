"""A new run begins from what its model was when it was first given; what a script does between is told."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import OrderedDict
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn

import ludus
from ludus.core import ConfigError
from ludus.session import first_state
from tests.supervised.conftest import Tiny


class Pair(NamedTuple):
    mean: torch.Tensor
    name: str


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.LazyLinear(3))


def trainer_of(net: nn.Module, tiny: Tiny) -> Any:
    trainer = ludus.build_trainer(tiny(max_opt_steps=2))
    trainer.set_model(net)
    return trainer


def told(root: Path, name: str) -> list[str]:
    lines = (root / name / "events.jsonl").read_text().splitlines()
    events = [json.loads(line) for line in lines]
    return [event["reason"] for event in events if event["event"] == "model_put_back"]


def test_a_model_that_a_script_changed_between_two_runs_is_put_back_and_that_is_told(
    tiny: Tiny, tmp_path: Path
) -> None:
    net = network()
    trainer = trainer_of(net, tiny)
    trainer.fit(root=str(tmp_path), name="first")
    trained = {name: one.clone() for name, one in net.state_dict().items()}
    trainer.fit(root=str(tmp_path), name="second")
    assert [told(tmp_path, name) for name in ("first", "second")] == [[], []]
    with torch.no_grad():
        net[1].weight.fill_(7)
    trainer.fit(root=str(tmp_path), name="third")
    (sentence,) = told(tmp_path, "third")
    assert "call set_model" in sentence
    assert all(torch.equal(one, trained[name]) for name, one in net.state_dict().items())
    with torch.no_grad():
        net[1].weight.fill_(7)
    trainer.set_model(net)
    trainer.fit(root=str(tmp_path), name="fourth")
    assert told(tmp_path, "fourth") == []
    assert not torch.equal(net[1].weight, trained["1.weight"])


def test_a_model_with_another_layer_than_at_first_is_refused_in_a_sentence(
    tiny: Tiny, tmp_path: Path
) -> None:
    net = network()
    trainer = trainer_of(net, tiny)
    trainer.fit(root=str(tmp_path), name="first")
    net[1] = nn.Sequential(nn.LazyLinear(5), nn.Linear(5, 3))
    with pytest.raises(
        ConfigError, match=r"other layers than when .* give it again, with set_model"
    ):
        trainer.fit(root=str(tmp_path), name="second")


def test_a_copied_state_is_of_the_same_kinds_and_shares_nothing() -> None:
    state: Any = OrderedDict(weight=torch.ones(3), pair=Pair(torch.zeros(2), "mine"), more=[1, "a"])
    state._metadata = {"": {"version": 2}}
    copied = first_state.copied(state)
    assert (type(copied), type(copied["pair"])) == (OrderedDict, Pair)
    assert copied._metadata == {"": {"version": 2}}
    state["weight"].add_(1)
    state["pair"].mean.add_(1)
    assert (copied["weight"].tolist(), copied["pair"].mean.tolist()) == ([1, 1, 1], [0, 0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bool, torch.int64, torch.bfloat16])
def test_a_digest_is_another_when_any_number_is(dtype: torch.dtype) -> None:
    state = {"many": torch.zeros(7, 31, dtype=dtype), "one": torch.zeros((), dtype=dtype)}
    before = first_state.digest(state)
    assert first_state.digest(first_state.copied(state)) == before
    state["one"].fill_(1)
    assert first_state.digest(state) != before
    assert first_state.digest([torch.eye(3).to_sparse()]) is None


def test_the_core_knows_no_torch() -> None:
    code = "import ludus.core.trainer, sys; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
