"""A sweep that is stopped and continued from its storage writes the same tables as one that was not."""

from __future__ import annotations

import pytest
from small_cases import small_decoder

SPACE = """
schema_version: 1
name: few
axes:
  - {fields: [tensor_cores], values: [1, 2, 4]}
  - {fields: [vector_core_alus], values: [64, 256, 1024]}
"""


@pytest.mark.parametrize("kind", ["sqlite", "journal"])
def test_columns_are_in_the_same_order_however_often_it_was_continued(kind, dse, tmp_path):
    small_decoder(tmp_path)
    (tmp_path / "few.yaml").write_text(SPACE)
    asked = ["sweep", "-w", tmp_path / "tiny.yaml", "--space", tmp_path / "few.yaml", "--devices", 4]
    asked += ["--sampler", "random", "--seed", 3, "--no-cache", "-q"]

    def swept(name, out, trials, *more):
        storage = ("--storage", f"sqlite:///{tmp_path / name}.db") if kind == "sqlite" else ()
        assert dse(*asked, *storage, "--trials", trials, "--out", tmp_path / out, *more)[0] == 0

    swept("whole", "whole", 6)
    for trials in (2, 4, 6):
        swept("parts", "parts", trials, "--resume")
    for file in ("designs.csv", "frontier.csv"):
        assert (tmp_path / "parts" / file).read_bytes() == (tmp_path / "whole" / file).read_bytes()
