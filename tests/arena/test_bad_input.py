"""Mistakes in the arena are told in one sentence, with the remedy, before anything is trained."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import ludus
from ludus.arena.playing.dataset import ArenaDataset
from ludus.config.minibatches import nearest_divisor
from ludus.core.errors import ConfigError
from ludus.core.runtime import InMemoryRuntime
from tests.arena.sections import ALWAYS, EVEN_RATES, NEVER, parts
from tests.arena.small import MLP, small_arena
from tests.arena.small_solo import small_solo

NARROW = {"kind": "mlp", "widths": [4]}
CNN = {"kind": "cnn", "num_layers": 1, "width": 4, "sees": "all"}
STILL = dict.fromkeys(EVEN_RATES, 0.0)
ALONE = {"kind": "solo_verifier", "force_guess": None, "verifier_reward": 1.0,
         "verifier_incorrect_reward": -1.0, "verifier_terminated_reward": -1.0}  # fmt: skip
RANDOM = {"kind": "random", "load": None, "update_schedule": ALWAYS}


def both(verifier: Any, prover: Any) -> dict[str, Any]:
    return {"agents": {"verifier": verifier, "prover": prover}}


MISTAKES: dict[str, tuple[dict[str, Any], str]] = {
    "an agent that the protocol does not have": (
        {"agents": {"verifier": parts(MLP), "proover": parts(MLP)}},
        "'agents.proover': the protocol nip has no agent 'proover'. Did you mean 'prover'?",
    ),
    "an agent named as an attribute of torch's modules": (
        {"agents": {"verifier": parts(MLP), "keys": parts(MLP)}},
        "'agents.keys': no agent can be named 'keys', for modules of torch have an attribute of that",
    ),
    "an agent that is not described": (
        {"agents": {"verifier": parts(MLP)}},
        "'agents': the protocol nip needs an agent 'prover'; describe it there",
    ),
    "nobody learns": (
        both(parts(MLP, update_schedule=NEVER), parts(MLP, update_schedule=NEVER)),
        "'agents': all agents, verifier, prover, are frozen in all 3 iterations, so nothing would be",
    ),
    "the only agent is frozen": (
        {"protocol": ALONE, "agents": {"verifier": parts(MLP, update_schedule=NEVER)},
         "rl.minibatch_size": 4},
        "'agents': the only agent, verifier, is frozen in all 3 iterations, so nothing would be learned",
    ),
    "all rates are 0": (
        both(parts(MLP, learning_rate_factors=STILL), parts(MLP, update_schedule=NEVER)),
        "let an 'update_schedule' learn, at a rate above 0",
    ),
    "bodies that are to be shared differ": (
        both(parts(MLP), parts(NARROW, shares_body_of="verifier")),
        "'agents.prover.shares_body_of' is verifier, but their bodies are described differently",
    ),
    "a body that nobody has": (
        both(parts(MLP), parts(MLP, shares_body_of="oracle")),
        "'agents.prover.shares_body_of' is oracle, which is no other agent with a body; name one",
    ),
    "a minibatch that does not divide": (
        {"rl.minibatch_size": 5},
        "'rl.minibatch_size' is 5, which does not divide the 16 steps of an iteration (rollouts x rounds, or"
        " steps); try 4",
    ),
    "steps of an env where rounds say it": (
        {"rl.steps_per_env_per_iteration": 3},
        "'rl.steps_per_env_per_iteration' is 3, but a protocol's rounds say how many steps",
    ),
    "an analyser twice": (
        {"analysers": [{"kind": "message_information"}] * 2},
        "'analysers' names message_information 2 times; once is enough",
    ),
    "workers": ({"settings.workers": 2}, "'settings.workers' is 2, but data and episodes are tensors"),
    "epochs of checkpoints": (
        {"settings.checkpoint.every_epochs": 1},
        "'settings.checkpoint.every_epochs' is 1, but a run counted in iterations has no epochs",
    ),
    "a record that is never reached": (
        {"log_every_iterations": 9},
        "'log_every_iterations' is 9, but 'max_iterations' is 3: it would never be reached",
    ),
    "a random agent that is to learn": (
        both(parts(MLP), RANDOM),
        "'update_schedule' lets a random agent learn, which has no weights; make it",
    ),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_config_with_a_mistake_is_refused_in_a_sentence(mistake: str) -> None:
    changed, told = MISTAKES[mistake]
    with pytest.raises(ConfigError) as caught:
        small_arena(**changed)
    assert told in " ".join(str(caught.value).split())


def test_agents_that_learn_alone_have_no_use_for_workers_either() -> None:
    with pytest.raises(ConfigError, match=r"'settings.workers' is 1, but data"):
        small_solo(**{"settings.workers": 1})


@pytest.mark.parametrize(
    "name", ["keys", "values", "type", "train", "training", "forward", "pop", "update", "eval"]
)
def test_an_agent_named_as_torch_names_what_modules_have_is_refused(name: str) -> None:
    with pytest.raises(ConfigError) as caught:
        small_solo(agents={name: parts(MLP)})
    assert f"'agents.{name}': no agent can be named '{name}', for modules of torch have" in str(
        caught.value
    )
    assert f"choose another, such as '{name}_0'" in str(caught.value)


def test_a_name_that_only_holds_such_a_word_is_the_name_of_its_weights() -> None:
    trainer: Any = ludus.build_trainer(small_solo(agents={"keys_0": parts(MLP)}))
    trainer.fit(runtime=InMemoryRuntime)
    assert {name.split(".")[:2][1] for name in trainer.weights() if "." in name} == {"keys_0"}


def test_data_that_a_body_needs_and_the_scenario_lacks_are_named(tmp_path: Path) -> None:
    trainer = ludus.build_trainer(small_arena(**both(parts(CNN), parts(MLP))))
    with pytest.raises(ConfigError) as caught:
        trainer.fit(root=str(tmp_path), name="no-image")
    assert "'agents.verifier.body.kind' is cnn, which needs 'image', but the data of this" in str(
        caught.value
    )
    assert not (tmp_path / "no-image" / "run.json").exists()


@pytest.mark.parametrize(
    ("data", "labels", "told"),
    [
        ({"bits": torch.zeros(0, 2)}, [], "a dataset of the scenario is empty; give it at least one"),
        ({}, [0], "a dataset of the scenario is empty"),
        ({"bits": torch.zeros(3, 2)}, [0, 1], "'bits' of a dataset has 3 rows and there are 2 labels"),
        ({"bits": torch.zeros(2, 2)}, [0, 2], "the labels of a dataset must be 0 or 1"),
    ],
)  # fmt: skip
def test_a_dataset_that_nobody_can_decide_is_refused(
    data: dict[str, torch.Tensor], labels: list[int], told: str
) -> None:
    with pytest.raises(ConfigError, match=told):
        ArenaDataset(data, torch.tensor(labels, dtype=torch.int64))


@pytest.mark.parametrize("kind", ["model", "evaluator"])
def test_a_model_or_an_evaluator_that_would_be_ignored_is_refused(kind: str) -> None:
    trainer = ludus.build_trainer(small_arena())
    with pytest.raises(ConfigError, match=f"would never be{'' if kind == 'model' else ' asked'};"):
        getattr(trainer, f"set_{kind}")(ludus.Evaluator(score=lambda agent: 1.0))


def test_the_nearest_divisor_is_found_without_trying_every_number() -> None:
    assert [nearest_divisor(16, size) for size in (1, 3, 5, 7, 11, 13, 99)] == [
        1,
        2,
        4,
        8,
        8,
        16,
        16,
    ]
    assert nearest_divisor(2 * (10**9 + 7), 500) == 2


def test_a_length_below_one_step_is_refused(tmp_path: Path) -> None:
    trainer = ludus.build_trainer(small_arena())
    with pytest.raises(ConfigError, match="a run has one step at least"):
        trainer.fit(0, root=str(tmp_path))


def test_a_run_that_diverges_ends_with_a_sentence_and_no_best_model_of_it(tmp_path: Path) -> None:
    trainer = ludus.build_trainer(small_arena(**{"protocol.verifier_reward": 1e38}))
    with pytest.raises(ludus.LudusError, match="lower the rewards of the protocol"):
        trainer.fit(root=str(tmp_path), name="far")
    assert not (tmp_path / "far" / "models" / "best").exists()
