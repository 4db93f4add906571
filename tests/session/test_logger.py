"""The logger drops nothing, its unwritten values survive, and every back end gets every record."""

from __future__ import annotations

import csv
import json
import math
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, strategies as st
from torch import Tensor

from ludus.core import states
from ludus.core.errors import LudusError
from ludus.core.run import Every, Run
from ludus.session.logger import Logger, WriteLog
from ludus.session.loggers.jsonl import JsonLines
from ludus.session.record import Record
from ludus.store import checkpoint
from ludus.store.local import LocalStorage
from tests.faults.small_run import interrupt_after, train
from tests.store.test_codec import bounded, through_json

ALL = [{"kind": "csv"}, {"kind": "tensorboard"}, {"kind": "console"}]
EVENTS = "events/events.out.tfevents.0.ludus"


class Listener:
    """A back end that remembers every record."""

    def __init__(self) -> None:
        self.records: list[Record] = []

    def write(self, record: Record) -> None:
        self.records.append(record)

    def close(self) -> None:
        """There is nothing to close."""


def make_logger(*backends: Mapping[str, Any]) -> tuple[Logger, Listener]:
    logger, listener = Logger({"backends": list(backends)}), Listener()
    logger.attach(listener)
    return logger, listener


def run_at(**counters: int) -> Run:
    run = Run()
    run.counters.update(counters)
    return run


@pytest.mark.covers("000-S12", "004-D8")
def test_values_of_one_name_become_their_mean_and_none_is_dropped() -> None:
    logger, listener = make_logger()
    for value in (1.0, 2, torch.tensor(3.0), torch.tensor([6], dtype=torch.int64)):
        logger.log("loss", value)
    logger.record({"loss": 8.0, "accuracy": 0.5})
    logger.write(run_at(opt_steps=5))
    assert listener.records[0].scalars == {"loss": 4.0, "accuracy": 0.5}
    assert listener.records[0].counters == {"opt_steps": 5}


def test_a_value_is_in_one_record_only() -> None:
    logger, listener = make_logger()
    logger.log("loss", 1.0)
    logger.write(run_at())
    logger.log("loss", 3.0)
    logger.write(run_at())
    assert [record.scalars for record in listener.records] == [{"loss": 1.0}, {"loss": 3.0}]
    assert not logger.has_news


@bounded(60)
@given(st.lists(st.floats(width=32) | st.integers(-(2**24), 2**24), min_size=1, max_size=8))
def test_a_mean_is_the_same_for_numbers_and_for_tensors(values: list[float]) -> None:
    found = []
    for kind in (float, lambda x: torch.tensor(x, dtype=torch.float64)):
        logger, listener = make_logger()
        for value in values:
            logger.log("x", kind(value))
        logger.write(run_at())
        found.append(struct.pack("d", listener.records[0].scalars["x"]))
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("values", "mean"),
    [
        ([1e308, 1e308, 1e308], 1e308),
        ([math.inf, 1.0], math.inf),
        ([math.inf, -math.inf], math.nan),
        ([math.nan, 1.0], math.nan),
        ([0.1] * 10, 0.1),
    ],
)
def test_no_value_is_too_large_or_too_odd_for_a_mean(values: list[float], mean: float) -> None:
    logger, listener = make_logger()
    for value in values:
        logger.log("x", value)
    logger.write(run_at())
    found = listener.records[0].scalars["x"]
    assert found == pytest.approx(mean, rel=1e-15, nan_ok=True)


def test_every_piece_of_text_is_written_and_the_last_histogram_and_image() -> None:
    logger, listener = make_logger()
    logger.text("note", "one")
    logger.text("note", "two")
    logger.histogram("weights", torch.ones(2))
    logger.histogram("weights", torch.zeros(2, 2))
    logger.image("frame", torch.zeros(3, 2, 2, dtype=torch.uint8))
    logger.write(run_at())
    record = listener.records[0]
    assert record.texts == {"note": ["one", "two"]}
    assert record.histograms["weights"].tolist() == [0.0] * 4
    assert record.images["frame"].shape == (3, 2, 2)


