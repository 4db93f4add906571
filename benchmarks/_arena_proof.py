"""One run of each kind that the benchmark arena_proof compares; each returns its curve and its score."""

import json
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import cross_entropy

import ludus
from benchmarks import _arena_torchrl
from ludus.arena.build import build_scenario_instance
from ludus.arena.evaluation import ProtocolEvaluation

QUIET = {
    "settings.display": "none",
    "settings.loggers": [],
    "settings.device": "cpu",
    "settings.threads": 1,
    "evaluate_every_iterations": 10,
}
TESTS = 4
"""Iterations of 256 test episodes: 1,024 pairs."""
Outcome = dict[str, Any]


def with_prover(seed: int) -> Outcome:
    """Learn under nip with ludus."""
    return _learned(ludus.example("vanilla_ppo", seed=seed))


def with_random_prover(seed: int) -> Outcome:
    """Learn under nip with a prover that says any symbol."""
    data = ludus.example("vanilla_ppo", seed=seed).model_dump()
    never = {"kind": "constant", "learns": False}
    data["agents"]["prover"] = {"kind": "random", "update_schedule": never, "load": None}
    data["pretraining"]["agents"] = ["verifier"]
    return _learned(ludus.config.base.from_data(data, source="with a random prover"))


def alone(seed: int) -> Outcome:
    """Learn without a prover: one round, in which the verifier decides."""
    example = ludus.example("vanilla_ppo", seed=seed)
    data = example.model_dump()
    rewards = ("verifier_reward", "verifier_incorrect_reward", "verifier_terminated_reward")
    keys = {
        name: data["protocol"][name] for name in ("shared_reward", "force_guess", "prover_reward")
    }
    keys |= {name: data["protocol"][name] for name in rewards}
    data["protocol"] = {"kind": "solo_verifier"} | _taken("solo_verifier", keys)
    del data["agents"]["prover"]
    data["pretraining"]["agents"] = ["verifier"]
    data["rl"]["minibatch_size"] = data["rl"]["rollouts_per_iteration"] // 4
    return _learned(ludus.config.base.from_data(data, source="alone"))


def _taken(kind: str, keys: dict[str, Any]) -> dict[str, Any]:
    """Return those of these keys that this protocol has."""
    from ludus.config.registry import find

    known = find("protocol", kind).Config.model_fields
    return {name: value for name, value in keys.items() if name in known}


def _learned(config: Any) -> Outcome:
    trainer = ludus.build_trainer(config.replace(**QUIET))
    trainer.fit(name="run")
    rows = [json.loads(line) for line in Path("runs/run/metrics.jsonl").read_text().splitlines()]
    curve = [[row["iteration"], row["eval/accuracy"]] for row in rows if "eval/accuracy" in row]
    return {"score": rows[-1]["test/accuracy"], "curve": curve}


def supervised_verifier(seed: int) -> Outcome:
    """Learn the labels with the verifier's network."""
    return _supervised(seed, "verifier")


def supervised_prover(seed: int) -> Outcome:
    """Learn the labels with the prover's network."""
    return _supervised(seed, "prover")


def _supervised(seed: int, agent: str) -> Outcome:
    config = ludus.example("solo_agent", seed=seed)
    changes = {name: value for name, value in QUIET.items() if name.startswith("settings")}
    trainer = ludus.build_trainer(config.replace(**changes))
    trainer.fit(name="run")
    rows = [json.loads(line) for line in Path("runs/run/metrics.jsonl").read_text().splitlines()]
    key = f"eval/{agent}/accuracy"
    curve = [[row["iteration"], row[key]] for row in rows if key in row]
    return {"score": rows[-1][f"test/{agent}/accuracy"], "curve": curve}


def with_prover_by_torchrl(seed: int) -> Outcome:
    """Learn under nip with TorchRL's parts, from bodies that were pretrained by a plain loop."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    config = ludus.example("vanilla_ppo", seed=seed)
    instance = build_scenario_instance(
        config,
        device=torch.device("cpu"),
        trainer_type="rl",
        num_envs=config.rl.rollouts_per_iteration,
        num_judged=config.evaluation.episodes,
        use_shared_body=True,
    )
    _pretrain(instance, config.pretraining)
    evaluation, curve = ProtocolEvaluation(config, instance), []

    def look(iteration: int) -> None:
        if iteration % 10 == 0:
            curve.append([iteration, evaluation.validate()["accuracy"]])

    _arena_torchrl.make_trainer(config, instance, config.max_iterations, look).train()
    return {"score": evaluation.test(None, TESTS)["accuracy"], "curve": curve}


def _pretrain(instance: Any, section: Any) -> None:
    data, labels = instance.train_dataset.data, instance.train_dataset.y
    history = torch.full((len(labels), instance.protocol_handler.max_message_rounds, 1), -1)
    for index, name in enumerate(instance.agents.names):
        if name not in section.agents:
            continue
        body = instance.agents.member(name).body
        head = torch.nn.Sequential(
            torch.nn.Linear(body.width, 32), torch.nn.ReLU(), torch.nn.Linear(32, 2)
        )
        weights = [*body.parameters(), *head.parameters()]
        adam = torch.optim.Adam(weights, section.optimizer.learning_rate)
        for _ in range(section.iterations):
            for rows in torch.randperm(len(labels)).split(section.batch_size):
                batch = {key: tensor[rows] for key, tensor in data.items()}
                batch |= {"message_history": history[rows], "round": torch.zeros_like(rows)}
                seen = instance.agents.rows_of(index, batch)
                adam.zero_grad()
                cross_entropy(head(body(seen).whole), labels[rows]).backward()
                torch.nn.utils.clip_grad_norm_(weights, 1.0)
                adam.step()
