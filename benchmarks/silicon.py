"""How far the laws of power and area are off on a chip that they were not fitted to.

`python benchmarks/silicon.py --data DATA` fits the constants of GPUs to sustained clocks of published products under
the power limit of their board and to published TDPs, once with everything and once without each die, and prints what
each fit says of the die left out. Areas have no fit here: their errors are printed by die. Products are read from DATA
(`DSE_DATA`); the rest stands in the templates.
"""

from __future__ import annotations

import argparse
import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from math import exp, log
from pathlib import Path
from unittest.mock import patch

import numpy as np
from scipy.optimize import least_squares

from phaze.arrays import Flags, Floats
from phaze.hardware.architecture import (
    FROM_LIMIT,
    Architecture,
    list_architectures,
    load_architecture,
    to_table,
)
from phaze.hardware.derived_figures import peak_clock_hz, product_flops_per_s
from phaze.hardware.physical_constants import Constants, constants
from phaze.hardware.silicon.die_area import area_mm2
from phaze.hardware.silicon.dvfs import fit_clock, product_clock_hz
from phaze.hardware.silicon.package_power import tdp_w
from phaze.validation.measured.measured_systems import chip_of
from phaze.validation.measured.measurement_columns import read_columns
from phaze.validation.measured.measurement_schemas import TABLES
from phaze.validation.sets.kernels.power_measurements import HELD, Kernels, long_loops

LIMITS_W: Mapping[str, float] = {
    "t4": 70,
    "p4": 75,
    "a100-pcie-40gb": 250,
    "a100-80gb": 400,
    "h200": 700,
    "l40s": 350,
    "gb200": 1200,
    "mi100": 300,
}
"""Power limits of the boards whose products run into them."""

SETS: Mapping[str, tuple[str, float]] = {
    "op_gemm_neusight_fp32": ("latency_ms", 10.0),
    "op_gemm_deepbench": ("latency_ms", 0.5),
    "op_gemm_aiconfigurator": ("latency_ms", 0.5),
    "kernel_power_aiconfigurator": ("latency_ms", 0.5),
}
"""Sets with products, their column of times, and the ms from which the power limit holds them."""

FORMATS = {"fp32": "fp32", "bf": None, "fp16 in": None, "fp8": "fp8", "nvfp4": "fp4"}
"""Formats by how their name in a set begins; None: the tensor cores' own."""

QUANTILE, REACHED = 0.97, 0.97
"""Of the rates of long products, and the share of the multipliers' rate that the best of them reach."""

FREE: Mapping[str, tuple[float, float]] = {
    "lane_energy_pj_simt": (5, 40),
    "vector_activity_simt": (0.05, 0.8),
    "background_w_per_mm2_per_ghz_simt": (0.02, 0.15),
    "voltage_at_rest_simt": (0.0, 0.7),
    "hbm_activity_simt": (0.1, 1.0),
    "fp4_product_energy": (0.3, 1.5),
}
"""Constants that are fitted, with the energy of a product by family, and the range of each."""

GENERIC = "generic"
SPREAD, ROUND = 0.35, 0.05
"""Logarithm by which the energy of a product may differ between families; errors below ROUND count as squares."""


@dataclass(frozen=True)
class Clock:
    """A chip whose best products of a format run at a clock under a limit."""

    chip: Architecture
    operands: str | None
    limit_w: float
    clock_hz: float


@dataclass(frozen=True)
class Laws:
    """Constants of a fit: scalars by name and the energy of a product by family."""

    scalars: Mapping[str, float]
    products: Mapping[str, float]

    def file(self) -> Constants:
        """The shipped constants with these in their places; families that say nothing take the generic one."""
        shipped = constants()
        scalars = {
            name: one.model_copy(update={"value": self.scalars.get(name, one.value)})
            for name, one in shipped.scalars.items()
        }
        slope = scalars["voltage_slope_simt"]
        rest = scalars["voltage_at_rest_simt"].value
        scalars["voltage_slope_simt"] = slope.model_copy(update={"value": 1.0 - rest})
        families = shipped.tables["family"]
        rows = {
            name: {**row, "product_energy": self.products.get(name, self.products[GENERIC])}
            for name, row in families.rows.items()
        }
        tables = {**shipped.tables, "family": families.model_copy(update={"rows": rows})}
        return shipped.model_copy(update={"scalars": scalars, "tables": tables})


