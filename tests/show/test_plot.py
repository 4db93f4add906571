"""The curves of runs as an image, as a page and in a notebook."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

import ludus
from ludus.core.errors import ConfigError, LudusError, RunError, StorageError
from ludus.core.runtime import Result
from ludus.show.plot import plot
from ludus.show.report.style import STYLE, chart_style
from tests.show.test_report import make_run

SVG = "{http://www.w3.org/2000/svg}"


def records(num: int = 5) -> list[dict[str, object]]:
    return [
        {"opt_steps": 10 * n, "train/loss": 1 / n, "eval/loss": 2 / n, "eval/return_mean": n}
        for n in range(1, num + 1)
    ]


def titles(svg: str) -> list[str]:
    image = ElementTree.fromstring(svg.encode())
    return [
        "".join(one.itertext()) for one in image.iter(f"{SVG}text") if one.get("class") == "title"
    ]


def test_every_metric_has_a_curve_and_a_name_chooses_some(tmp_path: Path):
    run = make_run(tmp_path / "run", metrics=records())
    assert sorted(titles(plot(run).svg)) == ["loss", "return_mean"]
    assert titles(plot(run, metric="loss").svg) == ["loss"]
    both = plot(run, metric="loss").svg
    one = plot(run, metric=["eval/loss"]).svg
    assert (both.count('class="line c'), one.count('class="line c')) == (4, 2)


def test_what_a_run_returns_draws_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    quick = {"learning_rate_schedule.warmup_steps": 0, "engine": "eager"}
    config = ludus.example("supervised", max_epochs=3, **quick, **{"settings.display": "plain"})
    trainer = ludus.build_trainer(config)
    result = trainer.fit(root=str(tmp_path))
    drawn = result.plot("train/epoch_loss")
    assert drawn._repr_html_().count("<figure>") == 1
    assert titles(drawn.svg) == ["epoch_loss"]
    assert ludus.plot(result, metric="train/epoch_loss").svg == drawn.svg
    # Its display names the metric that the run is judged by before all others.
    assert list(trainer.run.display._scores) == ["validation/epoch_loss"]  # type: ignore[union-attr]
    lines = capsys.readouterr().out.splitlines()
    assert all(len(line) < 160 for line in lines)
    assert ["100%" in line for line in lines[-2:]] == [True, True]


def test_a_run_in_memory_has_no_curves_and_says_so():
    with pytest.raises(LudusError, match="kept in memory"):
        Result("finished", None, {}).plot()
    with pytest.raises(RunError, match="kept in memory"):
        plot(Result("finished", None, {}))


def test_several_runs_share_each_chart(tmp_path: Path):
    runs = [make_run(tmp_path / name, metrics=records(), name=name) for name in ("first", "second")]
    drawn = plot(*runs, metric="return_mean")
    words = "".join(ElementTree.fromstring(drawn.svg.encode()).itertext())
    assert "first" in words
    assert "second" in words
    assert "2 runs" not in repr(plot(runs[0]))
    assert repr(drawn).startswith("<Plot: 1 chart of ")


def test_a_name_that_no_run_has_is_refused_with_the_nearest(tmp_path: Path):
    run = make_run(tmp_path / "run", metrics=records())
    with pytest.raises(ConfigError, match=r"'los'\. Did you mean 'loss'\?"):
        plot(run, metric="los")


def test_a_run_without_metrics_and_a_directory_without_a_run_are_refused(tmp_path: Path):
    with pytest.raises(RunError, match="no metric in its log"):
        plot(make_run(tmp_path / "run", metrics=[]))
    with pytest.raises(LudusError, match="nowhere"):
        plot(tmp_path / "nowhere")


def test_an_image_and_a_page_are_written_again_but_no_other_file_is(tmp_path: Path):
    drawn = plot(make_run(tmp_path / "run", metrics=records()))
    for name in ("curves.svg", "curves.html"):
        for _ in range(2):
            path = drawn.save(tmp_path / name)
        assert path == tmp_path / name
    ElementTree.fromstring((tmp_path / "curves.svg").read_bytes())
    assert "default-src 'none'" in (tmp_path / "curves.html").read_text()
    (tmp_path / "mine.svg").write_text("<svg/>")
    with pytest.raises(StorageError, match="was not written by ludus as a plot"):
        drawn.save(tmp_path / "mine.svg")
    with pytest.raises(ConfigError, match=r"end it with \.svg or \.html"):
        drawn.save(tmp_path / "curves.png")


def test_names_that_no_image_may_hold_are_harmless(tmp_path: Path):
    name = "eval/<script>\x00\ud800\ufffe&\x1b"
    run = make_run(tmp_path / "run", metrics=[{"opt_steps": n, name: n} for n in range(3)])
    drawn = plot(run)
    path = drawn.save(tmp_path / "curves.svg")
    ElementTree.fromstring(path.read_bytes())
    assert "<script>" not in drawn.html
    assert "\x1b" not in drawn.svg


def test_metrics_that_are_not_finite_leave_a_chart_that_says_so(tmp_path: Path):
    run = make_run(tmp_path / "run", metrics=[{"opt_steps": 1, "train/loss": "nan"}])
    assert titles(plot(run).svg) == ["loss"]
    assert "No value of this metric is finite" in plot(run)._repr_html_()


def test_the_style_of_charts_touches_nothing_else_on_a_page_and_knows_no_variables():
    for is_image in (False, True):
        rules = chart_style(".here", is_image=is_image).split("}")
        assert all(rule.strip().startswith(".here") for rule in rules if rule.strip())
        assert "var(" not in "".join(rules)
        assert ".here .line{fill:none;stroke:currentColor" in "}".join(rules)
    assert ".here svg{" not in chart_style(".here", is_image=True)
    assert "var(--c0)" in STYLE
