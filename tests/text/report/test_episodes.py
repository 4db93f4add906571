"""The report of a run of text: results by iteration, sums by stage, links to transcripts."""

from __future__ import annotations

import json
import re
from pathlib import Path

from ludus.show.report.page import write_report
from ludus.text.report._metrics import Figure, read_name, stage_of
from ludus.text.rollouts.transcripts import page_name
from tests.show.test_report import HOSTILE, Page, make_run


def text_run(folder: Path, *, agent: str = "prover") -> Path:
    metrics = [
        {
            **({"iteration": n} if n else {}),
            "train/accuracy": 0.5 + n / 10,
            f"train/{agent}/reward": n / 4,
        }
        for n in range(3)
    ]
    metrics.insert(1, {"test/accuracy": 0.625})
    run = make_run(folder, metrics=metrics)
    about = json.loads((run / "run.json").read_text())
    about |= {"kind": "pure_text_ei", "counters": ["iteration"]}
    (run / "run.json").write_text(json.dumps(about))
    timing = [
        {
            "iteration": n,
            "seconds": 5.0,
            f"spent/sample_rollouts/{agent}/completion_tokens": 1_000 * (n + 1),
            f"spent/test/{agent}/completion_tokens": 100 * (n + 1),
            f"spent/test/{agent}/prompt_tokens": 7,
            f"spent/sample_rollouts/{agent}/cost": 0.25 * (n + 1),
            **({"seconds/sample_rollouts": 60.0, "seconds/test": 1.25} if n else {}),
        }
        for n in range(3)
    ]
    (run / "timing.jsonl").write_text("".join(json.dumps(one) + "\n" for one in timing))
    (run / "transcripts").mkdir()
    for name in (page_name("train", 0), page_name("test", 2), page_name("test-final_test", 2)):
        (run / name).write_text("x")
    (run / "transcripts/<script>-1.html").write_text("x")
    return run


def rows(source: str) -> list[list[str]]:
    """Return the cells of all rows of the section, without tags."""
    section = source.partition("<h2>Episodes</h2>")[2].partition("<h2>")[0]
    found = re.findall(r"<tr>(.*?)</tr>", section)
    return [
        [re.sub("<[^>]*>", "", one) for one in re.findall(r"<t[hd]>(.*?)</t[hd]>", row)]
        for row in found
    ]


def test_each_iteration_has_its_results_and_its_transcripts(tmp_path: Path) -> None:
    page = Page(write_report([text_run(tmp_path / "run")]))
    assert rows(page.source)[:4] == [
        ["iteration", "transcripts", "train accuracy", "test accuracy", "train reward of prover",
         "tokens", "cost"],
        ["0", "read", "0.5", "0.625", "0", "1,107", "0.25"],
        ["1", "", "0.6", "-", "0.25", "1,100", "0.25"],
        ["2", "read", "0.7", "-", "0.5", "1,100", "0.25"],
    ]  # fmt: skip
    links = [value for name, value in page.attributes if name == "href" and "transcripts" in value]
    assert "Further transcripts: final test 2" in page.text
    assert links == [page_name("train", 0), page_name("test", 2), page_name("test-final_test", 2)]


def test_each_stage_and_each_agent_has_its_sums(tmp_path: Path) -> None:
    page = Page(write_report([text_run(tmp_path / "run")]))
    assert rows(page.source)[4:] == [
        ["stage", "tokens", "cost", "time"],
        ["sample rollouts", "3,000", "0.75", "2 min"],
        ["test", "307", "-", "2.5 s"],
        ["agent", "completion tokens", "prompt tokens", "cost"],
        ["prover", "3,300", "7", "0.75"],
    ]


def test_several_runs_link_to_the_files_of_each(tmp_path: Path) -> None:
    runs = [text_run(tmp_path / "a run"), make_run(tmp_path / "other")]
    page = Page(write_report(runs, tmp_path / "page.html"))
    links = [value for name, value in page.attributes if name == "href" and "transcripts" in value]
    assert links[0] == (tmp_path / "a run" / page_name("train", 0)).as_uri()
    assert page.source.count("<h2>Episodes</h2>") == 1


def test_a_run_of_another_kind_has_no_such_section(tmp_path: Path) -> None:
    metrics = [{"iteration": 0, "train/prover/reward": 1.0, "train/accuracy": 0.5}]
    page = Page(write_report([make_run(tmp_path / "run", metrics=metrics)]))
    assert "<h2>Episodes</h2>" not in page.source


def test_a_run_that_has_only_begun_says_so(tmp_path: Path) -> None:
    run = text_run(tmp_path / "run")
    for name in ("metrics.jsonl", "timing.jsonl"):
        (run / name).write_text("")
    for page in (run / "transcripts").iterdir():
        page.unlink()
    assert "No episode was played yet." in Page(write_report([run])).text


def test_hostile_names_are_text(tmp_path: Path) -> None:
    for number, word in enumerate(HOSTILE):
        run = text_run(tmp_path / f"run{number}", agent=word.replace("/", ""))
        page = Page(write_report([run]))
        assert not page.tags & {"script", "iframe", "img"}
        assert not [name for name, _ in page.attributes if name.startswith("on")]
        assert word.replace("/", "") in page.text


def test_metrics_are_known_by_their_names() -> None:
    assert read_name("test/accuracy") == Figure("accuracy", "test")
    assert read_name("train/prover/reward") == Figure("reward", "train", "prover")
    tokens = Figure("tokens", agent="prover", stage="test", part="prompt")
    assert read_name("spent/test/prover/prompt_tokens") == tokens
    assert read_name("spent/test/prover/cost") == Figure("cost", agent="prover", stage="test")
    for name in ("accuracy", "train/prover/accuracy", "other/accuracy", "spent/a/b/c/cost"):
        assert read_name(name) is None
    assert stage_of("seconds/test") == "test"
    assert stage_of("seconds") is None
