"""What the documents show runs as shown."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

HERE = Path(__file__).parents[1]
DOCUMENTS = [HERE / "README.md", *sorted((HERE / "docs").glob("*.md"))]
EXAMPLES = sorted((HERE / "examples").glob("*.py"))


def code_blocks() -> list[tuple[str, str]]:
    found = []
    for path in DOCUMENTS:
        blocks = re.findall(r"```python\n(.*?)```", path.read_text(), re.DOTALL)
        found += [(f"{path.name}-{number}", block) for number, block in enumerate(blocks)]
    return found


@pytest.mark.parametrize(("name", "block"), code_blocks(), ids=lambda value: value[:30])
def test_every_code_block_of_the_documents_runs(
    name: str, block: str, tmp_path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "block.py"
    path.write_text(block)
    assert runpy.run_path(str(path), run_name="__main__")


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_runs(path: Path, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(path), run_name="__main__")
    assert list((tmp_path / "runs").iterdir())


def test_the_readme_is_true_about_the_commands() -> None:
    from typer.main import get_command

    from ludus.cli import app

    commands = set(get_command(app).commands)  # type: ignore[attr-defined]
    shown = set(re.findall(r"ludus ([a-z]+)\b", (HERE / "README.md").read_text()))
    assert commands <= shown, f"the README does not show {commands - shown}"


def test_the_documents_name_only_files_that_exist() -> None:
    for path in DOCUMENTS:
        for target in re.findall(r"\]\(([^)#]+)\)", path.read_text()):
            assert (path.parent / target).exists(), f"{path.name} points to {target}"