def fill(logger: Logger) -> None:
    """Log some of everything."""
    logger.log("loss", torch.tensor(0.1))
    logger.log("loss", 1 / 3)
    logger.log("odd", math.nan)
    logger.log("count", torch.tensor(2**24 + 1))
    logger.text("note", "one \ud800")
    logger.histogram("weights", torch.linspace(0, 1, 5))
    logger.image("frame", torch.full((1, 2, 2), 7, dtype=torch.uint8))


def test_unwritten_values_survive_and_are_written_as_if_nothing_had_been() -> None:
    (one, heard), (two, heard_again) = make_logger(), make_logger()
    fill(one)
    two.load_state_dict(through_json(one.state_dict()))
    for logger in (one, two):
        logger.log("loss", torch.tensor(0.7, dtype=torch.float64))
        logger.log("count", torch.tensor(0.5))
        logger.text("note", "two")
        logger.write(run_at(opt_steps=1))
    assert same_record(heard.records[0], heard_again.records[0])


def same_record(one: Record, two: Record) -> bool:
    def digest(record: Record) -> str:
        parts = (record.scalars, record.texts, record.histograms, record.images)
        return checkpoint.digest_of({str(n): dict(part) for n, part in enumerate(parts)})

    return one.counters == two.counters and digest(one) == digest(two)


def test_saving_neither_writes_nor_alters_what_waits() -> None:
    (one, heard), (two, heard_again) = make_logger(), make_logger()
    fill(one)
    fill(two)
    for _ in range(3):
        one.state_dict()
    assert heard.records == []
    for logger in (one, two):
        logger.log("loss", torch.tensor(0.7))
        logger.write(run_at())
    assert same_record(heard.records[0], heard_again.records[0])


def test_a_saved_state_does_not_change_with_the_logger() -> None:
    logger, _ = make_logger()
    fill(logger)
    state = logger.state_dict()
    before = checkpoint.digest_of(state)
    fill(logger)
    logger.write(run_at())
    assert checkpoint.digest_of(state) == before


@pytest.mark.parametrize("value", [torch.ones(2), "much", None, [1.0]], ids=str)
def test_a_metric_that_is_not_one_number_is_an_error_that_names_it(value: Any) -> None:
    logger, _ = make_logger()
    logger.log("train/loss", value)
    with pytest.raises(LudusError, match="'train/loss' was given what is not one number"):
        logger.write(run_at())


@pytest.mark.parametrize("name", ["", "epoch", "opt_steps", "text", "histogram", "image"])
def test_a_name_that_would_hide_another_is_refused(name: str) -> None:
    logger, _ = make_logger()
    for use in (lambda: logger.log(name, 1.0), lambda: logger.text(name, "x")):
        with pytest.raises(LudusError, match="a metric cannot be named"):
            use()


@pytest.mark.parametrize("image", [torch.zeros(3, 2, 2), torch.zeros(2, 2, 2, dtype=torch.uint8)])
def test_an_image_of_another_type_or_shape_is_refused(image: Tensor) -> None:
    with pytest.raises(LudusError, match="it must be uint8 of shape"):
        make_logger()[0].image("frame", image)


