"""A library of models: safe names, whole models, one order."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import pytest

from ludus.core.errors import ConfigError
from ludus.text.models.language_model import load_model
from ludus.text.models.library import ModelLibrary


@pytest.fixture
def library(tmp_path: Path) -> ModelLibrary:
    ticks = itertools.count(1000)
    return ModelLibrary(tmp_path / "library", clock=lambda: next(ticks))


def test_models_are_listed_by_name_with_when_they_were_added(
    library: ModelLibrary, tiny: Path
) -> None:
    assert library.names() == []
    for name in ("tiny", "ft:tiny:org:suffix:id", "Tiny", "a/b"):
        library.add(name, tiny, origin="tiny" if name.startswith("ft:") else "")
    for path in library.root.rglob("*"):
        os.utime(path, (5, 5))
    assert library.names() == ["Tiny", "a/b", "ft:tiny:org:suffix:id", "tiny"]
    entries = {entry.name: entry for entry in library.entries()}
    assert entries["tiny"].created_at == 1000
    assert entries["ft:tiny:org:suffix:id"].created_at == 1001
    assert entries["ft:tiny:org:suffix:id"].origin == "tiny"
    assert "a/b" in library
    assert "b" not in library


def test_a_model_of_the_library_loads_under_its_name(library: ModelLibrary, tiny: Path) -> None:
    model = load_model(tiny, name="ft:tiny:x")
    library.add_model(model)
    loaded = library.load("ft:tiny:x")
    assert loaded.name == "ft:tiny:x"
    assert loaded.directory == library.directory("ft:tiny:x")


def test_no_name_leads_out_of_the_library(
    library: ModelLibrary, tiny: Path, tmp_path: Path
) -> None:
    for name in ("", ".", "../x", "/x", "-x", "a b", "a\nb", "x" * 201, "é"):
        with pytest.raises(ConfigError, match="a model cannot be named"):
            library.add(name, tiny)
    library.add("a/../../x", tiny)
    assert [path.name for path in tmp_path.iterdir()] == ["library"]
    assert library.names() == ["a/../../x"]


def test_a_name_is_given_once(library: ModelLibrary, tiny: Path) -> None:
    library.add("tiny", tiny)
    with pytest.raises(ConfigError, match="there is a model 'tiny' already"):
        library.add("tiny", tiny)
    library.delete("tiny")
    library.add("tiny", tiny)
    assert library.entry("tiny").created_at == 1001
    assert len(list(library.root.iterdir())) == 1


def test_an_unknown_model_is_reported_with_those_there_are(
    library: ModelLibrary, tiny: Path
) -> None:
    with pytest.raises(ConfigError, match=r"there is no model 'tiny'. There is no model yet"):
        library.load("tiny")
    library.add("tiny", tiny)
    with pytest.raises(ConfigError, match=r"there is no model 'tinny'. Did you mean 'tiny'"):
        library.delete("tinny")


def test_what_a_killed_process_left_half_written_is_no_model(
    library: ModelLibrary, tiny: Path
) -> None:
    path = library.add("tiny", tiny)
    path.rename(path.with_name(f"{path.name}.tmp-1"))
    assert library.names() == []
    assert "tiny" not in library
    library.add("tiny", tiny)
    assert library.names() == ["tiny"]


def test_a_directory_without_a_model_is_not_added(library: ModelLibrary, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match=r"has no config.json"):
        library.add("x", tmp_path / "empty")
    assert library.names() == []
