"""No key of any config is without a test of what it does, so that none can stop doing it unnoticed."""

from __future__ import annotations

import importlib
from pathlib import Path

from tests.keys.table import CASES, every_key

HERE = Path(__file__).parent


def test_every_key_has_a_test_of_what_a_change_of_it_does() -> None:
    for path in sorted(HERE.glob("test_*.py")):
        importlib.import_module(f"tests.keys.{path.stem}")
    importlib.import_module("tests.keys.elsewhere")
    keys = list(every_key())
    assert len(keys) > 400
    missing = [(group, key) for group, key in keys if (group, key) not in CASES]
    told = "\n".join(f'    @changes("{group}", "{key}")' for group, key in missing)
    assert not missing, (
        f"{len(missing)} keys have no test of what they do. Write one for each in tests/keys/, a"
        f" sentence that asserts what the key's own sentence says, under this decorator:\n{told}"
    )
    unknown = sorted(set(CASES) - set(keys))
    assert not unknown, f"these keys are tested, but there are no such keys: {unknown}"
