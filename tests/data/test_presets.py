"""The shipped files for data that users bring run as they are, once there is such data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import ludus
from tests.data.files import picture, write_table

QUIET = {"settings.display": "none", "settings.loggers": [], "settings.workers": 0}


def pictures() -> None:
    for number in range(40):
        folder = Path("pictures") / ("cat", "dog")[number % 2]
        folder.mkdir(parents=True, exist_ok=True)
        picture(number, size=(80, 90), green=200 * (number % 2)).save(folder / f"{number}.jpg")


def table() -> None:
    rows: list[dict[str, Any]] = [
        {"a": n, "b": n * 3 % 7, "c": n / 9, "d": -n % 5, "label": ("no", "yes")[n % 2]}
        for n in range(60)
    ]
    write_table(Path("table.csv"), rows)


@pytest.mark.parametrize(("name", "write"), [("images", pictures), ("table", table)])
def test_a_shipped_file_runs_for_three_steps_on_the_data_it_names(
    name: str, write: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write()
    short = {"batch_size": 8, "max_steps": 3}
    config = ludus.example(f"supervised-{name}", **QUIET, **short)
    result = ludus.build_trainer(config).fit()
    assert result.counters["opt_steps"] == 3
    assert result.exact


def test_without_the_data_a_shipped_file_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, missing in (("images", "folder"), ("table", "file")):
        trainer = ludus.build_trainer(ludus.example(f"supervised-{name}", **QUIET))
        with pytest.raises(ludus.LudusError, match=f"'data.path' is .* no such {missing}"):
            trainer.fit()
