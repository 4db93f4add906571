"""What a display says and draws, on a terminal of any size."""

from __future__ import annotations

import io
import re
import subprocess
import sys
from typing import Any

import pytest
from rich.console import Console

from ludus.show.memory import Memory
from ludus.show.panels import Scene, draw_line, draw_panels
from ludus.show.progress import OpenLoop, Place
from ludus.show.wording import ShownScore, better, clean, duration, number, pace, shorten

ABOUT = {"run": "runs/digits", "seed": "0", "device": "cpu (2 threads)", "logs": "[red]x"}


def drawn(scene: Scene, width: int = 100, height: int = 30, draw: Any = draw_panels) -> list[str]:
    file = io.StringIO()
    Console(file=file, width=width, height=height).print(draw(scene, width, height))
    return file.getvalue().rstrip("\n").split("\n")


def a_scene(num_metrics: int = 3, num_scores: int = 3) -> Scene:
    loops = (OpenLoop("epoch", 3, 30, 0.09), OpenLoop("step", 17, None, None))
    return Scene(
        about=ABOUT,
        place=Place(loops, "update", 0.09, 41.0, 400.0),
        counters={"opt_steps": 12345, "env_steps": 0},
        metrics={f"train/metric_{index}": index / 7 for index in range(num_metrics)},
        scores={
            f"validation/loss_{index}": ShownScore(0.5, 0.6, 0.4) for index in range(num_scores)
        },
        memory={"memory": "1.0 GB of 8.0 GB"},
    )


def test_best_is_the_lowest_loss_and_the_highest_accuracy_and_nothing_for_a_spread():
    loss: ShownScore | None = None
    for value in (0.5, 0.2, float("nan"), 0.3):
        loss = ShownScore.after(loss, "validation/loss", value)
    assert loss == ShownScore(0.3, pytest.approx(float("nan"), nan_ok=True), 0.2)
    names = ("epoch_accuracy", "ep_rew_mean", "rew_std", "win_rate", "regret", "speed")
    assert [better(f"eval/{name}") for name in names] == [1, 1, 0, 1, -1, 0]


def test_times_and_numbers_read_as_people_write_them():
    assert [duration(seconds) for seconds in (0.4, 41, 3753, 176553)] == [
        "0:00",
        "0:41",
        "1:02:33",
        "2d 1:02:33",
    ]
    values = [number(value) for value in (0.41234, 81, 3.0, 12345.6, float("nan"), 1e-7, "why")]
    assert values == ["0.4123", "81", "3", "12346", "nan", "1e-07", "why"]
    assert pace(Place(fraction=0.12, left=41.0)) == "12% 0:41 left"


def test_a_message_loses_what_could_steer_a_terminal():
    text = "a\x1b[31mred\x1b[0m\x1b]0;title\x07 \x9b2J line\r\nnext\u202e\udcff"
    assert clean(text) == "ared 2J line next?"
    assert clean("é", "ascii") == "?"


def test_a_long_name_is_shortened_in_its_middle():
    assert shorten("validation/epoch_accuracy", 16) == "valid…h_accuracy"
    assert shorten("fits", 4) == "fits"


@pytest.mark.parametrize("width", [8, 19, 20, 40, 60, 79, 80, 100, 250])
@pytest.mark.parametrize("height", [2, 4, 8, 15, 30, 60])
@pytest.mark.parametrize("draw", [draw_panels, draw_line])
def test_a_drawing_fits_any_terminal(width: int, height: int, draw: Any):
    scene = a_scene(num_metrics=40, num_scores=20)
    lines = drawn(scene, width, height, draw)
    assert len(lines) < height
    assert max(map(len, lines)) <= width


@pytest.mark.covers("000-S9")
def test_a_large_terminal_shows_every_panel_and_every_fact():
    picture = "\n".join(drawn(a_scene()))
    for words in (
        *("Run", "Device", "Progress: update", "Evaluation", "Metrics"),
        *("runs/digits", "cpu (2 threads)", "1.0 GB of 8.0 GB", "[red]x"),
        *("3 of 30", "9%  0:41 elapsed  6:40 left", "opt_steps 12,345"),
        *("train/metric_2", "0.2857", "validation/loss_1", "best 0.4"),
    ):
        assert words in picture
    assert "env_steps" not in picture


def test_a_very_wide_terminal_has_three_panels_side_by_side_and_no_line_of_more_than_160():
    lines = drawn(a_scene(), 250)
    assert max(map(len, lines)) == 160
    assert any(
        "validation/loss_0" in line and "train/metric_0" in line and "run " in line
        for line in lines
    )
    assert any("memory" in line for line in lines)


