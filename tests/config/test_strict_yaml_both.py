"""Two readers of YAML, libyaml's and PyYAML's own: whichever is there, a file means the same."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from ludus.config import strict_yaml
from ludus.core.errors import ConfigError

CONFIGS = Path(__file__).parents[2] / "configs"
ODD = [
    "a:\t1",
    "a: 1\t# c",
    "a: x\ty",
    "[1,\t2]",
    "a: 1\t",
    "\t\na: 1",
    "a: |#c",
    "[a?b]",
    "\n\ufeff",
    "? a\n: b",
    "a: \ud800",
    "a: '\udcff'",
    "a: |\n  b\n  c\n",
    "a: >\n  b\n  c\n",
    "a: [1, 2",
    "a: 1\na: 2",
    "a: &x 1",
    "a: 08",
    "a: !!int 1",
    "a: {b: 1, c: [x, 'y', \"z\"]}",
    "a: 1e3\nb: .nan\nc: ~\nd:\ne: 'null'",
    "a: b: c",
    "- a\n- b: 1",
    "",
    "a: 'x\n  y'",
    "a: x\n  y",
    "---\na: 1\n---\nb: 2",
    "%YAML 1.1\n---\na: yes",
    "a: 'it''s'",
    '"a\\tb": 1',
    "a: @b",
    "\xe9: \xfc",
]


def read(text: str) -> Any:
    try:
        return repr(strict_yaml.parse(text, source="x"))
    except ConfigError as error:
        return str(error)


@pytest.mark.parametrize("text", ODD)
def test_odd_text_is_read_or_refused_alike_by_both(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick = read(text)
    monkeypatch.setattr(strict_yaml, "_QuickLoader", strict_yaml._Loader)
    assert read(text) == quick


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_shipped_file_is_read_alike_by_both(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick = read(path.read_text())
    monkeypatch.setattr(strict_yaml, "_QuickLoader", strict_yaml._Loader)
    assert read(path.read_text()) == quick


@pytest.mark.skipif(not yaml.__with_libyaml__, reason="needs libyaml")
def test_plain_text_is_read_by_libyaml() -> None:
    assert issubclass(strict_yaml._QuickLoader, yaml.CSafeLoader)


def test_bytes_of_a_command_line_that_are_no_text_are_refused_in_a_sentence() -> None:
    text = os.fsdecode(b"name: \xff")
    with pytest.raises(ConfigError, match=r"^x: .*not readable as YAML"):
        strict_yaml.parse(text, source="x")
