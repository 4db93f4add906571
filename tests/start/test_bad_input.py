"""Whatever is wrong with the run to start from is said in one sentence, before work begins."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import ludus
from ludus.config.start import parted, start_from
from ludus.core.errors import ConfigError
from ludus.store.models import write_model
from ludus.store.places import open_storage
from tests.command_line import Ludus
from tests.keys.runs import tiny
from tests.start.sources import Source, section, small_run


def refused(kind: str, root: Path, run: Path | str, **changed: Any) -> str:
    """Return the sentence that refuses a start; nothing is left of the run."""
    trainer = ludus.build_trainer(small_run(kind, start=section(kind, run, **changed)))
    with pytest.raises(ConfigError) as caught:
        trainer.fit(root=str(root), name="refused")
    assert not (root / "refused").exists()
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_a_run_that_is_not_there_or_a_model_that_is_not_kept(
    source: Source, tmp_path: Path
) -> None:
    assert refused("ppo", tmp_path, "nope").startswith("'start': nope is not a run directory")
    run = source("ppo")
    assert "no model is kept there" in refused("ppo", tmp_path, run, model="best-x")
    assert "has no best model" in refused(
        "supervised", tmp_path, source("supervised"), model="best"
    )


def test_a_directory_of_a_model_is_named_as_run_and_model(source: Source, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    write_model(open_storage(tmp_path / "a"), "models/mine", {}, {})
    text = refused("ppo", tmp_path, tmp_path / "a/models/mine")
    assert f"run: {tmp_path}/a, model: mine (--from {tmp_path}/a:mine)" in text


def test_a_damaged_model_and_damaged_checkpoints(source: Source, tmp_path: Path) -> None:
    run = Path(shutil.copytree(source("supervised"), tmp_path / "run"))
    write_model(open_storage(run), "models/mine", {}, {})
    (run / "models/mine/weights.safetensors").write_bytes(b"\x80\x04.")
    text = refused("supervised", tmp_path, run, model="mine")
    assert "has changed since it was saved" in text
    for manifest in run.glob("checkpoints/*/tensors.safetensors"):
        manifest.write_bytes(b"")
    assert str(run) in refused("supervised", tmp_path, run)


def test_weights_of_which_none_fits(source: Source, tmp_path: Path) -> None:
    text = refused("ppo", tmp_path, source("supervised"))
    assert "nothing of checkpoint 19 of" in text
    assert "(supervised) fits this run: none of its 4 weights (layers.0." in text


def test_moments_of_another_shape(source: Source, tmp_path: Path) -> None:
    model = tiny("supervised").model.model_copy(update={"widths": [5]}).model_dump()
    start = section("supervised", source("supervised"), optimizer=True)
    trainer = ludus.build_trainer(small_run("supervised", model=model, start=start))
    with pytest.raises(
        ConfigError, match=r"^'start': the state of .* does not fit this run: 'moments"
    ):
        trainer.fit(root=str(tmp_path), name="a")


def test_a_run_without_a_checkpoint(source: Source, tmp_path: Path) -> None:
    run = Path(shutil.copytree(source("supervised"), tmp_path / "run"))
    shutil.rmtree(run / "checkpoints")
    assert "has no checkpoint yet" in refused("supervised", tmp_path, run)


def test_two_models_and_an_active_run_that_begins_twice(source: Source) -> None:
    with pytest.raises(ConfigError, match=r"'start' and 'round_start' checkpoint both say"):
        tiny(
            "active",
            round_start="checkpoint",
            starting_checkpoint="a",
            start=section("active", "b"),
        )
    with pytest.raises(ConfigError, match=r"'frozen' names a 2 times; once is enough"):
        tiny("supervised", start=section("supervised", "b", frozen=["a", "a"]))


@pytest.mark.parametrize(
    ("given", "run", "model"),
    [
        ("runs/a", "runs/a", "best"), ("a:last", "a", "last"), ("a:models/x", "a", "models/x"),
        ("s3://bucket/a", "s3://bucket/a", "best"), ("s3://bucket/a:last", "s3://bucket/a", "last"),
        ("a:/kept/x", "a", "/kept/x"),
    ],
)  # fmt: skip
def test_a_run_and_its_model_are_read(given: str, run: str, model: str) -> None:
    assert parted(given) == (run, model)


def test_the_section_that_from_fills_is_told_and_keeps_what_a_file_says() -> None:
    said: list[str] = []
    data: dict[str, Any] = {"kind": "dqn", "start": None}
    start_from(data, "a:last", tell=said.append)
    assert data["start"] == section("dqn", "a")
    assert said[0].startswith('start is run "a", model "last", optimizer false, frozen []')
    data["start"]["frozen"] = ["q"]
    start_from(data, "b", tell=said.append)
    assert data["start"] == section("dqn", "b", model="best", frozen=["q"])
    for given in ("a:", ":best"):
        with pytest.raises(ConfigError, match="give RUN or RUN:MODEL, as runs/a:best"):
            start_from(data, given, tell=said.append)


def test_the_command_starts_from_a_run_by_its_name(
    source: Source, tmp_path: Path, call: Ludus, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(source("supervised"), tmp_path / "runs" / "first")
    monkeypatch.chdir(tmp_path)
    Path("mine.yaml").write_text(small_run("supervised").to_yaml())
    words = ["train", "mine.yaml", "--run", "second", "settings.display=plain"]
    found = call(*words, "--from", "first:last", "start.frozen=[layers.0]")
    assert "started from: checkpoint 19 of runs/first (supervised): 4 of its 4 weights" in found.out
    assert 'start is run "first", model "last"' in found.err
    assert "frozen: [layers.0]" in Path("runs/second/config.yaml").read_text()
    told = call(*words[:2], "--from", "first", "start=null").err
    assert told.endswith("start=null from none; leave one out\n")
    told = call("train", "rerun_tests", "--from", "first").refusal()
    assert "kind rerun_tests does not start from another run" in told
