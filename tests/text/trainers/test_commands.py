"""Every command does its work on a run of text whose provider is a plugin."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import ludus
from ludus.text import model_names
from tests.command_line import Ludus, in_process
from tests.text.small_run import small_malt
from tests.text.trainers.faulty_tables import asked, jobs, models_asked, tables
from tests.text.trainers.runs import TINY, kept, metrics, rows, tiny_ei, train, trained

PLUGIN = ("--plugin", "tests.text.trainers.faulty_tables")
MARKUP = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with the file of a small run, and the run."""
    place = tmp_path_factory.mktemp("made")
    config = tiny_ei(
        name="small",
        **{"expert_iteration.selection.reward_threshold": 0.0, "text_rl.test_scheme": "all"},
    )
    (place / "small.yaml").write_text(config.to_yaml())
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        ludus.load_plugin(PLUGIN[1])
        ludus.build_trainer("small.yaml").fit(root="runs")
    return place


@pytest.fixture
def call(made: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Ludus:
    monkeypatch.chdir(made)
    return in_process(monkeypatch, capsys)


def test_train_and_resume_make_a_run_longer(call: Ludus, made: Path) -> None:
    done = call("train", "small.yaml", *PLUGIN, "--run", "one", "max_iterations=1", "--json").json
    assert done["status"] == "finished"
    assert done["counters"]["iteration"] == 1
    more = call("resume", "runs/one", "max_iterations=2", "--json").json
    assert more["counters"]["iteration"] == 2
    assert metrics(made / "runs/one", "train/accuracy") == metrics(
        made / "runs/small", "train/accuracy"
    )


def test_a_dry_run_counts_what_is_asked_and_asks_nothing(call: Ludus, made: Path) -> None:
    out = call("train", "small.yaml", *PLUGIN, "--dry-run").out
    *table, total = out.splitlines()
    head = table[0].split()
    assert head == ["stage", "agent", "model", "requests", "prompt", "sampled", "trained", "cost"]
    found = {tuple(line.split()[:2]): int(line.split()[3].replace(",", "")) for line in table[1:]}
    # Two questions an iteration are one request each of the prover; the verifier may read eight answers.
    assert found["sample_rollouts", "verifier"] == 16
    assert found["sample_rollouts", "prover"] == 4
    assert found["create_fine_tune_jobs", "prover"] == 1
    assert {stage for stage, _ in found} >= {"sample_rollouts", "test", "final_test"}
    assert total.startswith("at most ")
    assert "the cost is unknown: 'budget.prices'" in total
    assert not (made / "runs/small-2").exists()
    prices = "budget.prices={tiny: {input: 1.0, cached_input: 1.0, output: 1.0, training: 1.0}}"
    assert "which cost at most" in call("train", "small.yaml", *PLUGIN, "--dry-run", prices).out


@pytest.mark.parametrize("kind", ["ei", "malt"])
def test_a_dry_run_is_an_upper_bound_of_what_is_asked(kind: str, call: Ludus, made: Path) -> None:
    """Also where every prover says something else, so that no two prompts of the verifier are equal."""
    config = tiny_ei() if kind == "ei" else small_malt(**TINY)
    config = config.replace(name=f"bound-{kind}", **{"agents.verifier.max_retries": 1})
    (made / "bound.yaml").write_text(config.to_yaml())
    total = call("train", "bound.yaml", *PLUGIN, "--dry-run").out.splitlines()[-1]
    requests, num_jobs, tokens = (
        int(total.partition(f" {what}")[0].rpartition(" ")[2].replace(",", ""))
        for what in ("requests", "jobs", "tokens")
    )
    assert call("train", "bound.yaml", *PLUGIN).code == 0
    run_dir = made / f"runs/bound-{kind}"
    assert len(jobs(run_dir)) <= num_jobs
    assert len(asked(run_dir)) <= requests <= 8 * len(asked(run_dir))
    spent = {name: value for row in rows(run_dir, "timing.jsonl") for name, value in row.items()}
    ends = ("/prompt_tokens", "/completion_tokens")
    assert sum(value for name, value in spent.items() if name.endswith(ends)) <= tokens


def test_the_preset_of_word_problems_is_counted_without_a_server_and_trains_on_any(
    call: Ludus, tmp_path: Path
) -> None:
    out = call("train", "pure_text_ei-arithmetic", "--dry-run", "rl.rollouts_per_iteration=8").out
    assert "smollm2-135m-instruct" in out
    config = ludus.example(
        "pure_text_ei-arithmetic",
        **{key: value for key, value in TINY.items() if key != "rl.rollouts_per_question"},
        **{"agents.verifier.model": "tiny", "agents.prover.model": "tiny"},
        **{"scenario.train_size": 16, "scenario.test_size": 4},
    )
    trained(config, tmp_path)
    (first, *_) = rows(tmp_path / "run", "transcripts/train-0.jsonl")
    assert "Claimed answer" in first["question"]


def test_eval_asks_the_kept_models_and_repeats_the_test(call: Ludus, made: Path) -> None:
    found = call("eval", "runs/small", "--model", "final", "--json", *PLUGIN).json
    (final,) = metrics(made / "runs/small", "final_test/accuracy")
    shown = found.get("metrics", found)
    assert shown["eval/accuracy"] == final
    few = call("eval", "runs/small", "--episodes", "2", "--json", *PLUGIN)
    assert few.code == 0, few.err


def test_eval_without_a_best_model_takes_the_last(call: Ludus, made: Path) -> None:
    call("train", "small.yaml", *PLUGIN, "--run", "untested", "text_rl.test_scheme=none")
    found = call("eval", "runs/untested", "--json", *PLUGIN)
    assert found.code == 0, found.err


def test_play_asks_the_tuned_models_of_the_run(call: Ludus, made: Path) -> None:
    before = len(models_asked(made / "runs/small"))
    assert call("play", "runs/small", "--model", "final", *PLUGIN).code == 0
    found = models_asked(made / "runs/small")[before:]
    assert {*found} == {*kept(made / "runs/small").values()}


def test_play_shows_an_episode_message_by_message(call: Ludus) -> None:
    lines = call("play", "runs/small", *PLUGIN).out.splitlines()
    assert lines[0].startswith("question ")
    assert any(line.startswith("round 1: prover: ") for line in lines)
    assert any(line.startswith("round 2: verifier (") for line in lines)
    assert "rewards: " in lines[-1]
    assert lines == call("play", "runs/small", *PLUGIN).out.splitlines()
    other = call("play", "runs/small", "--episode", "3", *PLUGIN).out.splitlines()
    assert other[1:3] != lines[1:3]


def test_a_person_can_be_the_verifier(call: Ludus) -> None:
    played = call("play", "runs/small", "--as", "verifier", *PLUGIN, stdin="accept\n\n")
    assert played.code == 0, played.err
    assert "round 2: verifier (accepts): accept" in played.out
    # The label is shown once the person has decided.
    assert "label" not in played.out.partition("round 1")[0]
    told = call("play", "runs/small", "--as", "verifyer", *PLUGIN, stdin="accept\n\n").refusal()
    assert "--as verifyer: there is no agent 'verifyer' in this protocol" in told
    assert "Did you mean 'verifier'?" in told


def test_a_person_is_asked_again_where_an_answer_cannot_be_read(call: Ludus) -> None:
    played = call("play", "runs/small", "--as", "verifier", *PLUGIN, stdin="hm\n\nreject\n\n")
    assert "round 2: verifier (rejects): reject" in played.out


def test_a_person_can_be_every_agent(call: Ludus) -> None:
    words = ("--as", "verifier", "--as", "prover")
    played = call("play", "runs/small", *words, *PLUGIN, stdin="a\n\naccept\n\n")
    assert "round 1: prover: a" in played.out


@pytest.mark.covers("002-S1")
def test_plan_explain_and_new_know_the_kind(call: Ludus) -> None:
    assert "create_fine_tune_jobs" in call("plan", "small.yaml", *PLUGIN).out
    told = call("explain", "small.yaml", "text_rl.test_scheme", *PLUGIN).out
    assert "The iterations in which agents are tested" in told
    for kind in ("pure_text_ei", "pure_text_malt"):
        assert f"kind: {kind}" in call("new", kind).out


@pytest.mark.slow
def test_a_run_of_text_is_verified(call: Ludus) -> None:
    verified = call("verify", "small.yaml", *PLUGIN)
    assert verified.code == 0, verified.err


def test_report_has_the_metrics_and_is_escaped(call: Ludus, made: Path) -> None:
    assert call("report", "runs/small", "--out", "page.html", *PLUGIN).code == 0
    page = (made / "page.html").read_text()
    assert "accuracy" in page


def test_final_and_best_models_are_names(made: Path) -> None:
    run_dir = made / "runs/small"
    names = {one["tuned"] for one in jobs(run_dir).values()}
    assert {*kept(run_dir).values()} == names
    assert {*kept(run_dir, "best").values()} <= {"tiny", *names}
    assert model_names.as_name(model_names.as_tensor("ft:a:b")) == "ft:a:b"
    assert {*tables(run_dir)["models"]} == {"tiny", *names}


@pytest.mark.covers("002-S4")
def test_transcripts_are_lines_and_pages_and_what_agents_say_is_escaped(
    made: Path, tmp_path: Path
) -> None:
    """A question with markup is shown as it is, and runs nothing."""
    questions = tmp_path / "questions.jsonl"
    asked_about = [{"letters": f"{MARKUP} {n}", "seen": MARKUP, "label": n % 2} for n in range(8)]
    questions.write_text("".join(json.dumps(one) + "\n" for one in asked_about))
    prompts = Path(ludus.__file__).parent / "text/prompts/majority/adp.yaml"
    scenario = {"kind": "file", "path": str(questions), "test_path": None, "test_share": 0.5}
    run_dir = train(tmp_path, scenario=scenario, prompts=str(prompts))
    pages = [*(run_dir / "transcripts").glob("*.html")]
    assert {path.name for path in pages} >= {"iteration-0.html", "iteration-1.html"}
    for page in pages:
        assert MARKUP not in page.read_text()
    lines = rows(run_dir, "transcripts/train-0.jsonl")
    assert len(lines) == 8
    assert all(MARKUP in json.dumps(line) for line in lines)


@pytest.mark.parametrize("kind", ["ei", "malt"])
def test_a_deleted_run_leaves_nothing(kind: str, call: Ludus, made: Path) -> None:
    config = tiny_ei() if kind == "ei" else small_malt(**TINY)
    (made / f"{kind}.yaml").write_text(config.replace(name=kind).to_yaml())
    assert call("train", f"{kind}.yaml", *PLUGIN).code == 0
    assert (made / "runs" / kind / "server/tables.json").exists()
    done = call("runs", kind, "--delete", "--yes")
    assert done.code == 0, done.err
    assert not (made / "runs" / kind).exists()
    shutil.rmtree(made / "runs" / kind, ignore_errors=True)


def test_no_metric_depends_on_the_clock(made: Path, tmp_path: Path) -> None:
    config = tiny_ei(
        name="small",
        **{"expert_iteration.selection.reward_threshold": 0.0, "text_rl.test_scheme": "all"},
    )
    trained(config, tmp_path, name="small")
    again, first = (
        (place / "metrics.jsonl").read_bytes()
        for place in (tmp_path / "small", made / "runs/small")
    )
    assert again == first
