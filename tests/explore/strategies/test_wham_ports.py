"""Bytes per cycle of the global buffer in WHAM's search: they follow the arrays."""

import numpy as np

from phaze.explore.evaluation.design_candidates import Candidates
from phaze.explore.request.explore_request import Budgets
from phaze.explore.strategies.wham.wham_axes import SearchAxes
from phaze.explore.strategies.wham.wham_reporting import tell_axes
from phaze.hardware.spaces.space_file import parse_space

SPACE = """
schema_version: 1
name: ports
axes:
  - {fields: [tensor_cores], values: [1, 4, 16]}
  - {fields: [tensor_core_rows], values: [64, 256]}
  - {fields: [vector_cores], values: [1, 2]}
  - {fields: [global_buffer_bytes_per_cycle], values: [4096, 1024, 2048]}
"""


def test_ports_bring_every_array_a_row_and_a_column():
    axes = SearchAxes(Candidates(parse_space(SPACE, "ports.yaml"), Budgets()))
    (ports,) = axes.followed
    assert ports not in {*axes.halved, *axes.enumerated}
    (rows,) = axes.halved
    for option, height in enumerate((64, 256)):
        grid = axes.grid_numbers({rows: option})
        table = axes.tables(grid.ravel())
        asked = 2 * table["tensor_cores"] * (height + table["tensor_core_columns"])
        enough = [min([size for size in (1024, 2048, 4096) if size >= need], default=4096) for need in asked]
        np.testing.assert_array_equal(table["global_buffer_bytes_per_cycle"], enough)
    assert {report.treatment for report in tell_axes(axes)} == {"cores", "halved", "follows the arrays"}