@contextmanager
def applied(laws: Laws) -> Iterator[None]:
    """The laws of power with other constants."""
    changed = laws.file()
    with patch("phaze.hardware.silicon.package_power.constants", lambda: changed):
        yield


def errors_of_clocks(clocks: Sequence[Clock]) -> Floats:
    """log(predicted / published) of each clock by the constants that are applied."""
    if not clocks:
        return np.zeros(0)
    table = to_table([clock.chip for clock in clocks])
    at_full_load = fit_clock(
        table.replace(clock_hz=peak_clock_hz(table)), np.array([c.limit_w for c in clocks])
    )
    found = np.empty(len(clocks))
    loaded = table.replace(clock_hz=np.where(np.isnan(at_full_load), 1e8, at_full_load))
    for row, clock in enumerate(clocks):
        found[row] = product_clock_hz(loaded.take([row]), clock.operands)[0]
    return np.log(found / np.array([clock.clock_hz for clock in clocks]))


def errors_of_tdps(chips: Sequence[Architecture]) -> Floats:
    """log(predicted / published) of each chip's TDP."""
    if not chips:
        return np.zeros(0)
    return np.log(tdp_w(to_table(chips)) / np.array([chip.published_tdp_w for chip in chips]))


def fitted(clocks: Sequence[Clock], chips: Sequence[Architecture]) -> Laws:
    """Constants of least smooth mean |log error|; cards of one die share its weight by the root of their number."""
    shipped = constants()
    families = sorted({str(c.value("family")) for c in (*chips, *(clock.chip for clock in clocks))})
    families = [f for f in families if f != GENERIC and not f.startswith(("vega", "maxwell", "pascal"))]
    dies = [die_of(chip) for chip in chips]
    weights = np.array([1 / np.sqrt(dies.count(die)) for die in dies])
    start = [shipped[name] for name in FREE]

    def laws(x: Floats) -> Laws:
        common = float(x[len(FREE)])
        own = {name: common * exp(v) for name, v in zip(families, x[len(FREE) + 1 :], strict=True)}
        return Laws(dict(zip(FREE, x[: len(FREE)].tolist(), strict=True)), {GENERIC: common, **own})

    def residuals(x: Floats) -> Floats:
        with applied(laws(x)):
            data = np.concatenate([2 * errors_of_clocks(clocks), weights * errors_of_tdps(chips)])
        kept = [np.log(x[i] / start[i]) * 0.08 / 0.4 for i in range(len(FREE))]
        every = np.concatenate([data, x[len(FREE) + 1 :] * 0.15 / SPREAD, kept])
        return np.sign(every) * np.sqrt(2 * ROUND * (np.sqrt(every**2 + ROUND**2) - ROUND))

    x = np.array([*start, shipped.tables["family"].rows[GENERIC]["product_energy"], *[0.0] * len(families)])
    low = np.array([*[r[0] for r in FREE.values()], 0.4, *[-1.5] * len(families)])
    high = np.array([*[r[1] for r in FREE.values()], 4.0, *[1.5] * len(families)])
    found = least_squares(residuals, x, bounds=(low, high), diff_step=1e-3, max_nfev=25)
    return laws(found.x)


def die_of(chip: Architecture) -> str:
    """Cards with one die: those of a node whose whole dies take the same area."""
    return f"{chip.value('node')} {float(area_mm2(to_table([chip]))[0]):.0f} mm2"


