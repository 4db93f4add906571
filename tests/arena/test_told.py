"""An episode that is told shows the datum, who says what, who decides what, and what each gains by it."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

import ludus
from ludus.core.runtime import InMemoryRuntime
from tests.arena.sections import DIGITS, GRAPHS, TINY, parts
from tests.arena.small import MLP, small_arena


def told(section: dict[str, Any], index: int = 0, **changed: Any) -> tuple[Any, list[str]]:
    trainer: Any = ludus.build_trainer(small_arena(scenario=section, **changed))
    trainer.fit(runtime=InMemoryRuntime)
    return trainer, trainer.narrate(trainer.weights(), index)


def test_an_episode_is_told_from_its_datum_to_its_rewards() -> None:
    trainer, lines = told(TINY)
    row = int(re.match(r"datum (\d+), label [01]", lines[0])[1])  # type: ignore[index]
    bits = trainer.scenario_instance.test_dataset.data["bits"][row]
    assert lines[1] == "bits " + "".join(str(int(bit)) for bit in bits)
    assert re.fullmatch(r"round 1: prover says [0-2]", lines[2])
    assert re.fullmatch(r"round 2: verifier says [0-2], (accepts|rejects|goes on)", lines[3])
    assert re.fullmatch(r"rewards: verifier [+-]\d, prover [+-]\d", lines[-1])


def test_graphs_are_told_by_their_edges_and_nodes_by_their_graph() -> None:
    trainer, lines = told(GRAPHS)
    data = trainer.scenario_instance.test_dataset.data
    row = int(re.match(r"datum (\d+)", lines[0])[1])  # type: ignore[index]
    for place, name in enumerate("AB"):
        edges = re.findall(r"(\d)-(\d)", lines[1 + place])
        rebuilt = torch.zeros(8, 8)
        for one, other in edges:
            rebuilt[int(one), int(other)] = rebuilt[int(other), int(one)] = 1
        assert lines[1 + place].startswith(f"graph {name}: ")
        assert torch.equal(rebuilt, data["adjacency"][row, place])
    assert re.search(r"prover says [AB][0-7]$", lines[3])


def test_images_are_shown_and_patches_told_by_row_and_column() -> None:
    _, lines = told(DIGITS)
    assert len(lines[1:9]) == 8
    assert any(set(line) & set("#%@") for line in lines[1:9])
    assert re.search(r"prover says the patch in row [1-4], column [1-4]$", lines[9])


@pytest.mark.parametrize("kind", ["debate"])
def test_where_there_are_several_channels_they_are_named(kind: str) -> None:
    section = {
        "kind": kind, "max_message_rounds": 2, "min_message_rounds": 0, "sequential": False,
        "verifier_first": False, "prover0_first": None, "provers_hear_each_other": True,
        "shared_reward": False, "force_guess": None,
        "prover_reward": 1.0, "verifier_reward": 1.0, "verifier_incorrect_reward": -1.0,
        "verifier_terminated_reward": -1.0, "verifier_continue_reward": 0.0,
    }  # fmt: skip
    agents = {name: parts(MLP) for name in ("verifier", "prover0", "prover1")}
    _, lines = told(TINY, protocol=section, agents=agents)
    assert any(re.search(r"prover0 says \d in \w+", line) for line in lines)
