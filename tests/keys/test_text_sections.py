"""What each key of the sections of text does: scenarios, analysers, providers."""

from __future__ import annotations

from random import Random
from typing import Any

from ludus.config.registry import find
from ludus.config.sections import validate
from ludus.text.scenario import TextDatasets
from tests.keys.table import changes, shown_elsewhere
from tests.text.scenarios.test_scenarios import ARITHMETIC, CODE, MAJORITY

SCENARIOS = {"majority": MAJORITY, "arithmetic": ARITHMETIC, "code_validation": CODE}
KEY = ("key.variable", "key.file")


def questions(kind: str, **changed: Any) -> TextDatasets:
    """Return the questions of a scenario with these changes."""
    name = kind.removeprefix("text_scenario ")
    found = find("text_scenario", name)
    config = validate(found.Config, {**SCENARIOS[name], **changed}, source="test")
    datasets: TextDatasets = found(config).make_datasets(0)
    return datasets


@changes("text_scenario majority, text_scenario arithmetic, text_scenario code_validation", "kind")
def test_each_scenario_has_columns_of_its_own(kind: str) -> None:
    columns = {
        "majority": {"letters", "seen"},
        "arithmetic": {"problem", "claim", "solution", "question"},
        "code_validation": {"asked", "code", "solution", "question"},
    }
    name = kind.removeprefix("text_scenario ")
    assert {*questions(kind).train.columns} == columns[name]


@changes("text_scenario majority", "num_letters", "num_as", "num_seen")
def test_strings_have_these_letters_of_which_a_verifier_sees_the_first(kind: str) -> None:
    found = questions(kind, num_letters=5, num_as=[1, 4], num_seen=2).train
    for letters, seen, label in zip(
        found.columns["letters"], found.columns["seen"], found.labels, strict=True
    ):
        assert len(letters) == 5
        assert letters.count("a") in (1, 4)
        assert seen == letters[:2]
        assert label == (letters.count("a") == 4)


@changes("text_scenario majority", "prover_accuracy")
def test_provers_demonstrate_the_right_letter_so_often(kind: str) -> None:
    for share in (0.0, 1.0):
        found = find("text_scenario", "majority")
        section = {**MAJORITY, "prover_accuracy": share}
        scenario = found(validate(found.Config, section, source="test"))
        said = {
            scenario.demonstrate("prover", {}, 1, decides=False, random=Random(seed))
            for seed in range(20)
        }
        assert said == ({"a"} if share else {"b"})


@changes("text_scenario arithmetic", "largest", "largest_error", "num_steps")
def test_problems_have_so_many_steps_of_numbers_up_to_the_largest(kind: str) -> None:
    found = questions(kind, largest=7, num_steps=[3], largest_error=1).train
    wrong = 0
    for solution, claim, label in zip(
        found.columns["solution"], found.columns["claim"], found.labels, strict=True
    ):
        steps = solution.split(", ")
        assert len(steps) == 3
        # After the first step one number of each is the result before it.
        assert all(int(step.split()[2]) <= 7 for step in steps)
        error = abs(int(claim) - int(steps[-1].rpartition("= ")[2]))
        assert error == (0 if label else 1)
        wrong += error
    assert wrong > 0
    errors = {
        abs(int(claim) - int(solution.rpartition("= ")[2]))
        for solution, claim in zip(
            *(questions(kind, largest_error=3).train.columns[one] for one in ("solution", "claim")),
            strict=True,
        )
    }
    assert errors == {0, 1, 2, 3}


@changes("text_scenario code_validation", "largest")
def test_functions_hold_numbers_up_to_the_largest(kind: str) -> None:
    few, many = (
        {*questions(kind, largest=largest, train_size=60, test_size=20).train.columns["asked"]}
        for largest in (5, 9)
    )
    assert not any("9" in asked for asked in few)
    assert any("9" in asked for asked in many)


@changes("text_scenario arithmetic, text_scenario code_validation", "train_size", "test_size")
def test_there_are_as_many_questions_as_the_config_says(kind: str) -> None:
    found = questions(kind, train_size=44, test_size=12)
    assert (len(found.train), len(found.test)) == (44, 12)


shown_elsewhere(
    "text/scenarios/test_scenarios.py::test_questions_of_a_file_have_its_columns",
    "text_scenario file", "kind", "path", "test_path", "test_share",
)  # fmt: skip

_analysers = "text/analysers/test_analysers.py::"
shown_elsewhere(
    f"{_analysers}test_a_run_names_them_in_its_config",
    "text_analyser message_information, text_analyser message_statistics", "kind",
)  # fmt: skip
shown_elsewhere(
    f"{_analysers}test_parts_of_answers_are_compared", "text_analyser message_information", "of"
)

_providers = "text/providers/"
shown_elsewhere(
    f"{_providers}test_openai_api.py::test_the_kinds_are_found_by_their_files",
    "provider openai, provider ludus_server, provider fireworks, provider together,"
    " provider compatible, provider in_process, provider tinker", "kind",
)  # fmt: skip
shown_elsewhere(
    "text/client/test_secret.py::test_a_key_is_read_from_a_variable_or_a_private_file",
    "provider openai, provider ludus_server, provider fireworks, provider together,"
    " provider compatible, provider tinker", *KEY,
)  # fmt: skip
shown_elsewhere(
    f"{_providers}test_openai_api.py::test_a_request_is_sent_whole_with_the_key",
    "provider openai",
    "url",
)
shown_elsewhere(
    f"{_providers}test_openai_api.py::"
    "test_a_server_that_does_not_take_n_is_asked_for_each_sample_with_a_seed_of_its_own",
    "provider compatible", "url", "key", "takes_n",
)  # fmt: skip
shown_elsewhere(
    f"{_providers}test_ludus_server.py::"
    "test_a_server_at_an_address_is_asked_with_its_token_and_tells_the_tokens",
    "provider ludus_server", "url", "key",
)  # fmt: skip
shown_elsewhere(
    f"{_providers}test_ludus_server.py::"
    "test_a_server_of_the_runs_own_is_started_in_its_directory_and_stopped",
    "provider ludus_server, provider tinker", "new_models",
)  # fmt: skip
shown_elsewhere(
    f"{_providers}test_jobs_apis.py::test_a_job_is_created_once_and_found_again",
    "provider fireworks, provider together", "url",
)  # fmt: skip
shown_elsewhere(
    f"{_providers}test_jobs_apis.py::test_a_job_is_created_once_and_found_again",
    "provider fireworks", "jobs_url", "account",
)  # fmt: skip
_in_process = f"{_providers}test_in_process.py::"
shown_elsewhere(
    f"{_in_process}test_new_models_are_made_once_and_other_directories_are_copied",
    "provider in_process", "new_models", "models",
)  # fmt: skip
shown_elsewhere(
    f"{_in_process}test_samples_are_the_same_however_many_a_model_computes_at_a_time",
    "provider in_process", "max_rows",
)  # fmt: skip
shown_elsewhere(
    f"{_in_process}test_so_many_models_are_loaded_and_the_least_recently_used_is_released",
    "provider in_process", "max_loaded_models",
)  # fmt: skip
shown_elsewhere(
    f"{_in_process}test_models_are_on_the_device_that_is_named", "provider in_process", "device"
)
shown_elsewhere(
    "text/tinker/test_client.py::test_samples_of_a_policy_train_it", "provider tinker", "url", "key"
)
shown_elsewhere(
    "text/tinker/test_client.py::test_what_cannot_work_is_said_in_one_sentence",
    "provider tinker", "tokenizer", "patience_seconds",
)  # fmt: skip
