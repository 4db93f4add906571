"""One seed of each kind that the benchmark arena_graphs asks for.

Shapes: N pairs, M nodes of a graph, S nodes that are marked in turn.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import ludus
from ludus.arena.scenarios.graph_isomorphism import GraphIsomorphism
from ludus.arena.scenarios.graph_isomorphism.colours import refined, scores

SIZES = {"7 to 11": [7, 8, 9, 10, 11], "7, 8": [7, 8]}
LAYERS = (0, 1, 2, 3, 5)
TESTED, BATCH, UPDATES_A_PASS, PASSES = 1000, 256, 30, 10
Bools = NDArray[np.bool_]
Outcome = dict[str, Any]


def computed(seed: int, sizes: str) -> Outcome:
    """Return the highest accuracies of verifiers of one layer and of two, alone and with a prover to ask."""
    one_NMM, other_NMM, mask_NM, y_N = _test_pairs(seed, SIZES[sizes])
    found = {}
    score_N = scores(one_NMM, other_NMM, mask_NM)
    for layers in (1, 2):
        told_N = (score_N > 0) & (score_N <= layers)
        questions = [
            _refuted(one_NMM, other_NMM, mask_NM, layers),
            _refuted(other_NMM, one_NMM, mask_NM, layers),
        ]
        refuted_NQ = np.concatenate(questions, 1) | told_N[:, None]
        asked_NQ = np.concatenate([mask_NM, mask_NM], 1)
        share_N = (refuted_NQ & asked_NQ).sum(1) / asked_NQ.sum(1)
        different_N = y_N == 0
        for name, right_N in {
            "alone": told_N,
            "at random": share_N,
            "the best question": (refuted_NQ & asked_NQ).any(1),
        }.items():
            accuracy = np.where(different_N, right_N, 1.0).mean()
            found[f"{layers} layers, {name}"] = float(accuracy)
    return {"scores": found, "score": 0.0, "curve": []}


def _refuted(asked_NMM: Bools, other_NMM: Bools, mask_NM: Bools, layers: int) -> Bools:
    """Return (N, M) whether no answer to a question about this node looks right after so many rounds."""
    asked_NSM = _marked(asked_NMM, mask_NM, layers)
    answers_NSM = _marked(other_NMM, mask_NM, layers)
    alike_NSS = (asked_NSM[:, :, None] == answers_NSM[:, None]).all(-1) & mask_NM[:, None, :]
    found: Bools = ~alike_NSS.any(-1)
    return found


def _marked(adjacency_NMM: Bools, mask_NM: Bools, layers: int) -> NDArray[np.uint64]:
    """Return (N, S, M) the sorted colours of a graph after so many rounds, each node marked in turn."""
    nodes = mask_NM.shape[1]
    colours_NMS = mask_NM[..., None].astype(np.uint64) + np.eye(nodes, dtype=np.uint64)
    for _ in range(layers):
        colours_NMS = refined(colours_NMS, adjacency_NMM, mask_NM)
    return np.sort(colours_NMS, 1).transpose(0, 2, 1)


def _test_pairs(seed: int, sizes: list[int]) -> tuple[Bools, Bools, Bools, NDArray[np.int64]]:
    scenario = ludus.example("vanilla_ppo").scenario.model_copy(
        update={"sizes": sizes, "test_size": TESTED, "train_size": 1, "validation_size": 1}
    )
    test = GraphIsomorphism(scenario).make_datasets(seed).test
    adjacency = test.data["adjacency"].numpy().astype(np.bool_)
    return adjacency[:, 0], adjacency[:, 1], test.data["node_mask"][:, 0].numpy(), test.y.numpy()


def learned(seed: int) -> Outcome:
    """Return what graph networks of each number of layers learn from labels, and what they can tell apart."""
    example = ludus.example("solo_agent", seed=seed)
    agent = example.agents["verifier"].model_dump()
    agents = {
        f"layers_{layers}": {
            **agent,
            "body": {"kind": "gnn", "num_layers": layers, "width": 32, "compares": False},
            "solo_head": {"widths": [64]},
        }
        for layers in LAYERS
    }
    config = example.replace(
        **{
            "agents": agents,
            "scenario.sizes": SIZES["7 to 11"],
            "scenario.train_size": BATCH * UPDATES_A_PASS,
            "scenario.test_size": TESTED,
            "max_iterations": PASSES,
            "solo_agent.batch_size": BATCH,
            "learning_rate_schedule": {
                "kind": "linear", "warmup_steps": 0, "final": 0.0, "total_steps": None
            },
            "max_grad_norm": None,
            "settings.display": "none",
            "settings.loggers": [],
            "settings.device": "cpu",
            "settings.threads": 1,
        }
    )  # fmt: skip
    trainer: Any = ludus.build_trainer(config)
    trainer.fit(name="run")
    last = json.loads(Path("runs/run/metrics.jsonl").read_text().splitlines()[-1])
    test = trainer.scenario_instance.test_dataset
    adjacency = test.data["adjacency"].numpy().astype(np.bool_)
    score_N = scores(adjacency[:, 0], adjacency[:, 1], test.data["node_mask"][:, 0].numpy())
    found = {}
    for layers in LAYERS:
        found[f"{layers} layers"] = last[f"test/layers_{layers}/accuracy"]
        told_N = (score_N > 0) & (score_N <= layers)
        right_N = np.where(test.y.numpy() == 0, told_N, True)
        found[f"{layers} layers, rejecting just what they tell apart"] = float(right_N.mean())
    return {"scores": found, "score": 0.0, "curve": []}