def rated_gpus() -> list[Architecture]:
    """GPUs with a published TDP whose clock was not solved from it."""
    chips = [load_architecture(name) for name in list_architectures()]
    return [
        chip
        for chip in chips
        if chip.value("simt")
        and chip.published_tdp_w
        and not chip.sources.get("clock_hz", "").startswith(FROM_LIMIT)
    ]


def published_clocks(data: Path) -> list[Clock]:
    """Clocks at which the best published products of each chip and format run, by their share of its peak rate."""
    shares: dict[tuple[str, str | None], list[float]] = defaultdict(list)
    for name, (column, least_ms) in SETS.items():
        for path in sorted(data.rglob(f"{name}.csv")):
            for key, share in _shares(path, column, least_ms):
                shares[key].append(share)
    found = []
    for (name, operands), several in sorted(shares.items(), key=str):
        if name in LIMITS_W and len(several) >= 20:
            chip = load_architecture(name)
            clock = (
                float(np.quantile(several, QUANTILE)) / REACHED * float(peak_clock_hz(to_table([chip]))[0])
            )
            found.append(Clock(chip, operands, LIMITS_W[name], clock))
    return found


def _shares(path: Path, column: str, least_ms: float) -> Iterator[tuple[tuple[str, str | None], float]]:
    """Share of the peak rate of each long product of a set, by chip and format."""
    columns = read_columns(path, TABLES[path.stem])
    m, n, k, ms = (columns.numbers(name) for name in ("m", "n", "k", column))
    groups = columns.numbers("batch") if "neusight" in path.stem else np.ones(len(m))
    for row, (device, dtype) in enumerate(zip(columns["device"], columns["dtype"], strict=True)):
        operands = next((f for start, f in FORMATS.items() if dtype.startswith(start)), "unknown")
        chip = _chip(device)
        if chip is None or operands == "unknown" or "block" in dtype or not ms[row] > least_ms:
            continue
        macs = groups[row] * m[row] * n[row] * k[row]
        if np.isfinite(macs):
            yield (chip, operands), 2e3 * macs / ms[row] / _peak(chip, operands)


@cache
def _chip(device: str) -> str | None:
    chip = chip_of(device)
    return None if chip is None else chip.name


@cache
def _peak(chip: str, operands: str | None) -> float:
    return float(product_flops_per_s(to_table([load_architecture(chip)]), operands)[0])


def left_out(
    clocks: Sequence[Clock], chips: Sequence[Architecture], seen: Callable[[Sequence[str]], None]
) -> Iterator[tuple[str, Floats, Floats]]:
    """Each die with its errors in clocks and in TDPs by constants fitted without it; `seen` is told them."""
    for die in sorted({*map(die_of, chips), *(die_of(clock.chip) for clock in clocks)}):
        own_clocks = [clock for clock in clocks if die_of(clock.chip) == die]
        own = [chip for chip in chips if die_of(chip) == die]
        laws = fitted(
            [clock for clock in clocks if die_of(clock.chip) != die],
            [chip for chip in chips if die_of(chip) != die],
        )
        with applied(laws):
            seen([clock.chip.name for clock in own_clocks])
            yield die, errors_of_clocks(own_clocks), errors_of_tdps(own)


def kernel_errors(data: Path, without: str | None = None) -> Mapping[str, Floats]:
    """Relative errors of the board power of long loops of kernels, by chip, by the constants that are applied.

    Those of the chip left out are by shares of the meter's second that are fitted to the others.
    """
    found: dict[str, Floats] = {}
    for path in sorted(data.rglob("kernel_power_aiconfigurator.csv")):
        kernels = long_loops(read_columns(path, TABLES[path.stem]))
        chips = np.array([row.chip.name for row in kernels.rows])
        held = HELD if without is None else held_of(kernels, chips != without)
        errors = kernels.shown_w(held) / kernels.measured_w - 1
        found |= {chip: errors[chips == chip] for chip in np.unique(chips).tolist()}
    return found


