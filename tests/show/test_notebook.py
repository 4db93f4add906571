"""The display in a notebook: one block, updated in place."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from ludus.core.loop import walk
from ludus.core.run import Run
from ludus.show import notebook
from ludus.show.display import PlainDisplay, make_display
from ludus.show.notebook import NotebookDisplay
from tests.show.test_display import ABOUT, MIDWAY, a_console, a_plan, a_run

CELLS = (
    """
import ludus
config = ludus.example("ppo", max_env_steps=1024, evaluate_every_epochs=2, **{
    "settings.display": "auto", "settings.threads": 1, "engine": "eager", "evaluation.target": None})
result = ludus.build_trainer(config).fit(root=ROOT, name="one")
""",
    'result.plot("return_mean")',
    "print(result.status)",
)


def a_block(scores: tuple[str, ...] = ()) -> tuple[NotebookDisplay, list[str]]:
    shown: list[str] = []
    return NotebookDisplay(ABOUT, a_plan(), shown.append, scores), shown


def test_a_notebook_shows_one_block_and_the_curves_and_its_kernel_ends(tmp_path: Path):
    first = nbformat.v4.new_code_cell(f"ROOT = {str(tmp_path)!r}\n{CELLS[0]}")
    cells = [first, *(nbformat.v4.new_code_cell(source) for source in CELLS[1:])]
    book = nbformat.v4.new_notebook(cells=cells)
    client = NotebookClient(book, timeout=300, kernel_name="python3")
    # Sockets in a directory instead of ports that other users of the machine could reach.
    client.create_kernel_manager().transport = "ipc"
    client.km.ip = str(tmp_path / "kernel")
    pids = []
    client.on_cell_execute = lambda **_: pids.append(client.km.provisioner.pid)
    client.execute()
    training, plotted, printed = (cell.outputs for cell in cells)
    (block,) = training
    shown = block["data"]["text/html"]
    assert "finished · 100%" in shown
    assert "eval/return_mean" in shown
    assert "<svg" in shown
    assert "env_steps/s" in shown
    assert "<svg" in plotted[0]["data"]["text/html"]
    assert [output["text"] for output in printed] == ["finished\n"]
    with pytest.raises(ProcessLookupError):
        os.kill(pids[0], 0)


def in_a_shell(monkeypatch: pytest.MonkeyPatch, shell: object) -> None:
    module = SimpleNamespace(get_ipython=lambda: shell)
    monkeypatch.setitem(sys.modules, "IPython", module)


def test_a_shell_without_a_kernel_and_a_script_are_no_notebook(monkeypatch: pytest.MonkeyPatch):
    for shell in (None, object()):
        in_a_shell(monkeypatch, shell)
        display = make_display("auto", {}, a_plan(), console=a_console())
        assert not isinstance(display, NotebookDisplay)


def test_plain_lines_can_be_had_in_a_notebook_too(monkeypatch: pytest.MonkeyPatch):
    in_a_shell(monkeypatch, SimpleNamespace(kernel=object()))
    console = a_console()
    assert isinstance(make_display("plain", {}, a_plan(), console=console), PlainDisplay)
    for kind in ("auto", "rich", "minimal"):
        assert isinstance(make_display(kind, {}, a_plan(), console=console), NotebookDisplay)


def test_a_thousand_records_are_few_updates_and_the_last_shows_the_last(
    monkeypatch: pytest.MonkeyPatch,
):
    now = 0.0
    monkeypatch.setattr(notebook.time, "monotonic", lambda: now)
    display, shown = a_block()
    with display:
        for value in range(1000):
            now += 0.01
            display(a_run(*MIDWAY))
            display.show({"train/loss": value}, {"opt_steps": value})
    assert len(shown) <= 23
    assert ">999<" in shown[-1]


def test_names_and_texts_are_escaped():
    display, shown = a_block()
    with display:
        display.show({"eval/<script>x": 1.0, "note": "<b>\x1b[31m"}, {"opt_steps": 1})
        display.message("<img src=x>")
    assert "<script>" not in shown[-1]
    assert "<img" not in shown[-1]
    assert "\x1b" not in shown[-1]
    assert "eval/&lt;script&gt;x" in shown[-1]


def test_of_many_messages_the_newest_are_shown_and_the_others_counted():
    display, shown = a_block()
    with display:
        for index in range(50):
            display.message(f"message {index}")
    assert "(30 earlier messages)" in shown[-1]
    assert "message 49" in shown[-1]
    assert "message 29<" not in shown[-1]


def test_a_stopped_run_says_why_and_its_bar_is_not_full():
    def work(run: Run) -> None:
        if run.counters["opt_steps"] == 1:
            run.stop("early stopping: no progress")

    plan, shown = a_plan(2, 2, work), list[str]()
    display = NotebookDisplay({}, plan, shown.append)
    with display:
        display(run := Run())
        walk(plan, run, {"after_train": (display.close,)}, [display], lambda run: None)
    assert '<progress value="0.5000"' in shown[-1]
    assert "stopped: early stopping: no progress" in shown[-1]


def test_a_notebook_that_is_gone_does_not_end_the_run():
    def update(content: str) -> None:
        raise OSError("the page is closed")

    calls: list[Any] = []
    display = NotebookDisplay(
        {}, a_plan(), lambda content: (calls.append(content), update(content))
    )
    with display:
        display.show({"eval/loss": 1.0}, {"opt_steps": 1})
        display(a_run(*MIDWAY))
    assert len(calls) <= 2
