"""Scripts of the tinker SDK run unchanged against a server on this machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.text.tinker.conftest import LocalServer

ROOT = Path(__file__).parents[3]


class Sdk:
    """A process in which the SDK is imported once; it dies with the end of its stdin."""

    def __init__(self, server: LocalServer) -> None:
        env = {**os.environ, "TINKER_BASE_URL": server.url, "TINKER_API_KEY": server.token}
        # A proxy or a credential of the machine must not matter.
        env |= {"NO_PROXY": "*", "HOME": "/nonexistent", "TINKER_TELEMETRY": "1"}
        command = [sys.executable, "-W", "ignore", "-m", "tests.text.tinker.sdk_child"]
        self._process = subprocess.Popen(
            command, cwd=ROOT, env=env, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def __call__(self, scenario: str, *arguments: object) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([scenario, *arguments]) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"{scenario} failed; see stderr"
        return json.loads(line)

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.fixture(scope="module")
def sdk(server: LocalServer) -> Iterator[Sdk]:
    found = Sdk(server)
    yield found
    found.close()


def test_a_cookbook_script_learns_from_rewards_alone(sdk: Sdk) -> None:
    rewards = sdk("cookbook")
    assert rewards[0] < 0.85
    assert sum(rewards[-3:]) / 3 > 0.95


def test_chunks_of_a_batch_sent_in_parallel_are_one_gradient(sdk: Sdk) -> None:
    assert sdk("chunked", 1) == pytest.approx(sdk("chunked", 100), rel=1e-5)


def test_samples_repeat_and_are_scored_as_in_training(sdk: Sdk) -> None:
    found = sdk("sampled_twice")
    assert found["tokens"] == found["again"]
    assert found["tokens"][0] != found["tokens"][1]
    for trained, sampled in zip(found["trained"], found["sampled"], strict=True):
        assert trained == pytest.approx(sampled, abs=1e-4)
    assert found["scored"][0] is None
    assert found["scored"][1] == pytest.approx(found["sampled"][0][0], abs=1e-5)


def test_a_saved_state_goes_on_as_the_run_that_saved_it(sdk: Sdk) -> None:
    found = sdk("saved_and_loaded")
    same, loaded, without_optimizer = found["after"]
    assert loaded == same
    assert without_optimizer != same
    assert (found["rank"], found["base"]) == (4, "tiny")


def test_a_custom_loss_of_the_script_trains(sdk: Sdk) -> None:
    mine, before, after = sdk("custom_loss")
    assert mine == pytest.approx(-before, rel=1e-5)
    assert after > before


def test_the_tokenizer_that_the_server_names_is_on_this_machine(sdk: Sdk) -> None:
    assert Path(sdk("tokenizer"), "tokenizer.json").is_file()


NAN = "nan"


@pytest.mark.parametrize(
    ("batch", "words"),
    [
        (["dro", [1], [2], {}], "no loss 'dro'; choose one of cross_entropy, importance_sampling"),
        (["ppo", [1], [2], {"logprobs": [0]}], "has no 'advantages'"),
        (
            ["ppo", [1], [2], {"logprobs": [0], "advantages": [NAN]}],
            "datum 0.advantages is nan at position 0",
        ),
        (["cross_entropy", [1] * 59, [1] * 59, {}], "has 59 tokens; the model reads at most 48"),
        (["cross_entropy", [1], [1000], {}], "has the token 1000; the vocabulary has"),
        (["cross_entropy", [1, 2], [1], {}], "has 2 input tokens and 1 target_tokens"),
        (
            ["importance_sampling", [1], [2], {"logprobs": [0], "advantages": [1], "weights": [1]}],
            "'weights', which the loss importance_sampling does not take",
        ),
    ],
)
def test_a_wrong_batch_fails_in_one_sentence_and_training_goes_on(
    sdk: Sdk, batch: list[Any], words: str
) -> None:
    failed, step = sdk("wrong_batch", *batch)
    assert (failed[0], failed[2]) == ("RequestFailedError", "user")
    assert words in failed[1]
    assert "no optimizer step was taken" in step[1]


def test_wrong_keys_names_and_parameters_are_named(sdk: Sdk) -> None:
    expected = [
        ("AuthenticationError", "not the one of this server"),
        ("NotFoundError", "no base model 'huge'; this server has tiny"),
        ("NotFoundError", "no saved weights tinker://x/weights/y"),
        ("BadRequestError", "prompt has 60 tokens"),
        ("BadRequestError", "does not do sampling_params.top_k"),
    ]
    for (kind, words), (found, text, _) in zip(expected, sdk("wrong_names"), strict=True):
        assert found == kind, text
        assert words in text


def test_a_server_killed_under_a_script_loses_nothing_and_does_nothing_twice(
    server: LocalServer, sdk: Sdk
) -> None:
    sdk("begin_steps")
    unbroken = sdk("end_steps")
    sdk("begin_steps")
    server.kill()
    server.start_again()
    assert sdk("end_steps") == unbroken
