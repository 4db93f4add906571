"""What each key of the trainers of text does."""

from __future__ import annotations

import asyncio
import functools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import ludus
from ludus.core.errors import ConfigError
from ludus.core.runtime import InMemoryRuntime
from ludus.text.chat import ChatRequest
from ludus.text.client.attempts import Attempts
from ludus.text.client.config import ClientConfig
from ludus.text.jobs import JobSpec
from ludus.text.provider import ProviderError
from tests.keys.runs import tiny
from tests.keys.table import TEXT, TEXT_JOBS, changes, shown_elsewhere
from tests.text.tabular import Tabular

EI, MALT = "pure_text_ei", "pure_text_malt"
EVERY = {"expert_iteration.selection.reward_threshold": 0.0}
"""Every episode is imitated."""
DEMONSTRATIONS = {
    "num_episodes": 6, "num_epochs": 3, "batch_size": 5, "learning_rate_multiplier": 2.5,
}  # fmt: skip


class Outcome:
    """A run in memory: what it asked for, what it logged."""

    def __init__(self, config: Any) -> None:
        self.trainer: Any = ludus.build_trainer(config)
        self.records: list[Any] = []
        self.trainer.set_logger(ludus.Logger({"backends": []}))
        self.trainer.logger.attach(self)
        self.result = self.trainer.fit(runtime=InMemoryRuntime)

    def write(self, record: Any) -> None:
        self.records.append(record)

    def close(self) -> None: ...

    @property
    def provider(self) -> Any:
        return self.trainer.connection.provider

    @property
    def requests(self) -> Sequence[ChatRequest]:
        return list(self.provider.requests)

    @property
    def specs(self) -> Sequence[JobSpec]:
        return list(self.provider.specs)

    def of(self, agent: str) -> list[ChatRequest]:
        """Return what an agent was asked: the verifier's prompts have a question mark."""
        return [
            one
            for one in self.requests
            if ("?" in one.messages[-1].content) == (agent == "verifier")
        ]

    def curve(self, metric: str) -> list[float]:
        return [record.scalars[metric] for record in self.records if metric in record.scalars]


@functools.cache
def _cached(kind: str, text: str) -> Outcome:
    return Outcome(tiny(kind, **json.loads(text)))


def run(kind: str, **changed: Any) -> Outcome:
    """Return the outcome of a tiny run with these changes; the same run is made once."""
    return _cached(kind, json.dumps(changed, sort_keys=True))


def always(kind: str) -> dict[str, Any]:
    """Return the changes by which every group of this kind has examples in every iteration."""
    return EVERY if kind == EI else {"rl.rollouts_per_iteration": 32}


@changes(TEXT, "name", shown_by=TEXT_JOBS)
def test_the_run_is_stored_under_its_name_and_its_jobs_hold_it(kind: str, tmp_path: Path) -> None:
    trainer: Any = ludus.build_trainer(tiny(kind, name="mine", **always(kind)))
    assert trainer.fit(root=str(tmp_path)).run_dir == str(tmp_path / "mine")
    specs = trainer.connection.provider.specs
    assert specs
    assert all(spec.suffix.startswith("mine-0-") for spec in specs)


@changes(TEXT, "seed", shown_by=TEXT_JOBS)
def test_another_seed_asks_other_questions_with_other_seeds(kind: str) -> None:
    one, other = run(kind), run(kind, seed=5)
    assert [x.messages for x in one.of("prover")] != [x.messages for x in other.of("prover")]
    assert not {x.seed for x in one.requests} & {x.seed for x in other.requests}
    assert [x.digest() for x in Outcome(tiny(kind)).requests] == [x.digest() for x in one.requests]


@changes(TEXT, "settings.workers", shown_by=TEXT_JOBS)
def test_no_process_makes_requests(kind: str) -> None:
    with pytest.raises(ConfigError, match=r"'settings.workers' is 2, but requests .* set it to 0"):
        tiny(kind, **{"settings.workers": 2})


