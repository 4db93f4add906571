"""Every part, logger back end and storage that is listed in a folder keeps its contract."""

from __future__ import annotations

from pathlib import Path

import pytest

from ludus.testing.backends import check_backend
from ludus.testing.parts import check_part
from ludus.testing.storages import check_storage
from tests.conftest import modules_in

PARTS = modules_in("contracts/parts")
LOGGERS = modules_in("contracts/loggers")
STORAGES = modules_in("contracts/storages")


@pytest.mark.parametrize("case", PARTS.values(), ids=PARTS.keys())
def test_a_part_comes_back_from_its_saved_state(case) -> None:
    check_part(case.make, case.use)


@pytest.mark.parametrize("case", LOGGERS.values(), ids=LOGGERS.keys())
def test_a_logger_back_end_shows_no_trace_of_a_resume(case, tmp_path: Path) -> None:
    check_backend(case.make, tmp_path, is_file=case.IS_FILE)


@pytest.mark.parametrize("case", STORAGES.values(), ids=STORAGES.keys())
def test_a_storage_keeps_what_it_promises(case, tmp_path: Path) -> None:
    check_storage(lambda: case.make(tmp_path / "store"))


def test_a_part_that_forgets_is_found_out() -> None:
    class Forgetful:
        def __init__(self) -> None:
            self.kept = self.lost = 0

        def state_dict(self):
            return {"kept": self.kept, "shown": self.lost}

        def load_state_dict(self, state) -> None:
            self.kept = state["kept"]

    def use(part: Forgetful) -> None:
        part.kept += 1
        part.lost += 1

    with pytest.raises(AssertionError, match="does not bring the state back"):
        check_part(Forgetful, use)