def held_of(kernels: Kernels, seen: Flags) -> Mapping[str, float]:
    """Shares of the second before a loop, in tenths, of least mean error on some rows; of other kinds the shipped."""
    grid = np.linspace(0.0, 1.0, 11)
    before = np.array(kernels.before)
    held = dict(HELD)
    for kind in np.unique(before[seen]).tolist():
        rows = seen & (before == kind)
        errors = [
            np.abs(kernels.shown_w({**held, kind: share})[rows] / kernels.measured_w[rows] - 1).mean()
            for share in grid
        ]
        held[kind] = float(grid[int(np.argmin(errors))])
    return held


def mean_pct(errors: Floats) -> str:
    """Mean absolute error and bias in % of log errors."""
    relative = 100 * np.expm1(errors)
    return f"{np.abs(relative).mean():.1f} %, bias {relative.mean():+.1f} %"


def tell(data: Path) -> Iterator[str]:
    """Lines of the report."""
    clocks, chips = published_clocks(data), rated_gpus()
    shipped = errors_of_clocks(clocks), errors_of_tdps(chips)
    yield f"clocks, shipped: {mean_pct(shipped[0])} ({len(clocks)})"
    for clock, error in zip(clocks, shipped[0], strict=True):
        name = f"{clock.chip.name} {clock.operands or 'own'}"
        yield f"  {name}: {clock.clock_hz / 1e9:.2f} GHz, {100 * np.expm1(error):+.0f} %"
    yield f"TDPs of GPUs, shipped: {mean_pct(shipped[1])} ({len(chips)})"
    laws = fitted(clocks, chips)
    with applied(laws):
        yield f"fitted: clocks {mean_pct(errors_of_clocks(clocks))}; TDPs {mean_pct(errors_of_tdps(chips))}"
    yield from _kernels_told("kernels, shipped", kernel_errors(data))
    unseen: dict[str, Floats] = {}

    def judge(chips: Sequence[str]) -> None:
        for chip in {"h200", "gb200"} & {*chips}:
            unseen[chip] = kernel_errors(data, chip)[chip]

    without = list(left_out(clocks, chips, judge))
    for die, of_clocks, of_tdps in without:
        shown = (
            " ".join(f"{100 * np.expm1(e):+.0f}" for e in errors) or "-" for errors in (of_clocks, of_tdps)
        )
        yield "  without {}: clocks {} %, TDPs {} %".format(die, *shown)
    yield f"die left out, clocks: {mean_pct(np.concatenate([c for _, c, _ in without]))}"
    yield f"die left out, TDPs: {mean_pct(np.concatenate([t for *_, t in without]))}"
    yield from _kernels_told("chip left out, kernels", unseen)
    yield from _areas()


def _kernels_told(what: str, errors: Mapping[str, Floats]) -> Iterator[str]:
    """Mean and median error of kernels by chip."""
    for chip, own in errors.items():
        mean, median = (100 * figure(np.abs(own)) for figure in (np.mean, np.median))
        yield f"{what}: {chip} {mean:.1f} %, median {median:.1f} %, bias {100 * own.mean():+.1f} % ({len(own)})"


def _areas() -> Iterator[str]:
    """Error of the area of each published die, one line a die, and their mean."""
    dies: dict[tuple[object, ...], tuple[str, float]] = {}
    for name in list_architectures():
        chip = load_architecture(name)
        if chip.published_area_mm2:
            error = log(float(area_mm2(to_table([chip]))[0]) / chip.published_area_mm2)
            die = (chip.published_area_mm2, chip.value("node"), chip.value("simt"))
            dies.setdefault(die, (name, error))
    for (published, *_), (name, error) in dies.items():
        yield f"  {name}: {published:g} mm2, {100 * (exp(error) - 1):+.0f} %"
    yield f"areas, a card of each die: {mean_pct(np.array([error for _, error in dies.values()]))} ({len(dies)})"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--data", default=os.environ.get("DSE_DATA"), help="folder of measurements; else DSE_DATA"
    )
    for line in tell(Path(parser.parse_args().data)):
        print(line, flush=True)
