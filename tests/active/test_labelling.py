"""People answer what a run asks, in the terminal or with a file; nothing is lost or asked again."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import ludus
from ludus.active.oracles.human import Human
from ludus.store.lock import RunLock
from tests.active.conftest import HUMAN, file_of, small_active, targets_of
from tests.command_line import Ludus, Outcome

RUN = "runs/wines"
NAMED = {"kind": "human", "class_names": ["Barolo", "Grignolino", "b"]}


def begun(call: Ludus, **changes: Any) -> list[int]:
    """Train until the run waits; return the rows it asks for."""
    outcome = call("train", file_of(Path("a.yaml"), **{"oracle": HUMAN, **changes}))
    assert outcome.code == 0
    assert outcome.err == ""
    return asked(0)


def asked(number: int) -> list[int]:
    told = json.loads(Path(RUN, f"queries/round-{number:04d}.json").read_text())
    rows: list[int] = told["rows"]
    return rows


def answered() -> list[tuple[int, int]]:
    """Return every answer of the journal, in the order in which they were given."""
    path = Path(RUN, "journals/labels.jsonl")
    records = [json.loads(line)["record"] for line in path.read_text().splitlines()]
    return [pair for one in records for pair in zip(one["rows"], one["labels"], strict=True)]


def write(path: str, *lines: str) -> str:
    Path(path).write_text("\n".join(lines) + "\n")
    return path


def refused(outcome: Outcome) -> str:
    assert not Path(RUN, "journals/labels.jsonl").exists()
    return outcome.refusal()


@pytest.mark.covers("003-S2")
def test_a_run_waits_for_people_and_ends_as_if_the_labels_had_been_known(call: Ludus) -> None:
    truth = targets_of(small_active())
    rows = begun(call)
    for number in range(3):
        assert asked(number) == rows
        answers = "".join(f"{truth[row]}\n" for row in rows)
        told = call("label", RUN, stdin=answers)
        assert told.out.endswith(f"all queries are answered; to go on: ludus resume {RUN}\n")
        told = call("resume", RUN)
        rows = asked(number + 1) if number < 2 else []
        expected = "waiting for 4 labels of 4: `ludus label runs/wines`" if rows else "finished"
        assert expected in told.out
    call("train", file_of(Path("b.yaml")), "--run", "known")
    metrics = [Path("runs", name, "metrics.jsonl").read_bytes() for name in ("wines", "known")]
    assert metrics[0] == metrics[1]
    assert '"labels": 14' in metrics[0].decode().splitlines()[-1]


def test_a_run_that_waits_ends_in_order_and_says_what_to_do(call: Ludus) -> None:
    told = call("train", file_of(Path("a.yaml"), oracle=HUMAN))
    assert told.code == 0
    assert told.out == "interrupted: waiting for 6 labels of 6: `ludus label runs/wines`\n"
    row = next(one for one in call("runs", "--json").json["runs"])
    assert (row["status"], row["reason"]) == ("interrupted", told.out[13:-1])
    assert call("resume", RUN).out == told.out


def test_examples_of_a_table_are_shown_by_their_columns_and_classes_by_their_names(
    call: Ludus,
) -> None:
    rows = begun(call, oracle=NAMED)
    told = call("label", RUN, stdin="barolo\n1\nb\n7\nq\n").out
    assert "classes: 0 Barolo, 1 Grignolino, 2 b" in told
    assert "  malic_acid  " in told
    assert "is 7; the classes of this run are the whole numbers from 0 to 2" in told
    assert "3 of 6 queries are still open: ludus label runs/wines" in told
    assert answered() == [*zip(rows[:3], (0, 1, 2), strict=True)]


def test_pictures_are_drawn_in_blocks(call: Ludus) -> None:
    digits: Any = ludus.example("active")
    begun(call, data=digits.data, model=digits.model)
    told = call("label", RUN, stdin="").out
    blocks = [line for line in told.splitlines() if set(line) & set("░▒▓█")]
    assert len(blocks) in (7, 8)
    assert all(len(line) <= 16 for line in blocks)


def test_one_can_skip_and_go_back_and_the_last_answer_counts(call: Ludus) -> None:
    rows = begun(call)
    call("label", RUN, stdin="0\nb\n2\ns\n1\n")
    assert answered() == [(rows[0], 0), (rows[0], 2), (rows[2], 1)]
    told = call("label", RUN, stdin="").out
    assert f"row {rows[1]}, 1 of 4" in told


def test_queries_are_exported_filled_in_and_taken_back_even_in_halves(call: Ludus) -> None:
    rows = begun(call)
    assert "6 open queries are in q.csv" in call("label", RUN, "--export", "q.csv").out
    heading, *lines = Path("q.csv").read_text().splitlines()
    assert heading.startswith("row,label,alcohol,malic_acid,")
    half = [line.replace(",,", ",1,", 1) if at < 2 else line for at, line in enumerate(lines)]
    told = call("label", RUN, "--csv", write("half.csv", heading, *half)).out
    assert told.startswith("2 answers were kept; 4 rows have no label yet\n4 of 6 queries")
    full = [line.replace(",,", ",1,", 1) for line in lines]
    # What was answered before is passed over, so nothing counts twice.
    assert call("label", RUN, "--csv", write("full.csv", heading, *full)).out.startswith(
        "4 answers"
    )
    assert answered() == [(row, 1) for row in rows]
    assert call("label", RUN, "--csv", "full.csv").out.startswith(
        "0 answers were kept\nall queries"
    )
    assert (
        "exists and was not written by ludus" in call("label", RUN, "--export", "a.yaml").refusal()
    )


def test_a_file_with_answers_that_were_not_handed_in_is_not_written_over(call: Ludus) -> None:
    begun(call)
    call("label", RUN, "--export", "q.csv")
    heading, *lines = Path("q.csv").read_text().splitlines()
    # One that nobody has filled in, or whose answers the run has, may be written anew.
    call("label", RUN, "--export", "q.csv")
    filled = [lines[0].replace(",,", ",1,", 1), lines[1].replace(",,", ",no,", 1), *lines[2:]]
    for rows in (filled, [filled[0], *lines[1:]], [lines[0], filled[1], *lines[2:]]):
        before = Path(write("q.csv", heading, *rows)).read_bytes()
        told = call("label", RUN, "--export", "q.csv").refusal()
        assert "q.csv holds answers that the run does not have yet; hand them in with" in told
        assert f"ludus label {RUN} --csv q.csv" in told
        assert Path("q.csv").read_bytes() == before
    call("label", RUN, "--csv", write("q.csv", heading, filled[0], *lines[1:]))
    assert "5 open queries are in q.csv" in call("label", RUN, "--export", "q.csv").out
    # A label that was changed since is new again.
    write("q.csv", heading, filled[0].replace(",1,", ",2,", 1))
    assert "holds answers" in call("label", RUN, "--export", "q.csv").refusal()


def test_a_run_that_was_killed_while_it_wrote_its_queries_is_told_what_to_do(call: Ludus) -> None:
    begun(call)
    Path(RUN, "queries/round-0000.safetensors").unlink()
    told = call("label", RUN).refusal()
    assert "its inputs, queries/round-0000.safetensors, are not there" in told
    assert told.endswith(f"to have it rewritten: ludus resume {RUN}")
    call("resume", RUN)
    Path(RUN, "queries/round-0000.json").unlink()
    told = call("label", RUN).refusal()
    assert "was killed while it wrote down what it asks; to have it rewritten: ludus" in told
    call("resume", RUN)
    assert "6 of 6 queries are still open" in call("label", RUN, stdin="q\n").out


def test_a_run_that_has_ended_asks_nobody(call: Ludus) -> None:
    rows = begun(call, max_rounds=1)
    answers = [f"{row},{row % 3}" for row in rows]
    told = call("label", RUN, "--resume", "--csv", write("a.csv", *answers)).out
    assert told.endswith("finished\n")
    for words in ([], ["--resume"]):
        told = call("label", RUN, *words, stdin="").out
        assert told == "all queries are answered, and the run has ended: it asks for no more\n"


def test_cells_are_parted_by_commas_or_semicolons_whatever_columns_are_called(call: Ludus) -> None:
    rows = begun(call)
    call("label", RUN, "--csv", write("a.csv", "row,label,length;width", f"{rows[0]},1,3;4"))
    call("label", RUN, "--csv", write("b.csv", "row;label;length", f"{rows[1]};2;3,5"))
    assert answered() == [(rows[0], 1), (rows[1], 2)]


def test_after_a_line_of_the_journal_was_deleted_no_answer_takes_the_place_of_another(
    call: Ludus,
) -> None:
    rows = begun(call)
    call("label", RUN, stdin="0\n1\n2\nq\n")
    journal = Path(RUN, "journals/labels.jsonl")
    lines = journal.read_text().splitlines()
    journal.write_text(f"{lines[0]}\n{lines[2]}\n")
    assert f"row {rows[1]}, 1 of 4" in call("label", RUN, stdin="1\nq\n").out
    assert "3 of 6 queries are still open" in call("label", RUN, stdin="q\n").out
    assert sorted(answered()) == sorted(zip(rows[:3], (0, 1, 2), strict=True))


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        (["{0},1", "999,1"], "line 2: row 999 was not asked for"),
        (["{0},1", "{1},2", "{0},1"], "line 3: row {0} stands in line 1 already"),
        (["row,label", "{0},3"], "line 2: the label of row {0} is 3; the classes of this run"),
        (["{0},1", "{1},1.5"], "line 2: the label of row {1} is 1.5; the classes of this run"),
        (["{0},1", "{1}"], "line 2 has 1 columns and the first line 2; is the file whole?"),
        (['{0},1', '{1},"1'], "line 2: unexpected end of data; is the file whole?"),
        (["{0},1", "{1},nan"], "line 2: the label of row {1} is nan"),
        (["id,class", "{0},1"], "it needs `row` and `label`"),
        (["{0},1", "one,1"], "line 2: 'one' is no row"),
        ([], "is empty; write a line `row,label`"),
    ],
)  # fmt: skip
def test_a_file_with_a_mistake_is_refused_by_line_and_none_of_it_is_kept(
    lines: list[str], problem: str, call: Ludus
) -> None:
    rows = begun(call)
    Path("bad.csv").write_text("\n".join(line.format(*rows) for line in lines))
    assert problem.format(*rows) in refused(call("label", RUN, "--csv", "bad.csv"))


def test_a_row_that_was_answered_otherwise_before_is_refused(call: Ludus) -> None:
    row = begun(call)[0]
    call("label", RUN, stdin="1\n")
    told = call("label", RUN, "--csv", write("bad.csv", f"{row},2")).refusal()
    assert f"line 1: row {row} was answered before, with 1" in told
    assert answered() == [(row, 1)]


def test_nobody_labels_while_the_run_goes_on_nor_where_nothing_is_asked(call: Ludus) -> None:
    begun(call)
    with RunLock(Path(RUN)):
        told = call("label", RUN, stdin="1\n").refusal()
    assert told.startswith("runs/wines is running; its queries are open once it waits")
    assert "is not a run directory" in call("label", "runs/none").refusal()
    call("train", file_of(Path("b.yaml"), max_rounds=1), "--run", "known")
    assert "has asked nobody" in call("label", "runs/known").refusal()
    assert "give one of them" in call("label", RUN, "--csv", "a", "--export", "b").refusal()
    assert "nothing.csv cannot be read" in call("label", RUN, "--csv", "nothing.csv").refusal()


def test_labelling_can_go_on_with_the_run_and_label_what_it_asks_next(call: Ludus) -> None:
    begun(call)
    told = call("label", RUN, "--resume", stdin="0\n1\n2\n" * 5)
    assert told.code == 0
    assert told.out.endswith("finished\n")
    assert len(answered()) == 14


def test_labelling_goes_on_whatever_words_a_run_waits_with(
    call: Ludus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Human, "waits_for", lambda self, run: "someone is to look")
    begun(call)
    assert call("label", RUN, "--resume", stdin="0\n1\n2\n" * 5).out.endswith("finished\n")
    assert len(answered()) == 14


@pytest.mark.parametrize(
    ("names", "problem"),
    [
        (["a", "b"], "has 2 names, and the model has 3 classes"),
        (["a", "b", "A "], "has a name twice"),
    ],
)
def test_names_that_do_not_fit_the_classes_are_refused_before_the_run_begins(
    names: list[str], problem: str, call: Ludus
) -> None:
    config = file_of(Path("a.yaml"), oracle={"kind": "human", "class_names": names})
    assert problem in call("train", config).refusal()
    assert not Path(RUN).exists()


def test_a_damaged_file_of_queries_is_told_and_written_anew_on_resume(call: Ludus) -> None:
    rows = begun(call)
    Path(RUN, "queries/round-0000.json").write_text('{"format": 1, "rows": ["x"]}')
    told = call("label", RUN).refusal()
    assert told.endswith("to have it rewritten: ludus resume runs/wines")
    call("resume", RUN)
    assert asked(0) == rows


def labelling_process() -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "ludus.cli", "label", RUN]
    here = {**os.environ, "PYTHONPATH": str(Path(ludus.__file__).parents[1])}
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, env=here
    )


def test_a_kill_in_the_middle_of_labelling_loses_nothing_and_nothing_is_asked_twice(
    call: Ludus,
) -> None:
    rows = begun(call)
    process = labelling_process()
    assert process.stdin is not None
    process.stdin.write("2\n0\n1\n")
    process.stdin.flush()
    journal = Path(RUN, "journals/labels.jsonl")
    end = time.monotonic() + 300
    while not journal.exists() or journal.read_text().count("\n") < 3:
        assert process.poll() is None
        assert time.monotonic() < end, "no answer was ever kept"
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdin.close()
    # A kill in the middle of a write leaves half a line, which counts for nothing.
    with journal.open("a") as file:
        file.write('{"key": "answer-3", "rec')
    told = call("label", RUN, stdin="0\n0\n0\n").out
    assert [f"row {row}, " in told for row in rows] == [False] * 3 + [True] * 3
    assert answered() == [*zip(rows, (2, 0, 1, 0, 0, 0), strict=True)]
    assert "waiting for 4 labels of 4" in call("resume", RUN).out


def labels_in(place: str) -> list[tuple[int, int]]:
    records = [json.loads(line)["record"] for line in Path(place).read_text().splitlines()]
    return [pair for one in records for pair in zip(one["rows"], one["labels"], strict=True)]


def test_a_run_that_was_carried_elsewhere_is_labelled_there_and_goes_on_here(call: Ludus) -> None:
    rows = begun(call)
    shutil.copytree(RUN, "elsewhere/wines", symlinks=True)
    told = call("label", "elsewhere/wines", stdin="0\n1\n2\n0\n1\n2\n").out
    assert told.endswith("all queries are answered; to go on: ludus resume elsewhere/wines\n")
    shutil.copytree("elsewhere/wines/journals", f"{RUN}/journals", dirs_exist_ok=True)
    assert "waiting for 4 labels of 4" in call("resume", RUN).out
    assert labels_in(f"{RUN}/journals/labels.jsonl") == [*zip(rows, [0, 1, 2] * 2, strict=True)]