def test_the_log_is_written_when_a_counter_crosses_its_interval_and_at_the_end() -> None:
    logger, listener = make_logger()
    observer = WriteLog(logger, [Every(10, "opt_steps"), Every(1, "epoch")])
    run = run_at()
    for step in range(1, 24):
        run.counters |= {"opt_steps": step, "epoch": step // 15}
        logger.log("loss", float(step))
        observer(run)
    run.is_finished = True
    observer(run)
    written = [(r.counters["opt_steps"], r.scalars["loss"]) for r in listener.records]
    assert written == [(10, 5.5), (15, 13.0), (20, 18.0), (23, 22.0)]


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """A directory to which two hard records were written by all back ends."""
    logger = Logger({"backends": ALL})
    storage = LocalStorage(tmp_path)
    logger.open(storage)
    for step, value in ((1, math.nan), (2, math.inf)):
        logger.log("train/loss", 0.5 * step)
        logger.log("=odd", value)
        logger.log("large", 1e300)
        logger.text("note", "<b>hi</b>\n\ud800")
        logger.text("note", "\x1b[31mred")
        logger.histogram("weights", torch.tensor([0.0, 1.0, math.nan, math.inf, 3e38, -3e38]))
        logger.histogram("empty", torch.zeros(0))
        logger.histogram("one value", torch.zeros(3))
        logger.histogram("nothing finite", torch.tensor([math.nan]))
        for channels in (1, 3, 4):
            frame = torch.arange(channels * 4, dtype=torch.uint8).reshape(channels, 2, 2)
            logger.image(f"frame{channels}", frame)
        logger.write(run_at(opt_steps=step))
    logger.close()
    storage.close()
    return tmp_path


def test_jsonl_holds_every_type_and_names_what_is_not_finite(written: Path) -> None:
    text = (written / "metrics.jsonl").read_text()
    assert "NaN" not in text
    assert "Infinity" not in text
    first, second = (json.loads(line) for line in text.splitlines())
    assert first["train/loss"] == 0.5
    assert (first["=odd"], second["=odd"]) == ("nan", "inf")
    assert first["text"]["note"] == "<b>hi</b>\n\ud800\n\x1b[31mred"
    assert sum(first["histogram"]["weights"]["counts"]) == 4
    assert first["histogram"]["empty"] == {"edges": [], "counts": []}
    assert first["image"]["frame3"]["shape"] == [3, 2, 2]
    assert len(first["image"]["frame3"]["sha256"]) == 64


def test_nothing_that_depends_on_the_clock_is_in_the_metrics(written: Path) -> None:
    assert "second" not in (written / "metrics.jsonl").read_text()
    assert "opt_steps_per_second" in (written / "timing.jsonl").read_text()


def test_each_process_of_a_run_has_a_session_of_its_own_in_the_times(tmp_path: Path) -> None:
    for _ in range(3):
        storage = LocalStorage(tmp_path)
        logger = JsonLines(JsonLines.Config(kind="jsonl"), storage)
        for _ in range(2):
            logger.write(Record({"opt_steps": 1}, {"train/loss": 1.0}, {"seconds": 1.0}))
        storage.close()
    lines = map(json.loads, (tmp_path / "timing.jsonl").read_text().splitlines())
    first, *others = [line["session"] for line in lines]
    assert first == others[0] < others[1] == others[2] < others[3] == others[4]


def test_csv_has_one_heading_and_no_cell_that_a_spreadsheet_takes_for_a_formula(
    written: Path,
) -> None:
    with (written / "metrics.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["opt_steps"] for row in rows if row["name"] == "train/loss"] == ["1", "2"]
    assert {row["name"] for row in rows} == {"train/loss", "'=odd", "large"}
    assert [row["value"] for row in rows if row["name"] == "'=odd"] == ["nan", "inf"]


@pytest.mark.parametrize("name", ["=1+1", "+x", "-x", "@x", "\tx"])
def test_a_name_that_begins_like_a_formula_is_made_text(name: str, tmp_path: Path) -> None:
    logger, storage = Logger({"backends": [{"kind": "csv"}]}), LocalStorage(tmp_path)
    logger.open(storage)
    logger.log(name, 1.0)
    logger.write(run_at(epoch=1))
    storage.close()
    with (tmp_path / "metrics.csv").open(newline="") as file:
        assert [row["name"] for row in csv.DictReader(file)] == [f"'{name}"]


def test_a_name_with_an_odd_line_end_stays_in_its_row(tmp_path: Path) -> None:
    logger, storage = Logger({"backends": [{"kind": "csv"}]}), LocalStorage(tmp_path)
    logger.open(storage)
    logger.log("a\rb\nc,d", 1.0)
    logger.write(run_at(epoch=1))
    storage.close()
    with (tmp_path / "metrics.csv").open(newline="") as file:
        assert [row["name"] for row in csv.DictReader(file)] == ["a\\rb\nc,d"]


def read_events(path: Path) -> list[Any]:
    """Return every record of an event file, read by TensorBoard's own reader."""
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    return list(EventFileLoader(str(path)).Load())


def read_tensorboard(path: Path) -> Any:
    """Return what TensorBoard would show."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(path), size_guidance={"scalars": 0, "images": 0, "tensors": 0})
    return found.Reload()


@pytest.mark.covers("000-S12")
def test_tensorboard_shows_every_type(written: Path) -> None:
    found = read_tensorboard(written / "events")
    tags = {tag for kind in found.Tags().values() if isinstance(kind, list) for tag in kind}
    assert {"train/loss", "=odd", "large", "weights", "one value", "time/seconds"} <= tags
    assert {"frame1", "frame3", "frame4", "note/text_summary"} <= tags
    assert len(read_events(written / EVENTS)) == 3


def raw_records(path: Path) -> int:
    """Return how many records a TensorBoard file holds, each with its length and no byte over."""
    data, place, count = path.read_bytes(), 0, 0
    while place < len(data):
        (length,) = struct.unpack_from("<Q", data, place)
        place += 8 + 4 + length + 4
        count += 1
    assert place == len(data)
    return count


def steps_of(events: list[Any], tag: str) -> list[int]:
    return [event.step for event in events for value in event.summary.value if value.tag == tag]


def test_after_a_resume_no_back_end_has_a_step_twice(tmp_path: Path) -> None:
    changes = {"settings.loggers": ALL[:2], "settings.checkpoint.every_stages": 4}
    train(tmp_path, "unbroken", **changes)
    killed = {**changes, "settings.checkpoint.every_stages": 1000}
    train(tmp_path, "broken", each_epoch=interrupt_after(1), **changes)
    # Written after the only checkpoint, as by a run that was killed before it saved again.
    with pytest.raises(ZeroDivisionError):
        train(tmp_path, "broken", each_epoch=lambda trainer: 1 // (1 - trainer.epoch), **killed)
    train(tmp_path, "broken", **changes)
    for name in ("metrics.jsonl", "metrics.csv"):
        one, two = ((tmp_path / run / name).read_bytes() for run in ("unbroken", "broken"))
        assert one == two
    whole, resumed = (read_events(tmp_path / run / EVENTS) for run in ("unbroken", "broken"))
    assert [event.step for event in resumed] == [event.step for event in whole]
    assert raw_records(tmp_path / "broken" / EVENTS) == len(resumed)
    assert [event.file_version for event in resumed].count("brain.Event:2") == 1
    steps = steps_of(resumed, "train/loss")
    assert len(steps) == len(set(steps)) > 3
    shown = read_tensorboard(tmp_path / "broken" / "events").Scalars("train/loss")
    assert [point.step for point in shown] == steps


def test_a_run_killed_before_its_first_checkpoint_leaves_nothing_in_the_logs(
    tmp_path: Path,
) -> None:
    changes = {"settings.loggers": ALL[:2], "settings.checkpoint.every_stages": 1000}
    with pytest.raises(ZeroDivisionError):
        train(tmp_path, "broken", each_epoch=lambda trainer: 1 // (1 - trainer.epoch), **changes)
    assert (tmp_path / "broken" / "metrics.jsonl").stat().st_size > 0
    train(tmp_path, "broken", **changes)
    train(tmp_path, "unbroken", **changes)
    for name in ("metrics.jsonl", "metrics.csv"):
        one, two = ((tmp_path / run / name).read_bytes() for run in ("unbroken", "broken"))
        assert one == two
    whole, resumed = (read_events(tmp_path / run / EVENTS) for run in ("unbroken", "broken"))
    assert [event.step for event in resumed] == [event.step for event in whole]
    assert list((tmp_path / "broken").glob("*.aside-*")) == []


def test_a_back_end_added_on_resume_begins_with_its_heading(tmp_path: Path) -> None:
    train(tmp_path, "run", each_epoch=interrupt_after(1))
    train(tmp_path, "run", **{"settings.loggers": ALL[:2]})
    heading = (tmp_path / "run" / "metrics.csv").read_text().splitlines()[0]
    assert heading.endswith("name,value")
    assert read_events(tmp_path / "run" / EVENTS)[0].file_version == "brain.Event:2"


def test_a_record_is_asked_by_name_and_tells_what_it_has() -> None:
    record = Record({"opt_steps": 3}, {"train/loss": 0.5}, {"fps": 9.0})
    assert [record[name] for name in record] == [3, 0.5, 9.0]
    assert ("fps" in record, "eval_reward" in record, record.get("eval_reward")) == (
        True,
        False,
        None,
    )
    with pytest.raises(LudusError) as asked:
        record["eval_reward"]
    assert str(asked.value) == (
        "this record has no 'eval_reward'. Known: fps, opt_steps, train/loss."
    )
    with pytest.raises(KeyError):
        record["eval_reward"]


@pytest.mark.covers("004-S4", "004-D13")
def test_a_record_knows_the_least_the_largest_and_the_middle_of_what_it_was_given() -> None:
    seen: list[Record] = []

    class Keep:
        def write(self, record: Record) -> None:
            seen.append(record)

        def close(self) -> None: ...

    logger = Logger({"backends": []})
    logger.attach(Keep())
    for value in (4.0, 1.0, torch.tensor(2.0), 9.0):
        logger.log("train/loss", value)
    logger.log("once", 0.1)
    logger.write(Run())
    # The middle of four is half way between the second and the third.
    expected = {"min": 1.0, "max": 9.0, "mean": 4.0, "median": 3.0}
    assert seen[0].aggregate("train/loss") == expected
    assert set(seen[0].aggregate("once").values()) == {0.1}
    assert (seen[0]["once"], seen[0].scalars["train/loss"]) == (0.1, 4.0)
    logger.write_past(Run(), {}, {"late": 5.0})
    assert seen[1].aggregate("late")["median"] == 5.0


def test_a_run_is_plotted_against_one_counter_whatever_moves_later_and_after_a_resume() -> None:
    logger, listener = make_logger()
    counts = [(99, 0), (100, 0), (101, 1), (102, 2)]
    for iteration, opt_steps in counts:
        if iteration >= 101:
            state = logger.state_dict()
            logger.reset()
            logger.load_state_dict(state)
        logger.log("train/loss", 1.0)
        logger.write(run_at(iteration=iteration, opt_steps=opt_steps))
    assert [record.step for record in listener.records] == [99, 100, 101, 102]


def test_a_state_without_an_axis_is_loaded_and_one_with_another_is_refused() -> None:
    logger, listener = make_logger()
    state = logger.state_dict()
    assert "axis" not in state
    logger.load_state_dict(state)
    logger.log("train/loss", 1.0)
    logger.write(run_at(opt_steps=7, iteration=9))
    assert listener.records[0].step == 7
    # The counters alone say the same, so states are as they were.
    assert "axis" not in logger.state_dict()
    with pytest.raises(states.StateError, match="axis"):
        logger.load_state_dict({**state, "axis": "tokens"})


def hparams_of(events: Path) -> tuple[dict[str, Any], set[str]]:
    """Return the hyperparameters and the tags that the HPARAMS tab of TensorBoard reads from its files."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.plugins.hparams import metadata

    found = EventAccumulator(str(events)).Reload().PluginTagToContent(metadata.PLUGIN_NAME)
    start = metadata.parse_session_start_info_plugin_data(found[metadata.SESSION_START_INFO_TAG])
    read = {name: getattr(v, v.WhichOneof("kind")) for name, v in start.hparams.items()}
    return read, set(found)


def test_tensorboard_has_the_config_as_hyperparameters_and_the_best_score(tmp_path: Path) -> None:
    changes = {"settings.loggers": [{"kind": "tensorboard"}]}
    train(tmp_path, "run", each_epoch=interrupt_after(1), **changes)
    events = tmp_path / "run" / "events"
    hparams, tags = hparams_of(events)
    assert hparams["model.kind"] == "mlp"
    assert hparams["learning_rate_schedule.warmup_steps"] == 1.0
    assert hparams["settings.loggers.0.kind"] == "tensorboard"
    assert tags == {"_hparams_/session_start_info"}
    result = train(tmp_path, "run", **changes)
    train(tmp_path, "run", **changes)
    _, tags = hparams_of(events)
    assert tags == {"_hparams_/session_start_info", "_hparams_/session_end_info"}
    assert result.best is not None
    shown = read_tensorboard(events).Scalars("best_score")
    assert [(point.step, point.value) for point in shown] == [
        (result.counters["opt_steps"], pytest.approx(result.best["score"]))
    ]
