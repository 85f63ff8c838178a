"""Tables as CSV: what is written reads back as it was."""

from __future__ import annotations

import csv
import io
import math

from hypothesis import given
from hypothesis import strategies as st

from phaze.csv_file import columns_to_csv, read_csv, rows_to_csv

WORDS = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1)
NUMBERS = st.one_of(st.none(), st.integers(), st.booleans(), st.floats(allow_nan=False))


@given(st.lists(st.tuples(WORDS, NUMBERS), min_size=1))
def test_words_and_numbers_read_back_exactly(tmp_path_factory, pairs):
    rows = [{"id": word, "tdp_w": value} for word, value in pairs]
    path = tmp_path_factory.getbasetemp() / "table.csv"
    path.write_text(rows_to_csv(rows), encoding="utf-8")
    found = read_csv(path, lambda name: name == "id")
    assert found == rows
    assert [type(row["tdp_w"]) for row in found] == [type(row["tdp_w"]) for row in rows]


def test_rows_of_different_columns_share_one_header():
    text = rows_to_csv([{"a": 1, "b": True}, {"c": 'x, "y"'}])
    assert list(csv.reader(io.StringIO(text))) == [["a", "b", "c"], ["1", "true", ""], ["", "", 'x, "y"']]


def test_what_is_no_number_is_still_told(tmp_path):
    (tmp_path / "t.csv").write_text(columns_to_csv({"a": [math.inf, math.nan, None]}))
    first, second, third = (row["a"] for row in read_csv(tmp_path / "t.csv", lambda _: False))
    assert (first, math.isnan(second), third) == (math.inf, True, None)
