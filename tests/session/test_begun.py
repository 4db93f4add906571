"""What a run that has begun decided is not decided anew."""

from __future__ import annotations

from pathlib import Path

import pytest

import ludus
from ludus.session.begun import as_begun, has_begun
from ludus.store.local import LocalStorage


@pytest.mark.parametrize(
    ("written", "engine"),
    [("engine: eager", "eager"), ("compile: false", "tape"), ("compile: true", "compiled")],
)
def test_auto_is_what_it_was_when_the_run_began_also_in_an_older_file(
    tmp_path: Path, written: str, engine: str
) -> None:
    config = ludus.example("dqn")
    assert config.engine == "auto"
    assert as_begun(config, LocalStorage(tmp_path)) is config
    text = config.to_yaml().replace("engine: auto", written)
    (tmp_path / "config.yaml").write_text(text)
    assert as_begun(config, LocalStorage(tmp_path)).engine == engine
    named = config.replace(engine="tape")
    assert as_begun(named, LocalStorage(tmp_path)) is named


def test_a_run_has_begun_once_it_has_its_note(tmp_path: Path) -> None:
    assert not has_begun(None)
    assert not has_begun(LocalStorage(tmp_path))
    (tmp_path / "run.json").write_text("{}")
    assert has_begun(LocalStorage(tmp_path))
