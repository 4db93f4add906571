"""A family adds sections to the report from its own folder, and cannot spoil the page."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from pathlib import Path

import pytest

import ludus
from ludus.config import families
from ludus.core.errors import RunError
from ludus.show.report.page import write_report
from tests.show.test_report import Page, make_run

Declare = Callable[[str], None]


@pytest.fixture
def declare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Declare:
    """Return a function that declares a package whose folder `report` has this file; forgotten afterwards."""
    families.families()
    monkeypatch.setattr(families, "_ROOMS", dict(families._ROOMS))
    for name in ("mine", "mine.report", "mine.report.medals"):
        monkeypatch.delitem(sys.modules, name, raising=False)

    def declare(code: str) -> None:
        folder = tmp_path / "mine/report"
        folder.mkdir(parents=True)
        (folder / "__init__.py").touch()
        (folder / "medals.py").write_text(
            "from ludus.show.report.families import Section\n"
            "from ludus.show.report.charts import text\n" + code
        )
        module = types.ModuleType("mine")
        module.__path__ = [str(tmp_path / "mine")]
        monkeypatch.setitem(sys.modules, "mine", module)
        ludus.declare("mine")

    return declare


def page_of(tmp_path: Path, *names: str) -> Page:
    runs = [make_run(tmp_path / name, name=name) for name in names or ("one",)]
    return Page(write_report(runs, tmp_path / "page.html"))


def test_a_file_of_a_family_is_a_section_before_the_curves(
    tmp_path: Path, declare: Declare
) -> None:
    declare(
        "def medals(runs):\n    return Section('Medals & <b>', f'<p>{text(runs[0].name)} won</p>')"
    )
    page = page_of(tmp_path, "a<b")
    assert "<h2>Medals &amp; &lt;b&gt;</h2><p>a&lt;b won</p>" in page.source
    assert page.source.index("Medals &amp;") < page.source.index("<h2>Curves</h2>")


def test_a_section_is_given_all_runs_of_the_page_and_stands_once(
    tmp_path: Path, declare: Declare
) -> None:
    declare("def medals(runs):\n    return Section('Medals', ' '.join(run.name for run in runs))")
    assert page_of(tmp_path, "first", "second").source.count("<h2>Medals</h2>first second") == 1


def test_a_section_reads_the_files_of_a_run(tmp_path: Path, declare: Declare) -> None:
    declare(
        "def medals(runs):\n"
        "    (run,) = runs\n"
        "    told = ' '.join(name for name in run.names('') if name.endswith('.json'))\n"
        "    return Section('Medals', f\"{told} {run.read_json('run.json')['host']} {run.names('no')}\")"
    )
    assert "<h2>Medals</h2>run.json node-7 []" in page_of(tmp_path).source


def test_a_family_with_nothing_to_say_leaves_the_page_as_it_is(
    tmp_path: Path, declare: Declare
) -> None:
    before = page_of(tmp_path / "before").source
    declare("def medals(runs):\n    return None")
    after = page_of(tmp_path / "after").source
    assert after.replace(str(tmp_path / "after"), "") == before.replace(
        str(tmp_path / "before"), ""
    )


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("def medals(runs):\n    raise KeyError('<gold>')", "KeyError: '<gold>'"),
        ("def medals(runs):\n    raise ValueError", "ValueError"),
        (
            "def medals(runs):\n    return 'gold'",
            "'medals' returned a str; return a Section or None",
        ),
        ("def other(runs): ...", "mine.report.medals has no function 'medals'"),
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
        (
            "def medals(runs):\n    return Section('x', runs[0].read_json('no.json'))",
            "no.json is missing",
        ),
    ],
)
def test_a_section_that_fails_says_so_and_the_page_goes_on(
    tmp_path: Path, declare: Declare, code: str, said: str
) -> None:
    declare(code)
    page = page_of(tmp_path)
    assert f"The section 'medals' of mine could not be made: {said}." in page.text
    assert "Best model" in page.text
    assert "gold" not in page.tags


def test_a_directory_that_a_family_marks_is_reported_though_it_is_no_run(
    tmp_path: Path, declare: Declare
) -> None:
    declare(
        "MARK = 'medals.jsonl'\n"
        "def medals(runs):\n"
        "    said = [f\"{run.name} {run.is_run} {[*run.read_lines('medals.jsonl')]}\" for run in runs]\n"
        "    return Section('Medals', text(said))"
    )
    place = tmp_path / "shelf"
    place.mkdir()
    with pytest.raises(RunError, match="is not a run directory"):
        write_report([place])
    (place / "medals.jsonl").write_text('{"gold": 1}\n{torn}\n{"ha')
    page = Page(write_report([place]))
    assert "shelf False [{'gold': 1}]" in page.text
    assert "medals.jsonl has 1 damaged line, left out here." in page.text
    assert not [word for word in ("Curves", "Config", "resume", "compared") if word in page.text]
    run = make_run(tmp_path / "one")
    page = Page(write_report([place, run], tmp_path / "page.html"))
    assert page.source.count("<h2>Curves</h2>") == 1
    assert page.source.split("<tbody>")[1].split("</tbody>")[0].count("<tr>") == 1
    assert "digits True []" in page.text
