"""`ludus runs`: choosing, sorting, tagging and deleting runs."""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from rich.cells import cell_len

import ludus
from ludus.cli import listing, run_changes
from ludus.core.errors import RunError
from ludus.store import deletion
from ludus.store.deletion import check_deletable, delete_run
from ludus.store.groups import group_members, groups_in
from ludus.store.lock import RunLock
from ludus.store.own_files import is_own, is_own_folder
from ludus.store.places import open_storage
from ludus.store.tags import read_tags
from tests.command_line import Ludus, in_process, small_config

if TYPE_CHECKING:
    from tests.faults.warm import WarmProcess


@pytest.fixture
def call(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Ludus:
    monkeypatch.chdir(tmp_path)
    return in_process(monkeypatch, capsys)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three runs, which nobody may change: a short one and two of another learning rate."""
    root = tmp_path_factory.mktemp("trained")
    ludus.build_trainer(small_config(name="short", max_epochs=1)).fit(root=str(root))
    fast = small_config(name="fast", **{"optimizer.learning_rate": 0.05})
    ludus.train_seeds(fast, "3-4", root=root, show_on="none")
    return root


@pytest.fixture
def runs(trained: Path, tmp_path: Path) -> Path:
    """The same three, which may be changed; `short` is the oldest, fast-seed4 the newest."""
    shutil.copytree(trained, tmp_path / "runs")
    for day, name in enumerate(("short", "fast-seed3", "fast-seed4"), start=10):
        change(tmp_path / "runs" / name / "run.json", created=f"2026-11-{day}T12:00:00+00:00")
    for score, name in ((0.5, "short"), (0.9, "fast-seed3"), (0.7, "fast-seed4")):
        set_score(tmp_path / "runs" / name, score)
    return tmp_path / "runs"


def change(path: Path, **fields: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def set_score(
    run: Path, score: float, metric: str = "validation/epoch_accuracy", mode: str | None = "max"
) -> None:
    lines = (run / "events.jsonl").read_text().splitlines()
    ending = json.loads(lines[-1])
    ending["best"] |= {"score": score, "metric": metric, "mode": mode}
    (run / "events.jsonl").write_text("\n".join([*lines[:-1], json.dumps(ending)]) + "\n")


def names(call: Ludus, *words: str) -> list[str]:
    return [row["name"] for row in call("runs", *words, "--json").json["runs"]]


ALL = ["fast-seed4", "fast-seed3", "short"]


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ([], ALL),
        (["short"], ["short"]),
        (["fast-*"], ALL[:2]),
        (["fast"], ALL[:2]),  # the group
        (["group=fast"], ALL[:2]),
        (["group=null"], ["short"]),
        (["kind=supervised"], ALL),
        (["kind!=supervised"], []),
        (["status=finished"], ALL),
        (["status!=finished"], []),
        (["score>0.6"], ALL[:2]),
        (["score>=0.7", "score<0.9"], ["fast-seed4"]),
        (["score=0.5"], ["short"]),
        (["seed=4"], ["fast-seed4"]),
        (["seed!=4"], ["fast-seed3", "short"]),
        (["epoch<2"], ["short"]),
        (["learning_rate>0.01"], ALL[:2]),
        (["optimizer.learning_rate=0.05"], ALL[:2]),
        (["learning_rate=5e-2"], ALL[:2]),
        (["model.layer_norm=false"], ALL),
        (["layer_norm=true"], []),
        (["max_opt_steps=null"], ALL),
        (["loss=cross*"], ALL),
        (["model=mlp"], ALL),
        (["started>2026-11-10"], ALL[:2]),
        (["started>=2026-11-11"], ALL[:2]),
        (["started=2026-11-11"], ["fast-seed3"]),
        (["started<2026-11-11"], ["short"]),
        (["started<=2026-11-11"], ["fast-seed3", "short"]),
        (["started!=2026-11-11"], ["fast-seed4", "short"]),
        (["started<2026-11-11T11:00+00:00"], ["short"]),
        (["exact=expected", "fast", "seed=3"], ["fast-seed3"]),
    ],
)
@pytest.mark.usefixtures("runs")
def test_runs_are_chosen_by_words(call: Ludus, words: list[str], found: list[str]) -> None:
    assert names(call, *words) == found


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            ["kidn=ppo"],
            "'kidn' is neither a column nor a config key of these runs. Did you mean 'kind'?",
        ),
        (["learning_rat<1"], "Did you mean 'learning_rate'?"),
        (["zzzz=1"], "Columns: name, kind, group, seed, status, score, started, exact, tag."),
        (["kind=x", "--sort", "scroe"], "'scroe' is neither a column nor a config key"),
        (["status=finnished"], "no run has the status 'finnished'. Did you mean 'finished'?"),
        (
            ["score>high"],
            "'score>high': high is no number, and > compares numbers; write score=high",
        ),
        (["name>3"], "'name>3': name is text, which > does not compare; use = or !="),
        (["score="], "'score=' compares score with nothing; write a value after ="),
        (["started>lately"], "'lately' is no date; write one such as 2026-11-19"),
        (["data.kind=wine", "kind.x=3"], "'kind.x' is neither a column"),
        (["--tag", "a b", "short"], "'a b' cannot be a tag; use up to 40 letters, digits"),
        (["--tag", "x\x1b[31m", "short"], r"'x\x1b[31m' cannot be a tag"),
        (["--tag", "", "short"], "'' cannot be a tag"),
        (["--tag", "x" * 41, "short"], "cannot be a tag"),
        (["--tag", "x", "--untag", "x", "short"], "the tag x is to be added and removed"),
        (["--tag", "x"], "name the runs to tag"),
        (["--delete"], "name the runs to delete"),
        (["--delete", "nothing*"], "no run in runs meets nothing*"),
        (["--tag", "x", "nothing*"], "no run in runs meets nothing*"),
        (["--delete", "short"], "deleting 1 run asks first, and nobody can answer here; add --yes"),
        (["--delete", "--json", "fast"], "deleting 2 runs asks first"),
        (["--delete", "--tag", "x", "short"], "runs are deleted or tagged"),
        (["--yes", "short"], "--yes is for --delete"),
    ],
)
@pytest.mark.usefixtures("runs")
def test_a_mistake_is_one_sentence(call: Ludus, words: list[str], told: str) -> None:
    assert told in call("runs", *words).refusal()
    assert names(call) == ALL


def test_a_key_that_is_in_several_sections_is_asked_for(call: Ludus, runs: Path) -> None:
    for name in ALL:
        path = runs / name / "config.yaml"
        path.write_text(path.read_text().replace("ema_decay:", "twice: {learning_rate: 1.0}\nema:"))
    told = call("runs", "learning_rate=1.0").refusal()
    assert "'learning_rate' is in several sections; name one of: " in told
    assert names(call, "twice.learning_rate=1.0") == ALL


def test_the_config_of_a_run_is_the_one_it_was_trained_with(call: Ludus, runs: Path) -> None:
    for name in ALL[:2]:
        (runs / name / "config.yaml").write_text("max_epochs: 99\n")
    assert names(call, "max_epochs=99") == []
    note = json.loads((runs / "short" / "run.json").read_text())
    at = {"key": "optimizer.learning_rate", "old": 0.1, "new": 0.125, "boundary": 1}
    (runs / "short" / "run.json").write_text(json.dumps({**note, "changes": [at]}))
    assert names(call, "learning_rate=0.125") == ["short"]


def test_a_run_without_the_key_is_left_out_and_a_damaged_one_stays_listed(
    call: Ludus, runs: Path
) -> None:
    (runs / "short" / "config.yaml").write_text("not: [a")
    note = json.loads((runs / "short" / "run.json").read_text())
    (runs / "short" / "run.json").write_text(json.dumps({**note, "config": {}}))
    assert names(call, "learning_rate>0") == ALL[:2]
    assert names(call, "learning_rate!=7") == ALL[:2]
    (runs / "fast-seed3" / "run.json").write_text("{")
    assert set(names(call)) == set(ALL)
    assert names(call, "status=damaged") == ["fast-seed3"]


@pytest.mark.usefixtures("runs")
def test_runs_are_sorted_the_best_and_the_newest_first(call: Ludus) -> None:
    assert names(call, "--sort", "score") == ["fast-seed3", "fast-seed4", "short"]
    assert names(call, "--sort", "score", "--reverse") == ["short", "fast-seed4", "fast-seed3"]
    assert names(call, "--sort", "started") == ALL
    assert names(call, "--sort", "name") == ["fast-seed3", "fast-seed4", "short"]
    assert names(call, "--sort", "epoch") == ["short", "fast-seed4", "fast-seed3"]
    assert names(call, "--sort", "learning_rate")[0] == "short"
    assert names(call, "--sort", "group")[-1] == "short"


def test_a_loss_is_best_when_it_is_low_and_a_run_without_a_score_is_last(
    call: Ludus, runs: Path
) -> None:
    for score, name in ((0.5, "short"), (0.1, "fast-seed3"), (float("nan"), "fast-seed4")):
        set_score(runs / name, score, "validation/epoch_loss", "min")
    assert names(call, "--sort", "score") == ["fast-seed3", "short", "fast-seed4"]


@pytest.mark.parametrize(
    ("metric", "mode"),
    [
        ("validation/odd", "min"),
        ("validation/epoch_accuracy", "min"),
        ("validation/epoch_loss", None),
    ],
)
def test_the_best_comes_first_by_the_direction_that_a_run_recorded_else_by_the_name(
    call: Ludus, runs: Path, metric: str, mode: str | None
) -> None:
    for score, name in ((0.5, "short"), (0.1, "fast-seed3"), (0.7, "fast-seed4")):
        set_score(runs / name, score, metric, mode)
    assert names(call, "--sort", "score") == ["fast-seed3", "short", "fast-seed4"]


def test_the_columns_fit_the_terminal(
    call: Ludus, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wide = call("runs", "learning_rate>0").out.splitlines()
    assert wide[0].split() == [
        "run", "group", "trainer", "status", "progress", "best", "learning_rate", "exact", "started",
    ]  # fmt: skip
    for width in (60, 80, 120):
        monkeypatch.setattr(listing, "terminal_width", lambda width=width: width)
        monkeypatch.setattr("ludus.show.tables.terminal_width", lambda width=width: width)
        lines = call("runs", "learning_rate>0").out.splitlines()
        assert len(lines) == 4, "each run is one line"
        assert max(map(cell_len, lines)) <= width
        assert "status" in lines[0]
        assert "0.9" in "".join(lines)
    assert "progress" in lines[0]


def test_no_runs_are_no_error(call: Ludus) -> None:
    assert call("runs").out.strip() == "no runs in runs; `ludus train CONFIG` makes one"
    assert "no run in runs meets kind=ppo" in call("runs", "kind=ppo").out
    assert call("runs", "--json").json == {"root": "runs", "runs": []}


def test_the_rows_hold_group_seed_and_tags(call: Ludus, runs: Path) -> None:
    rows = {row["name"]: row for row in call("runs", "--json").json["runs"]}
    assert [rows[name]["group"] for name in ALL] == ["fast", "fast", None]
    assert [rows[name]["seed"] for name in ALL] == [4, 3, 0]
    assert rows["short"]["tags"] == []
    assert group_members(runs, "fast") == [str(runs / "fast-seed3"), str(runs / "fast-seed4")]
    assert groups_in(runs) == {"fast": group_members(runs, "fast")}
    assert group_members(runs, "short") == group_members(runs / "none", "fast") == []
    (runs / "fast-seed3" / "run.json").write_text("{")
    assert group_members(runs, "fast") == [str(runs / "fast-seed4")]


# Tags.


def test_runs_are_tagged_and_chosen_by_their_tags(call: Ludus, runs: Path) -> None:
    assert call("runs", "fast", "--tag", "good", "--tag", "v1.0").out.splitlines() == [
        "runs/fast-seed4: good, v1.0", "runs/fast-seed3: good, v1.0",
    ]  # fmt: skip
    assert names(call, "tag=good") == ALL[:2]
    assert names(call, "tag!=good") == ["short"]
    assert "good, v1.0" in call("runs").out
    assert call("runs", "seed=3", "--untag", "good").out == "runs/fast-seed3: v1.0\n"
    found = call("runs", "seed=4", "--untag", "good", "--untag", "v1.0", "--json").json
    assert found["runs"][0]["tags"] == []
    assert names(call, "tag=v*") == ["fast-seed3"]
    assert json.loads((runs / "fast-seed3" / "tags.json").read_text()) == {"tags": ["v1.0"]}


def test_tags_do_not_touch_the_run(call: Ludus, runs: Path) -> None:
    def others() -> dict[str, bytes]:
        run = runs / "short"
        files = [path for path in run.rglob("*") if path.is_file() and path.name != "tags.json"]
        return {str(path): path.read_bytes() for path in files}

    before = others()
    with RunLock(runs / "short"):
        before[str(runs / "short" / "LOCK")] = (runs / "short" / "LOCK").read_bytes()
        assert call("runs", "short", "--tag", "running").code == 0, "a running run may be tagged"
        assert others() == before
    assert call("resume", "runs/short", "max_epochs=2", "--json").code == 0
    assert read_tags(open_storage(runs / "short")) == ["running"]


@pytest.mark.parametrize("text", ["{", '{"tags": 3}', '{"tags": ["\\u001b[31m"]}', "[]"])
def test_damaged_tags_cost_a_row_and_say_what_to_do(call: Ludus, runs: Path, text: str) -> None:
    (runs / "short" / "tags.json").write_text(text)
    rows = {row["name"]: row for row in call("runs", "--json").json["runs"]}
    assert rows["short"]["status"] == "damaged"
    assert "delete it, and tag the run again" in rows["short"]["reason"]
    assert rows["fast-seed3"]["status"] == "finished"
    assert "delete it, and tag" in call("runs", "short", "--tag", "x").refusal()


# Deleting.


def test_a_run_is_deleted_with_all_that_ludus_wrote(call: Ludus, runs: Path) -> None:
    call("report", "runs/short")
    call("runs", "short", "--tag", "old")
    (runs / "short" / "run.json.tmp-123").write_text("half")
    (runs / "mine.txt").write_text("mine")
    done = call("runs", "short", "--delete", "--yes")
    assert done.out.startswith("deleted runs/short (")
    assert sorted(os.listdir(runs)) == ["fast-seed3", "fast-seed4", "mine.txt"]
    found = call("runs", "fast", "--delete", "--yes", "--json").json
    assert found == {"root": "runs", "deleted": ["runs/fast-seed4", "runs/fast-seed3"]}
    assert os.listdir(runs) == ["mine.txt"]


@pytest.mark.parametrize(
    ("answer", "is_gone"),
    [("y\n", True), ("yes\n", True), ("n\n", False), ("\n", False), ("", False)],
)
def test_it_asks_and_names_what_goes(
    call: Ludus, runs: Path, monkeypatch: pytest.MonkeyPatch, answer: str, is_gone: bool
) -> None:
    import io

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(run_changes.sys, "stdin", Terminal(answer))  # type: ignore[attr-defined]
    wanted = listing.Wanted(("fast",))
    run_changes.delete_runs("runs", wanted, is_sure=False, as_json=False)
    assert (runs / "short").exists()
    assert (runs / "fast-seed3").exists() is not is_gone
    assert (runs / "fast-seed4").exists() is not is_gone


def put_link(run: Path) -> None:
    (run / "models" / "elsewhere").symlink_to("/etc")


def put_link_for_file(run: Path) -> None:
    shutil.move(run / "metrics.jsonl", run.parent / "kept.jsonl")
    (run / "metrics.jsonl").symlink_to(run.parent / "kept.jsonl")


def put_file(run: Path) -> None:
    (run / "notes.txt").write_text("mine")


def put_file_deep(run: Path) -> None:
    (run / "models" / "best" / "plot.png").write_text("mine")


def put_folder(run: Path) -> None:
    (run / "analysis").mkdir()


def put_report(run: Path) -> None:
    (run / "report.html").write_text("<!DOCTYPE html>\n<p>my own page</p>")


def put_film(run: Path) -> None:
    (run / "play.gif").write_text("my own film")


def put_policy(run: Path) -> None:
    (run / "policy").mkdir()
    (run / "policy" / "weights.safetensors").write_text("mine")


def put_pipe(run: Path) -> None:
    os.mkfifo(run / "metrics.csv")


PUTS = [
    put_link, put_link_for_file, put_file, put_file_deep, put_folder, put_report, put_film, put_policy,
    put_pipe,
]  # fmt: skip


@pytest.mark.parametrize("put", PUTS, ids=lambda put: put.__name__)
def test_a_run_that_holds_anything_of_the_users_is_refused_whole(
    call: Ludus, runs: Path, put: Any
) -> None:
    put(runs / "fast-seed3")
    before = sorted(str(path) for path in runs.rglob("*"))
    told = call("runs", "*", "--delete", "--yes").refusal()
    assert told.endswith("and delete again")
    assert "fast-seed3" in told
    assert sorted(str(path) for path in runs.rglob("*")) == before, "nothing was deleted"
    with pytest.raises(RunError):
        delete_run(str(runs / "fast-seed3"), run_changes.is_output)
    assert sorted(str(path) for path in runs.rglob("*")) == before


def test_a_link_to_a_run_is_no_run(call: Ludus, runs: Path) -> None:
    (runs / "linked").symlink_to(runs / "short")
    assert "is a link" in call("runs", "linked", "--delete", "--yes").refusal()
    assert (runs / "short" / "run.json").exists()


def test_a_run_that_trains_is_refused(call: Ludus, runs: Path) -> None:
    with RunLock(runs / "fast-seed4"):
        told = call("runs", "fast", "--delete", "--yes").refusal()
        with pytest.raises(RunError, match="in use"):
            delete_run(str(runs / "fast-seed4"), run_changes.is_output)
    assert told == "runs/fast-seed4 is in use by a process that trains it; stop it first"
    assert (runs / "fast-seed3").exists()


def test_what_comes_while_it_deletes_stays(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unlink, mine = deletion._unlink, runs / "short" / "models" / "mine.txt"

    def slow(path: Path) -> None:
        mine.write_text("mine")
        unlink(path)

    monkeypatch.setattr(deletion, "_unlink", slow)
    delete_run(str(runs / "short"), run_changes.is_output)
    left = [path for path in (runs / "short").rglob("*") if path.is_file()]
    assert left == [mine]


def test_a_deletion_that_was_killed_is_repeated(call: Ludus, warm: WarmProcess, runs: Path) -> None:
    for count in (1, 3, 5):
        code, output = warm.run("delete", path=str(runs / "short"), count=count)
        assert code == -signal.SIGKILL, output
        assert "short" in names(call), "until its end it is a run"
    assert call("runs", "short", "--delete", "--yes").code == 0
    assert not (runs / "short").exists()


def test_a_policy_and_a_program_that_ludus_exported_go_with_the_run(
    call: Ludus, runs: Path
) -> None:
    assert call("export", "runs/short", "--format", "torch").code == 0
    assert (runs / "short" / "program.pt2").exists()
    assert check_deletable(str(runs / "short"), run_changes.is_output).num_bytes > 0
    assert call("runs", "short", "--delete", "--yes").code == 0
    assert not (runs / "short").exists()


@pytest.mark.parametrize(
    ("name", "is_ours"),
    [
        ("run.json", True), ("config.yaml", True), ("config.yml", False), ("LOCK", True),
        ("checkpoints/0000000012/state.json", True), ("checkpoints/12/state.json", False),
        ("checkpoints/0000000012.trash-77/state.json", True), ("checkpoints/0000000012/x", False),
        ("metrics.jsonl.aside-0", True), ("metrics.jsonl/x", False), ("my/run.json", False),
        ("models/best-0000000001/weights.safetensors", True), ("models/weights.safetensors", False),
        ("asked/round-0001.json", True), ("asked/mine.json", False), ("loaded/prover.safetensors", True),
        ("queries/round-0001.safetensors", True), ("journals/labels.jsonl", True),
        ("events/events.out.tfevents.0.ludus", True), ("segments/" + "a" * 64 + ".safetensors", True),
        ("segments/new.tmp-12", True), ("asked/a/round-1.json", False),
    ],
)  # fmt: skip
def test_files_of_a_run_are_known_by_their_names(name: str, is_ours: bool) -> None:
    assert is_own(name) is is_ours


def test_folders_of_a_run_are_known_by_their_names() -> None:
    assert all(map(is_own_folder, ("models", "models/best", "checkpoints", "asked", "journals")))
    assert not any(map(is_own_folder, ("mine", "models/best/x", "asked/x", "journals/x")))
