"""Makes pages of the site from files elsewhere: the README, the changes, configs, examples, the reference.

mkdocs calls the functions `on_...` by name.
"""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
_LINK = re.compile(r"\]\(([^)#\s]+)(#[^)\s]*)?\)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add to the navigation what is listed from folders."""
    sections = {next(iter(entry)): next(iter(entry.values())) for entry in config.nav or []}
    sections["Reference"] += [
        {"Reference of classes and functions": [f"reference/{name}.md" for name in _rooms()]},
        {"Configs": [f"configs/{_page_of(path)}" for path in _configs()]},
        {"Examples": [f"examples/{_page_of(path)}" for path in _examples()]},
        {"Changes": "changes.md"},
    ]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made here."""
    made = {"index.md": _readme(), "changes.md": (ROOT / "CHANGELOG.md").read_text()}
    made |= {f"configs/{_page_of(path)}": _listing(path, "yaml") for path in _configs()}
    made |= {f"examples/{_page_of(path)}": _listing(path, "python") for path in _examples()}
    made |= {f"reference/{name}.md": _reference(name) for name in _rooms()}
    for place, text in made.items():
        files.append(File.generated(config, place, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point links at files of the project, which a reader of the sources follows, to their pages here."""
    depth = "../" * page.file.src_uri.count("/")

    def moved(match: re.Match[str]) -> str:
        place, anchor = match[1], match[2] or ""
        if "://" in place:
            return match[0]
        is_top = page.file.src_uri in ("index.md", "changes.md")
        source = (ROOT if is_top else ROOT / "docs" / page.file.src_uri).resolve()
        target = ((source if is_top else source.parent) / place).resolve()
        found = _page_here(target)
        return match[0] if found is None else f"]({depth}{found}{anchor})"

    return _LINK.sub(moved, markdown)


def _page_here(target: Path) -> str | None:
    """Return the page on which a file of the project is shown, if it is."""
    if not target.is_relative_to(ROOT):
        return None
    place = target.relative_to(ROOT)
    if place.parts[0] == "docs":
        return str(place.relative_to("docs"))
    if place.name == "CHANGELOG.md":
        return "changes.md"
    if place.name == "README.md":
        return "index.md"
    if place.parts[0] in ("configs", "examples"):
        return f"{place.parts[0]}/{_page_of(place)}"
    return None


def _configs() -> list[Path]:
    return sorted((ROOT / "configs").rglob("*.yaml"))


def _examples() -> list[Path]:
    return sorted((ROOT / "examples").glob("*.py"))


def _page_of(path: Path) -> str:
    return f"{path.stem}.md"


def _listing(path: Path, language: str) -> str:
    return f"# {path.stem}\n\n`{path.relative_to(ROOT)}`\n\n```{language}\n{path.read_text()}```\n"


def _readme() -> str:
    return (ROOT / "README.md").read_text()


def _rooms() -> dict[str, Any]:
    """Return the packages with public names, by the name of their page."""
    packages = [
        ROOT / "ludus",
        *sorted(path.parent for path in (ROOT / "ludus").glob("*/__init__.py")),
    ]
    return {
        package.relative_to(ROOT).as_posix().replace("/", "."): package
        for package in packages
        if "lazy_names(" in (package / "__init__.py").read_text()
    }


def _reference(name: str) -> str:
    """Return a page with the public classes and functions of a package; constants are listed elsewhere."""
    module = importlib.import_module(name)
    found = {public: getattr(module, public) for public in sorted(module.__all__)}
    shown = [
        public
        for public, value in found.items()
        if inspect.isroutine(value) or isinstance(value, type)
    ]
    return "\n".join([f"# {name}", "", *(f"::: {name}.{public}\n" for public in shown)])
