"""What the documents show runs as shown."""

from __future__ import annotations

import re
import runpy
import textwrap
from pathlib import Path

import pytest

HERE = Path(__file__).parents[1]
DOCUMENTS = [HERE / "README.md", *sorted((HERE / "docs").glob("*.md"))]
EXAMPLES = sorted((HERE / "examples").glob("*.py"))


def code_blocks() -> list[tuple[str, str]]:
    found = []
    for path in DOCUMENTS:
        blocks = re.findall(r"```python\n(.*?)```", path.read_text(), re.DOTALL)
        # A block within a tab of the site is indented.
        blocks = [textwrap.dedent(block) for block in blocks]
        found += [(f"{path.name}-{number}", block) for number, block in enumerate(blocks)]
    return found


@pytest.mark.usefixtures("own_registry")
@pytest.mark.parametrize(("name", "block"), code_blocks(), ids=lambda value: value[:30])
def test_every_code_block_of_the_documents_runs(
    name: str, block: str, tmp_path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "block.py"
    path.write_text(block)
    assert runpy.run_path(str(path), run_name="__main__")


@pytest.mark.usefixtures("own_registry")
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_runs(path: Path, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(path), run_name="__main__")
    assert list((tmp_path / "runs").iterdir())


def test_the_readme_is_true_about_the_commands() -> None:
    from typer.main import get_command

    from ludus.cli.app import app

    commands = set(get_command(app).commands)  # type: ignore[attr-defined]
    shown = set(re.findall(r"ludus ([a-z]+)\b", (HERE / "README.md").read_text()))
    assert commands <= shown, f"the README does not show {commands - shown}"


def test_the_page_of_public_names_is_what_the_code_gives() -> None:
    from tests import api_page

    is_same = api_page.PAGE.read_text() == api_page.page()
    assert is_same, "the code has changed: run python -m tests.api_page"


def test_the_documents_name_only_files_that_exist() -> None:
    for path in DOCUMENTS:
        for target in re.findall(r"\]\(([^)#]+)\)", path.read_text()):
            assert (path.parent / target).exists(), f"{path.name} points to {target}"


def headings(path: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    text = re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL)
    found = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in found}


def test_links_to_headings_name_headings_that_exist() -> None:
    for path in DOCUMENTS:
        for target, anchor in re.findall(r"\]\(([^)#]*)#([^)]+)\)", path.read_text()):
            page = path.parent / target if target else path
            assert anchor in headings(page), f"{path.name} points to {target}#{anchor}"


def test_the_trainer_that_the_documents_teach_keeps_the_contract(tmp_path, monkeypatch) -> None:
    from ludus.config.base import read_config
    from ludus.testing.trainers import check_trainer

    text = (HERE / "docs" / "add-your-own.md").read_text()
    code = re.findall(r"```python\n(.*?)```", text, re.DOTALL)[0]
    (tmp_path / "walk.py").write_text(code.replace("random_walk", "random_walk_taught"))
    config = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)[0]
    config = config.replace("random_walk", "random_walk_taught").replace(
        "display: auto", "display: none"
    )
    (tmp_path / "walk.yaml").write_text(config.replace("num_steps: 200", "num_steps: 12"))
    taught = runpy.run_path(str(tmp_path / "walk.py"))["RandomWalk"]
    check_trainer(lambda: taught(read_config(tmp_path / "walk.yaml")), tmp_path / "runs")


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_no_document_is_an_empty_promise(path: Path) -> None:
    assert len(path.read_text()) > 300


def test_every_page_is_in_the_navigation_of_the_site() -> None:
    listed = re.findall(r"[\w-]+\.md", (HERE / "website" / "mkdocs.yml").read_text())
    pages = {path.name for path in (HERE / "docs").glob("*.md")}
    assert pages - set(listed) == set(), "add them to website/mkdocs.yml"
    assert set(listed) - pages == {"index.md"}
