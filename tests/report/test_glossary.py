from __future__ import annotations

import pytest

from phaze.explore.documents.result_document import Breakdown
from phaze.hardware.architecture import load_architecture, to_table
from phaze.hardware.silicon.die_area import area_parts_mm2
from phaze.hardware.silicon.package_power import power_parts_w
from phaze.report.glossary import explain

TABLE = to_table([load_architecture("h100")])
TIMES = Breakdown.model_fields.keys() - {"parts"}
NAMES = {*area_parts_mm2(TABLE), *power_parts_w(TABLE), *TIMES, "roofline", "critical path"}


@pytest.mark.parametrize("name", sorted(NAMES))
def test_every_row_of_the_tables_is_explained(name):
    assert any(entry.kind == "word" for entry in explain(name)), name


def test_figures_of_money_and_carbon_are_explained_with_their_source():
    (entry,) = (entry for entry in explain("bonding_yield") if entry.kind == "figure of --economics")
    assert entry.default == "0.99"
    assert "Chiplet Actuary" in entry.source
    (wafer,) = (entry for entry in explain("wafer_usd") if entry.kind == "figure of --economics")
    assert (wafer.unit, "N7 9346" in wafer.default) == ("USD", True)