@changes(TEXT, "settings.checkpoint.every_epochs", shown_by=TEXT_JOBS)
def test_a_run_has_no_epochs_to_be_saved_after(kind: str) -> None:
    with pytest.raises(ConfigError, match=r"every_epochs' is 1, but .* use every_stages"):
        tiny(kind, **{"settings.checkpoint.every_epochs": 1})


@changes(TEXT, "scenario.kind", shown_by=EI)
def test_the_questions_are_those_of_the_scenario(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "questions.jsonl"
    rows = [{"letters": f"l{n}", "seen": f"s{n}", "label": n % 2} for n in range(8)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    prompts = Path(ludus.__file__).parent / "text/prompts/majority/adp.yaml"
    scenario = {"kind": "file", "path": str(path), "test_path": None, "test_share": 0.5}
    asked = run(kind, scenario=scenario, prompts=str(prompts)).of("prover")
    assert {one.messages[-1].content for one in asked} <= {row["letters"] for row in rows}
    assert not {x.digest() for x in asked} & {x.digest() for x in run(kind).of("prover")}


@changes(TEXT, "protocol.kind", shown_by=EI)
def test_the_protocol_decides_who_speaks(kind: str) -> None:
    protocol = {
        "kind": "solo_verifier", "force_guess": None, "verifier_reward": 1.0,
        "verifier_incorrect_reward": 0.0, "verifier_terminated_reward": 0.0,
    }  # fmt: skip
    agents = {"verifier": tiny(kind).agents["verifier"].model_dump()}
    solo = run(kind, protocol=protocol, agents=agents)
    assert solo.of("prover") == []
    assert run(kind).of("prover")
    with pytest.raises(ConfigError, match="the protocol solo_verifier has no agent 'prover'"):
        tiny(kind, protocol=protocol)


@changes(TEXT, "prompts", shown_by=EI)
def test_the_prompts_are_those_of_the_file(kind: str, tmp_path: Path) -> None:
    shipped = Path(ludus.__file__).parent / "text/prompts/majority/adp.yaml"
    path = tmp_path / "prompts.yaml"
    path.write_text(shipped.read_text().replace('system: ""', 'system: "Be ${agent}."'))
    found = {one.messages[0].content for one in run(kind, prompts=str(path)).requests}
    assert found == {"Be verifier.", "Be prover."}
    assert {one.messages[0].role for one in run(kind).requests} == {"user"}


@changes(TEXT, "agents", shown_by=TEXT_JOBS)
def test_each_agent_is_sampled_as_its_section_says(kind: str) -> None:
    own = {"temperature": 0.7, "top_p": 0.9, "max_tokens": 3}
    found = run(
        kind,
        **{f"agents.prover.{key}": value for key, value in own.items()},
        **{"text_rl.test_temperature": None},
    )
    sampled = {"prover": own, "verifier": {"temperature": 1.0, "top_p": 1.0, "max_tokens": 8}}
    for agent, section in sampled.items():
        for key, value in section.items():
            assert {getattr(one, key) for one in found.of(agent)} == {value}


@pytest.mark.covers("002-S14")
@changes(TEXT, "agents", shown_by=TEXT_JOBS)
def test_answers_that_are_too_long_are_cut_and_counted(kind: str) -> None:
    found = run(kind, **{"agents.verifier.max_tokens": 3})
    cut, unread = (found.curve(f"train/verifier/{key}")[0] for key in ("truncated", "malformed"))
    assert 0.0 < cut <= unread == 1.0
    assert found.curve("train/prover/truncated") == [0.0, 0.0]


@changes(TEXT, "agents", shown_by=TEXT_JOBS)
def test_the_model_of_an_agent_is_the_one_that_is_asked_and_tuned(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = Tabular.open

    async def with_another(self: Any) -> None:
        await opened(self)
        self.data["models"]["other"] = {}

    monkeypatch.setattr(Tabular, "open", with_another)
    found = Outcome(tiny(kind, **always(kind), **{"agents.prover.model": "other"}))
    assert {one.model.partition(":")[0] for one in found.of("prover")} == {"other"}
    assert {one.model.partition(":")[0] for one in found.of("verifier")} == {"tiny"}
    assert {spec.suffix.rpartition("-")[2]: spec.model for spec in found.specs} == {
        "prover": "other",
        "verifier": "tiny",
    }


@changes(TEXT, "agents", shown_by=TEXT_JOBS)
def test_a_group_is_tuned_together_and_a_frozen_agent_never(kind: str) -> None:
    pair = {"agents.verifier.group": "pair", "agents.prover.group": "pair"}
    together, apart = run(kind, **always(kind), **pair), run(kind, **always(kind))
    assert [spec.suffix.rpartition("-")[2] for spec in together.specs] == ["pair"]
    assert together.specs[0].num_examples == sum(spec.num_examples for spec in apart.specs)
    frozen = run(kind, **always(kind), **{"agents.prover.frozen": True})
    assert [spec.suffix.rpartition("-")[2] for spec in frozen.specs] == ["verifier"]


@pytest.mark.covers("002-S14")
@changes(TEXT, "agents", shown_by=TEXT_JOBS)
def test_an_agent_is_asked_again_so_often_where_it_cannot_be_read(kind: str) -> None:
    none, two = run(kind), run(kind, **{"agents.verifier.max_retries": 2})
    assert none.curve("train/verifier/retries") == [0.0, 0.0]
    assert max(two.curve("train/verifier/retries")) > 0.0
    assert max(two.curve("train/verifier/retries")) <= 2.0
    assert sum(two.curve("train/verifier/malformed")) < sum(none.curve("train/verifier/malformed"))


@changes(TEXT, "max_iterations", shown_by=TEXT_JOBS)
def test_the_run_has_so_many_iterations(kind: str) -> None:
    for count in (1, 3):
        found = run(kind, max_iterations=count)
        assert found.result.counters["iteration"] == count
        assert len(found.curve("train/accuracy")) == count


@changes(
    f"{EI}, pure_text_pg", "rl.rollouts_per_iteration", "rl.rollouts_per_question", shown_by=EI
)
def test_an_iteration_has_so_many_episodes_so_many_about_each_question(kind: str) -> None:
    for total, each in ((8, 4), (12, 4), (12, 6)):
        found = run(
            kind,
            max_iterations=1,
            **{"rl.rollouts_per_iteration": total, "rl.rollouts_per_question": each},
            **{"text_rl.test_scheme": "none", "rl.num_test_iterations": 0},
        )
        # Each question is one request of the prover, for all its episodes.
        assert [one.n for one in found.of("prover")] == [each] * (total // each)
    with pytest.raises(ConfigError, match=r"'rollouts_per_iteration' is 9, which"):
        tiny(kind, **{"rl.rollouts_per_iteration": 9})


@changes(TEXT, "rl.num_test_iterations", shown_by=TEXT_JOBS)
def test_the_final_test_is_so_many_iterations_long(kind: str) -> None:
    def questions(count: int) -> int:
        found = run(kind, **{"rl.num_test_iterations": count, "text_rl.test_scheme": "none"})
        return sum(one.n for one in found.of("prover") if one.temperature == 0.0)

    assert [questions(count) for count in (0, 1, 2)] == [0, 5, 10]


@changes(TEXT, "text_rl.test_scheme", shown_by=TEXT_JOBS)
def test_agents_are_tested_in_the_iterations_of_the_scheme(kind: str) -> None:
    counts = {"none": 0, "all": 3, "last": 1, "first_and_last": 2}
    for scheme, count in counts.items():
        found = run(kind, max_iterations=3, **{"text_rl.test_scheme": scheme})
        assert len(found.curve("test/accuracy")) == count


@changes(TEXT, "text_rl.test_on_whole_dataset", shown_by=TEXT_JOBS)
def test_a_test_has_all_questions_or_as_many_as_an_iteration(kind: str) -> None:
    def asked(is_whole: bool) -> int:
        changed = {"text_rl.test_on_whole_dataset": is_whole, "rl.num_test_iterations": 0}
        found = run(kind, **changed, **{"text_rl.test_scheme": "last"})
        return len([one for one in found.of("prover") if one.temperature == 0.0])

    assert (asked(True), asked(False)) == (5, 2)


@changes(TEXT, "text_rl.test_temperature", shown_by=TEXT_JOBS)
def test_tests_are_sampled_at_their_own_temperature(kind: str) -> None:
    def temperatures(value: float | None) -> set[float]:
        changed = {"text_rl.test_temperature": value, "agents.prover.temperature": 0.8}
        return {one.temperature for one in run(kind, **changed).of("prover")}

    assert temperatures(0.25) == {0.8, 0.25}
    assert temperatures(None) == {0.8}


shown_elsewhere(
    "text/trainers/test_learning.py::test_agents_learn_from_this_iteration_or_from_all_so_far",
    TEXT, "text_rl.fine_tune_on_all_previous_rollouts",
)  # fmt: skip
shown_elsewhere(
    "text/trainers/test_groups.py::test_the_model_that_is_tuned_is_the_newest_or_the_first", TEXT,
    "text_rl.fine_tune_from_scratch",
)  # fmt: skip


@changes(TEXT, "fine_tuning.num_epochs", "fine_tuning.batch_size",
         "fine_tuning.learning_rate_multiplier", shown_by=TEXT_JOBS)  # fmt: skip
def test_jobs_have_the_hyperparameters_that_are_given_and_no_others(kind: str) -> None:
    given = {"num_epochs": 7, "batch_size": None, "learning_rate_multiplier": 0.3}
    (spec, *_) = run(kind, **always(kind), fine_tuning=given).specs
    assert spec.hyperparameters["n_epochs"] == 7
    assert spec.hyperparameters["learning_rate_multiplier"] == 0.3
    assert "batch_size" not in spec.hyperparameters
    (spec, *_) = run(kind, **always(kind), **{"fine_tuning.batch_size": 9}).specs
    assert spec.hyperparameters["batch_size"] == 9


@changes(
    TEXT, "pretraining", "pretraining.num_episodes", "pretraining.num_epochs",
    "pretraining.batch_size", "pretraining.learning_rate_multiplier", shown_by=TEXT_JOBS,
)  # fmt: skip
def test_each_group_is_first_tuned_on_so_many_demonstrations(kind: str) -> None:
    assert run(kind, max_iterations=1).specs == []
    specs = run(kind, max_iterations=1, pretraining=DEMONSTRATIONS).specs
    assert [spec.num_examples for spec in specs] == [6, 6]
    for spec in specs:
        assert spec.method == "supervised"
        assert spec.hyperparameters == {
            "n_epochs": 3,
            "batch_size": 5,
            "learning_rate_multiplier": 2.5,
        }


@changes(TEXT, "analysers", shown_by=TEXT_JOBS)
def test_the_metrics_of_the_analysers_are_logged(kind: str) -> None:
    plain = run(kind)
    found = run(kind, analysers=[{"kind": "message_statistics"}])
    more = {name for one in found.records for name in one.scalars}
    more -= {name for one in plain.records for name in one.scalars}
    assert more
    assert {name.split("/")[1] for name in more} == {"message_statistics"}


@changes(TEXT, "provider.kind", shown_by=TEXT_JOBS)
def test_the_provider_is_the_one_that_is_named(kind: str) -> None:
    assert type(run(kind).provider).__name__ == "FaultyTables"
    plain = run(kind, provider={"kind": "tabular"})
    assert type(plain.provider) is Tabular
    with pytest.raises(ConfigError, match=r"tabuler"):
        tiny(kind, provider={"kind": "tabuler"})


@changes(TEXT, "client.max_concurrency", shown_by=TEXT_JOBS)
def test_so_many_requests_are_in_flight_and_the_result_is_the_same(kind: str) -> None:
    found = {most: run(kind, **{"client.max_concurrency": most}) for most in (1, 3, 64)}
    assert [found[most].provider.most_in_flight for most in (1, 3)] == [1, 3]
    assert found[64].provider.most_in_flight > 3
    rows = [[dict(one.scalars) for one in outcome.records] for outcome in found.values()]
    assert rows[0] == rows[1] == rows[2]
    models = [{n: g.model for n, g in one.trainer.groups.items()} for one in found.values()]
    assert models[0] == models[1] == models[2]


_ANSWERS = "text/client/test_answers.py::test_answers_that_repeat_need_not_be_recorded"
for _key, _test in {
    "timeout_seconds": "text/client/test_faults.py::"
    "test_an_answer_that_does_not_come_in_time_is_asked_for_again",
    "retry.max_attempts": "text/client/test_faults.py::"
    "test_tries_are_bounded_and_their_number_is_told",
    "retry.deadline_seconds": "text/client/test_faults.py::"
    "test_a_wait_past_the_deadline_is_not_begun",
    "record_answers": f"{_ANSWERS}_and_are_counted_once",
    "cache": "text/client/test_cache.py::test_another_run_finds_the_answer_and_pays_nothing",
    "model_days": "text/providers/test_openai_api.py::"
    "test_models_that_are_missing_or_shut_down_soon_are_told_before_work",
    "settle_seconds": "text/client/test_job_creation.py::"
    "test_a_creation_that_was_lost_on_its_way_is_repeated_after_the_settle_time",
    "job_deadline_seconds": "text/client/test_job_waiting.py::"
    "test_a_job_that_disappeared_is_an_error_and_the_deadline_is_a_setting",
}.items():
    shown_elsewhere(_test, TEXT, f"client.{_key}")


@changes(
    TEXT, "client.retry.first_delay_seconds", "client.retry.max_delay_seconds", shown_by=TEXT_JOBS
)
def test_waits_double_from_the_first_delay_up_to_the_longest(kind: str) -> None:
    def longest(first: float, most: float) -> list[float]:
        delays = {"retry.first_delay_seconds": first, "retry.max_delay_seconds": most}
        config = tiny(kind, **{f"client.{key}": value for key, value in delays.items()}).client
        return [max(_waits(config, attempt)) for attempt in (1, 2, 3, 4)]

    # A random part of each is waited, so of many the longest is near it.
    assert longest(1.0, 30.0) == pytest.approx([1.0, 2.0, 4.0, 8.0], rel=0.1)
    assert longest(2.0, 30.0) == pytest.approx([2.0, 4.0, 8.0, 16.0], rel=0.1)
    assert longest(1.0, 3.0) == pytest.approx([1.0, 2.0, 3.0, 3.0], rel=0.1)


def _waits(config: ClientConfig, attempt: int) -> list[float]:
    """Return how long a client would wait after a try of this number, many times."""
    attempts = Attempts(config, seed=0, name="it", limits=lambda: None)
    found: list[float] = []

    async def note(seconds: float) -> None:
        found.append(seconds)

    attempts._sleep = note  # type: ignore[method-assign]
    failed = ProviderError("no", is_transient=True)

    async def wait() -> None:
        for _ in range(100):
            await attempts.backoff(attempt, failed)

    asyncio.run(wait())
    return found


shown_elsewhere(
    "text/client/test_ledger.py::test_a_cap_on_tokens_and_a_budget_of_zero_stop_before_the_first_request",
    TEXT, "budget.max_tokens",
)  # fmt: skip
shown_elsewhere(
    "text/trainers/test_budget.py::test_a_small_cap_stops_in_time_and_a_raised_one_goes_on", TEXT,
    "budget.max_cost",
)  # fmt: skip
shown_elsewhere(
    "text/client/test_ledger.py::"
    "test_prices_are_found_by_the_longest_beginning_and_missing_ones_are_told_before_work",
    TEXT, "budget.prices",
)  # fmt: skip


def imitated(**changed: Any) -> dict[str, int]:
    """Return the number of examples of each group's job."""
    specs = run(EI, **changed).specs
    return {spec.suffix.rpartition("-")[2]: spec.num_examples for spec in specs}


@changes(EI, "expert_iteration.selection")
def test_the_selection_decides_which_episodes_are_imitated(kind: str) -> None:
    key = "expert_iteration.selection"
    threshold = {"kind": "threshold", "reward_threshold": 1.0}
    rewards = run(kind, **EVERY).curve("train/verifier/reward")[0] * 8
    assert imitated(**{key: {**threshold, "reward_threshold": -9.0}})["verifier"] == 8
    assert imitated(**{key: threshold}).get("verifier", 0) == rewards
    half = {"kind": "weighted", "size_factor": 0.5, "epsilon": 0.0}
    assert imitated(**{key: half})["verifier"] == 4
    assert imitated(**{key: {**half, "size_factor": 1.0}})["verifier"] == 8
    # Without epsilon an episode with the lowest reward is never drawn.
    answers = [
        {json.loads(line)["messages"][-1]["content"] for line in spec.lines.splitlines()}
        for epsilon in (0.0, 1e6)
        for spec in run(kind, **{key: {**half, "size_factor": 1.0, "epsilon": epsilon}}).specs
        if spec.suffix.endswith("verifier")
    ]
    assert answers[0] <= {"accept", "reject"}
    assert not answers[1] <= {"accept", "reject"}


@changes(
    EI, "expert_iteration.verifier_guess_replacement",
    "expert_iteration.verifier_guess_replacement.proportion",
    "expert_iteration.verifier_guess_replacement.annealing",
    "expert_iteration.verifier_guess_replacement.rate",
)  # fmt: skip
def test_so_many_guesses_are_replaced_by_the_label_and_fewer_in_each_iteration(kind: str) -> None:
    def numbers(**section: Any) -> list[int]:
        """Return how many of sixteen episodes of each iteration were right, or made so."""
        found = run(
            kind,
            seed=2,
            max_iterations=3,
            **{"expert_iteration.verifier_guess_replacement": section or None},
            **{"text_rl.fine_tune_from_scratch": True, "agents.prover.frozen": True},
            **{"agents.verifier.temperature": 0.0, "rl.rollouts_per_iteration": 16},
        )
        return [spec.num_examples for spec in found.specs]

    whole = {"proportion": 1.0, "annealing": "none", "rate": 0.0}
    plain, half = numbers(), numbers(**{**whole, "proportion": 0.5})
    assert numbers(**whole) == [16, 16]
    assert all(few < some < 16 for few, some in zip(plain, half, strict=True))
    linear = numbers(proportion=1.0, annealing="linear", rate=1.0)
    exponential = numbers(proportion=1.0, annealing="exponential", rate=0.5)
    assert linear[0] == exponential[0] == 16
    assert linear[1] < exponential[1] < 16


@changes(MALT, "malt.responses_per_turn", "rl.rollouts_per_iteration", "rl.rollouts_per_question")
def test_a_tree_has_so_many_answers_in_each_turn(kind: str) -> None:
    for forks in (2, 3):
        leaves = forks * forks
        found = run(
            kind,
            max_iterations=1,
            **{"malt.responses_per_turn": forks, "rl.rollouts_per_question": leaves},
            **{"rl.rollouts_per_iteration": 4 * leaves, "text_rl.test_scheme": "none"},
            **{"rl.num_test_iterations": 0},
        )
        assert [one.n for one in found.of("prover")] == [forks] * 4
        # Equal messages of a prover are one prompt of the verifier.
        assert sum(one.n for one in found.of("verifier")) == 4 * leaves
        assert {one.n % forks for one in found.of("verifier")} == {0}
    with pytest.raises(ConfigError, match="a tree of 3 answers a turn has 9 leaves in 2 rounds"):
        tiny(kind, **{"malt.responses_per_turn": 3})


@changes(MALT, "malt.beta", "malt.nll_coef")
def test_preference_jobs_have_the_beta_and_the_weight_of_the_better_answer(kind: str) -> None:
    for beta, nll in ((0.3, 0.7), (0.1, None)):
        (spec, *_) = run(kind, **always(kind), **{"malt.beta": beta, "malt.nll_coef": nll}).specs
        assert spec.method == "dpo"
        assert spec.hyperparameters["beta"] == beta
        assert spec.hyperparameters.get("nll_coef") == nll