def test_a_panel_is_as_wide_as_its_names_need():
    scene = Scene(
        about={},
        place=Place(),
        metrics={"train/loss": 0.5},
        scores={"validation/epoch_accuracy_of_all": ShownScore(0.123456, 0.5, 0.987654)},
    )
    (line,) = [line for line in drawn(scene, 80) if "accuracy" in line]
    assert "validation/epoch_accuracy_of_all  0.1235 best 0.9877" in line
    assert "train/loss" in line


@pytest.mark.parametrize("width", [40, 80, 160])
def test_a_run_that_was_stopped_says_all_of_why_and_its_bar_is_not_full(width: int):
    why = "early stopping: validation/epoch_loss has not improved for 10 evaluations"
    scene = Scene(about={}, place=Place((), f"stopped: {why}", 0.5, 9.0, 0.0, is_over=True))
    lines = drawn(scene, width)
    assert " ".join(word for line in lines for word in line.strip("│ ").split()).count(why) == 1
    assert "Progress: stopped ─" in lines[0]
    (bar,) = [line for line in lines if "overall" in line]
    assert 0 < bar.count("━") <= bar.count("─")
    assert "50%" in bar


def test_counters_lose_their_speeds_and_then_the_last_of_them_but_no_digit():
    counters = {"env_steps": 123_456_789, "opt_steps": 12_345_678, "epoch": 1_234}
    scene = Scene(about={}, place=Place(), counters=counters, speeds={"env_steps": 99_999.0})
    found = [
        next(line for line in drawn(scene, width) if "env_steps" in line) for width in (100, 70, 50)
    ]
    assert "env_steps 123,456,789 (99,999/s)  opt_steps 12,345,678  epoch 1,234 ─" in found[0]
    assert "env_steps 123,456,789  opt_steps 12,345,678  epoch 1,234 ─" in found[1]
    assert "env_steps 123,456,789  opt_steps 12,345,678 ─" in found[2]


def test_one_line_has_the_score_with_its_course():
    scores = {"eval/return_mean": ShownScore(3.0), "eval/return_std": ShownScore(0.5)}
    scene = Scene(
        about={},
        place=Place(fraction=0.12, left=41.0),
        metrics={"train/loss": 0.5},
        scores=scores,
        courses={"eval/return_mean": [1.0, 2.0, 3.0]},
        speeds={"opt_steps": 250.0},
    )
    (line,) = drawn(scene, 120, draw=draw_line)
    assert "12% 0:41 left  eval/return_mean 3  ▁▅█  250 opt_steps/s  train/loss 0.5" in line


def test_a_loop_without_an_end_shows_its_count_alone():
    line = next(line for line in drawn(a_scene()) if "step " in line and "opt" not in line)
    assert " 17 " in line
    assert "of" not in line


def test_a_short_terminal_keeps_progress_evaluation_and_metrics():
    picture = "\n".join(drawn(a_scene(20, 20), 60, 15))
    assert [title in picture for title in ("Progress", "Evaluation", "Metrics", "Run")] == [
        True,
        True,
        True,
        False,
    ]
    assert re.search(r"\d+ more", picture)


def test_a_terminal_too_narrow_for_panels_gets_one_line():
    assert len(drawn(a_scene(), 16, 30)) == 1


def test_a_metric_with_an_endless_value_leaves_its_name_readable():
    scene = Scene(about={}, place=Place(), metrics={"note": "x" * 500})
    assert any("note" in line for line in drawn(scene, 60, 15))


def test_a_phase_has_its_own_bar():
    scene = Scene(about={}, place=Place(), phase=("Testing", 3, 12))
    assert any("Testing" in line and "3 of 12" in line for line in drawn(scene))
    assert "Testing 3/12" in drawn(scene, draw=draw_line)[0]


def test_gpu_memory_is_read_only_when_a_gpu_is_in_use(monkeypatch: pytest.MonkeyPatch):
    class Cuda:
        awake = False

        def is_initialized(self) -> bool:
            return self.awake

        def device_count(self) -> int:
            assert self.awake, "the display must not wake a GPU"
            return 2

        def memory_allocated(self, device: int) -> int:
            return 10**9 * (device + 1)

        max_memory_allocated = memory_allocated

    cuda = Cuda()
    monkeypatch.setitem(sys.modules, "torch.cuda", cuda)
    assert list(Memory().read()) == ["memory"]
    cuda.awake = True
    assert Memory().read()["gpu memory"] == "3.0 GB, peak 3.0 GB"


def test_the_display_imports_neither_torch_nor_the_charts_of_a_report():
    heavy = "{'torch', 'ludus.show.plot'}"
    code = f"import sys, ludus.show.display; sys.exit(bool({heavy} & sys.modules.keys()))"
    subprocess.run([sys.executable, "-c", code], check=True)
