from __future__ import annotations

import re
from pathlib import Path

import pytest

from phaze.hardware.architecture import load_architecture, to_table
from phaze.hardware.silicon.die_area import area_mm2
from phaze.hardware.silicon.package_power import tdp_w

ROOT = Path(__file__).parents[1]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "results" / "README.md"]
ASSUMPTIONS = (ROOT / "docs" / "assumptions.md").read_text(encoding="utf-8")
CHIPS = re.findall(
    r"^\| ([\w-]+) \| (\d+) \| (\d+|-) \| (\S+?)(?: %)? \| (\d+) \| (\d+|-) \| (\S+)",
    ASSUMPTIONS,
    re.MULTILINE,
)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_files_of_ours_that_a_page_names_are_there(page):
    rooms = "phaze|solvers|tests|arch_templates|workloads|benchmarks"
    for named in re.findall(rf"`((?:{rooms})/[\w./-]+)`", page.read_text(encoding="utf-8")):
        assert (ROOT / named).exists(), named


def test_the_table_of_errors_has_all_chips():
    assert len(CHIPS) == 20


@pytest.mark.parametrize("row", CHIPS, ids=lambda row: row[0])
def test_the_table_of_errors_is_what_the_model_says(row):
    name, area, published_area, area_error, power, published_power, power_error = row
    chip = load_architecture(name)
    table = to_table([chip])
    assert (float(area), float(power)) == (round(area_mm2(table)[0]), round(tdp_w(table)[0]))
    if chip.published_area_mm2 is None:
        assert (published_area, area_error) == ("-", "-")
    else:
        assert float(published_area) == chip.published_area_mm2
        assert float(area_error) == round(100 * (area_mm2(table)[0] / chip.published_area_mm2 - 1))
    if chip.published_tdp_w is None:
        assert (published_power, power_error) == ("-", "-")
    else:
        assert float(published_power) == chip.published_tdp_w
        assert float(power_error) == round(100 * (tdp_w(table)[0] / chip.published_tdp_w - 1))
