"""What people write is read as they meant it, or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from ludus.active.labelling.answering import Words, read_answers
from ludus.active.labelling.queries import Queries, as_csv, picture_of, shown
from ludus.core.errors import LudusError


def queries(**changes: Any) -> Queries:
    own: dict[str, Any] = {
        "round": 0, "rows": [4, 9], "num_classes": 12, "class_names": None, "columns": None,
        "picture": None, "inputs": torch.tensor([[0.5, 1.0], [2.0, 3.0]]),
    }  # fmt: skip
    return Queries(**{**own, **changes})


@pytest.mark.parametrize("word", ["1_0", "", "1.5", "12", "-1", "nan", "one", "True"])
def test_what_is_no_class_is_refused(word: str) -> None:
    with pytest.raises(LudusError, match=r"is no label|the classes of this run"):
        Words(queries()).label(4, word)


def test_a_class_is_a_number_or_a_name_in_any_case() -> None:
    words = Words(queries(num_classes=2, class_names=["Red wine", "white"]))
    assert [words.label(4, word) for word in ("0", " red WINE ", "1", "White", "1.0")] == [
        0, 0, 1, 1, 1
    ]  # fmt: skip
    assert Words(queries(num_classes=None)).label(4, "-1.5e1") == -15.0


def test_names_that_are_numbers_are_names_alone() -> None:
    words = Words(queries(num_classes=3, class_names=["7", "0", "1"]))
    assert [words.label(4, word) for word in ("7", "0", "1")] == [0, 1, 2]
    with pytest.raises(LudusError, match="'2' is no label; give one of 7, 0, 1"):
        words.label(4, "2")


@pytest.mark.parametrize(
    "text",
    [
        "4;3\n9;5\n",
        "row;label;note\n4;3;a,b\n9;5;\n",
        "label,row\n3,4\n5,9\n",
        "\ufeffROW, Label \r\n4, 3\r\n\r\n9,5\r\n",
        '"row","label"\n"4","3"\n"9","5"',
    ],
)
def test_a_file_of_any_spreadsheet_is_read(text: str, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(text.encode())
    assert read_answers(path, queries(), {}) == ({4: 3, 9: 5}, 0)
    assert read_answers(path, queries(), {4: 3}) == ({9: 5}, 0)


def test_columns_of_the_data_take_no_name_of_ours(tmp_path: Path) -> None:
    asked = queries(columns=["Label", "row"])
    text = as_csv(asked, [9])
    assert text == "row,label,Label_,row_\n9,,2,3\n"
    path = tmp_path / "a.csv"
    path.write_text(text.replace(",,", ",7,"))
    assert read_answers(path, asked, {}) == ({9: 7}, 0)


def test_an_example_is_shown_by_its_columns_or_its_numbers_or_not_at_all() -> None:
    assert shown(queries(columns=["sugar", "acid"]), 1).split() == ["sugar", "2", "acid", "3"]
    assert shown(queries(), 0).split() == ["0.5", "1"]
    assert shown(queries(inputs=None), 0) == ""
    many = shown(queries(inputs=torch.zeros(2, 100)), 0)
    assert many.endswith("and 40 numbers more")


def test_a_picture_is_known_by_its_shape() -> None:
    assert picture_of(torch.zeros(3, 8, 9), None) == [3, 8, 9]
    assert picture_of(torch.zeros(8, 9), None) == [1, 8, 9]
    assert picture_of(torch.zeros(64), None) is None
    assert picture_of(torch.zeros(2, 8, 9), None) is None
    inputs = torch.tensor([[[0.0, 1.0], [0.5, 0.0]]]).reshape(1, 1, 2, 2)
    asked = queries(rows=[4], inputs=inputs, picture=[1, 2, 2])
    assert shown(asked, 0) == "  ██\n▒▒"
    # A table for pictures would be numbers that nobody reads.
    assert as_csv(asked, [4]) == "row,label\n4,\n"
