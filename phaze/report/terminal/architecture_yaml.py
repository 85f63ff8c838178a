"""Derived figures of one architecture, as YAML comments below its fields."""

from __future__ import annotations

from collections.abc import Iterator

from phaze.hardware.architecture import Architecture, dump_yaml, to_table
from phaze.hardware.architecture_table import ArchitectureTable
from phaze.hardware.derived_figures import (
    GIB,
    global_buffer_bandwidth_bytes_per_s,
    hbm_bandwidth_bytes_per_s,
    hbm_capacity_bytes,
    peak_flops_per_s,
    product_flops_per_s,
    vector_flops_per_s,
)
from phaze.hardware.economics.economic_figures import Economics
from phaze.hardware.economics.package_price import die_yield, price_parts_usd
from phaze.hardware.physical_constants import constants
from phaze.hardware.silicon.die_area import (
    area_mm2,
    exceeds_reticle,
    exceeds_shoreline,
    reticle_share,
    silicon_area_mm2,
)
from phaze.hardware.silicon.heat import is_cooled, junction_c
from phaze.hardware.silicon.package_power import cooling_share, steady_and_leakage_w, tdp_w

TERA = 1e12
_FORMATS = ("int8", "fp8", "fp16", "bf16", "tf32", "fp32")


def architecture_text(chip: Architecture) -> str:
    """A YAML file of the architecture, every field with unit and source, and derived figures as comments."""
    return dump_yaml(chip) + "".join(f"# {line}\n" for line in derived_lines(chip))


def derived_lines(chip: Architecture) -> Iterator[str]:
    """Peaks, memory, area and power with error bars beside what is published, cost, and what to beware of."""
    table, c = to_table([chip]), constants()
    area, power = float(area_mm2(table)[0]), float(tdp_w(table)[0])
    yield "What the model makes of it:"
    yield from _rates(table, str(chip.fields["precision"]))
    yield f"area {_with_bar(area, c['area_error'], 'mm2')}{_published(chip.published_area_mm2)}"
    yield f"power at full load {_with_bar(power, c['power_error'], 'W')}{_published(chip.published_tdp_w)}"
    yield f"power density {power / area:.2f} W/mm2{_junction(table)}"
    yield from _cost(table)
    yield from _warnings(table, area, power / area)


def _junction(table: ArchitectureTable) -> str:
    """What its cooling makes of the temperature, where one is given."""
    if not is_cooled(table)[0]:
        return ""
    settled = float(junction_c(table, area_mm2(table), *steady_and_leakage_w(table))[0])
    limit = constants()["junction_limit_c"]
    if cooling_share(table)[0] > 1.0:
        return f", more than its cooling carries with the junction at {limit:g} C"
    return f", junction at {settled:.0f} C"


def _rates(table: ArchitectureTable, precision: str) -> Iterator[str]:
    peaks = {name: float(product_flops_per_s(table, name)[0]) / TERA for name in _FORMATS}
    own = float(peak_flops_per_s(table)[0]) / TERA
    bandwidth = float(hbm_bandwidth_bytes_per_s(table)[0])
    yield "peak of products, TFLOP/s: " + ", ".join(f"{name} {peak:.4g}" for name, peak in peaks.items())
    narrow = f", with a recipe in fp8 against {peaks['fp8']:.4g}" if peaks["fp8"] > own else ""
    yield f"MFU counts against {own:.4g} TFLOP/s, {precision.partition('+')[0]}{narrow}"
    yield f"vector ALUs {float(vector_flops_per_s(table)[0]) / TERA:.4g} TFLOP/s fp32, sustained"
    yield f"memory {bandwidth / 1e9:.5g} GB/s, {float(hbm_capacity_bytes(table)[0]) / GIB:.4g} GiB"
    yield f"global buffer {float(global_buffer_bandwidth_bytes_per_s(table)[0]) / 1e9:.5g} GB/s"
    yield f"a byte from memory pays from {own * TERA / bandwidth:.0f} FLOP on"


def _cost(table: ArchitectureTable) -> Iterator[str]:
    parts = {name: float(part[0]) for name, part in price_parts_usd(table).items()}
    node = Economics().column(table, "defects_per_cm2")
    flawless = float(die_yield(silicon_area_mm2(table) / table["n_dies"], node)[0])
    listed = ", ".join(f"{name} {usd:,.0f}" for name, usd in parts.items())
    yield f"cost to make {sum(parts.values()):,.0f} USD: {listed}; {flawless:.0%} of the dies are flawless"


def _warnings(table: ArchitectureTable, area: float, density: float) -> Iterator[str]:
    total, c = area_mm2(table), constants()
    if exceeds_reticle(table, total)[0]:
        share = reticle_share(table, total)[0]
        yield f"warning: one die takes {share:.0%} of the {c['reticle_mm2']:g} mm2 of a reticle"
    if exceeds_shoreline(table, total)[0]:
        yield f"warning: two edges of {area:.0f} mm2 have no room for all memory interfaces"
    if density > c["liquid_cooled_w_per_mm2"]:
        yield f"warning: above {c['liquid_cooled_w_per_mm2']:g} W/mm2, more than cold plates take"
    elif density > c["air_cooled_w_per_mm2"]:
        yield f"warning: above {c['air_cooled_w_per_mm2']:g} W/mm2, too dense for air"


def _with_bar(value: float, error: float, unit: str) -> str:
    return f"{value:.0f} {unit} ({value * (1 - error):.0f} to {value * (1 + error):.0f})"


def _published(value: float | None) -> str:
    return "" if value is None else f", published {value:g}"
