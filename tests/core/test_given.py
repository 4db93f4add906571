"""A new run begins from what its config and its script gave, not from where the run before it ended."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import ludus
from ludus.core.runtime import InMemoryRuntime
from tests.command_line import small_config
from tests.conftest import modules_in
from tests.rl.small import small

CASES = modules_in("contracts/trainers")


class FirstWeights:
    """Keeps the weights with which each run begins."""

    def __init__(self) -> None:
        self.found: list[list[Tensor]] = []
        self.network: Any = None

    def before_train(self) -> None:
        self.found.append([weight.detach().clone() for weight in self.network.parameters()])


def begun_with(trainer: Any, network: nn.Module, *fits: Any) -> list[bool]:
    """Return, for each fit after the first, whether it began with the first's weights."""
    seen = FirstWeights()
    seen.network = network
    trainer.add(seen)
    for fit in fits:
        fit()
    first = seen.found[0]
    return [all(map(torch.equal, first, found)) for found in seen.found[1:]]


def test_a_second_run_begins_from_the_weights_that_were_given(tmp_path: Path) -> None:
    network, root = nn.Linear(13, 3), str(tmp_path)
    trainer: Any = ludus.Trainer(small_config(model=None, batch_size=20, max_epochs=1))
    trainer.set_model(network)
    given = [weight.detach().clone() for weight in network.parameters()]
    alike = begun_with(
        trainer,
        network,
        lambda: trainer.fit(root=root, name="one"),
        lambda: trainer.fit(root=root, name="two"),
        lambda: trainer.fit(runtime=InMemoryRuntime),
        lambda: (trainer.set_model(network), trainer.fit(root=root, name="on")),
        lambda: trainer.fit(root=root, name="again"),
    )
    assert alike == [True, True, False, False]
    states = [(tmp_path / name / "metrics.jsonl").read_text() for name in ("one", "two", "again")]
    assert states[0] == states[1] != states[2]
    assert not torch.equal(given[0], network.weight)


def test_both_roles_begin_each_run_with_the_networks_that_were_given(tmp_path: Path) -> None:
    config = CASES["fused_dqn"].make().config
    built: Any = ludus.build_trainer(config)
    built.prepare(max_steps=None)
    nets = {f"{role}_net": copy.deepcopy(built.get_net(role)) for role in ("host", "agent")}
    trainer: Any = type(built)(config, **nets)
    ends = []
    for name in ("one", "two"):
        trainer.fit(max_steps=6, root=str(tmp_path), name=name)
        ends.append((tmp_path / name / "metrics.jsonl").read_text())
    assert ends[0] == ends[1]


def test_an_agent_begins_each_run_with_the_body_that_was_given_and_copies_of_it(
    tmp_path: Path,
) -> None:
    trainer: Any = ludus.build_trainer(small("dqn"))
    trainer.set_model(nn.Sequential(nn.Linear(4, 8), nn.ReLU()))
    ends = []
    for name in ("one", "two"):
        trainer.fit(max_steps=6, root=str(tmp_path), name=name)
        ends.append((tmp_path / name / "metrics.jsonl").read_text())
    assert ends[0] == ends[1]
