"""How time grows: with operators, layers, devices and architectures."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass

import batches
from answers import warm_up
from phaze.solvers.placement import PlacementStatus, place, read_problem
from phaze.solvers.scheduling import Method, read_instance, schedule
from placement_instances import transformer_chain
from plots import Curve, draw
from report import Report
from schedule_instances import Family, instance
from tables import duration, percent, table
from timing import median_s

OPERATORS = (10, 20, 40, 70, 100, 140, 200)
CORES = ((2, 1), (4, 2), (8, 8))
"""Tensor and vector cores of the schedules of every size: the median over these is shown."""
LAYERS = (10, 20, 50, 100, 200, 500, 1000)
DEVICES = (8, 32, 100, 320, 1000, 3200, 10_000, 32_000, 100_000)
ARCHITECTURES = (1, 10, 100, 1000, 10_000)

MEMORIES_GIB = (16, 192)
"""Of a device: GPT-3 with Adam needs 128 of the small ones, 8 of the large ones."""


@dataclass(frozen=True)
class Point:
    """Seconds at a size `x` of one series in one plot; `gap` where a limit may stop the solver."""

    plot: str
    series: str
    x: int
    seconds: float
    gap: float | None = None


def operators(limit_s: float) -> Iterable[Point]:
    """The exact method on every family of operator graphs."""
    for family in Family:
        for size in OPERATORS:
            found = [
                schedule(read_instance(instance(family, size, cores, 0)), Method.EXACT, limit_s)
                for cores in CORES
            ]
            yield Point(
                "operators",
                family.value,
                size,
                statistics.median(result.runtime_s for result in found),
                statistics.median(result.gap for result in found),
            )


def layers() -> Iterable[Point]:
    """Placement of one architecture on 1024 devices, for one and for four tensor-parallel widths."""
    for name, widths in (("1 width", (8,)), ("4 widths", (1, 2, 4, 8))):
        for size in LAYERS:
            yield from _placed("layers", name, size, transformer_chain(size, 1024, widths))


def devices() -> Iterable[Point]:
    """Placement of one architecture with 98 layers and four widths."""
    for memory in MEMORIES_GIB:
        for size in DEVICES:
            document = transformer_chain(98, size, memory_bytes=memory * 2.0**30)
            yield from _placed("devices", f"98 layers, {memory} GiB", size, document)


def architectures() -> Iterable[Point]:
    """What the search does with many architectures at once."""
    series = {
        "placement, 98 layers, 1024 devices, 4 widths": batches.placements,
        "partition, 96 layers, 1 to 16 stages": batches.partition,
        "operator costs of GPT-3": batches.costs,
    }
    for name, prepare in series.items():
        for size in ARCHITECTURES:
            yield Point("architectures", name, size, median_s(prepare(size)))


PLOTS = {
    "operators": "operators of the graph",
    "layers": "layers",
    "devices": "devices",
    "architectures": "architectures",
}
"""Plots by name, with the caption of the horizontal axis."""


def measure(limit_s: float, tell: Callable[[str], None]) -> list[Point]:
    """All points of all plots."""
    warm_up()
    points = []
    for points_of_plot in (operators(limit_s), layers(), devices(), architectures()):
        for point in points_of_plot:
            points.append(point)
            tell(f"{point.plot}, {point.series}, {point.x}: {duration(point.seconds)}")
    return points


def report(points: Sequence[Point], limit_s: float) -> Report:
    """One picture and one table per plot."""
    parts, pictures = ["# Growth\n", _LEGEND.format(limit_s=limit_s)], {}
    for plot, caption in PLOTS.items():
        series = _series([point for point in points if point.plot == plot])
        curves = [_curve(name, row) for name, row in series.items()]
        picture = f"growth-{plot}.svg"
        pictures[picture] = draw(curves, f"Time against {plot}", caption, "time (s)")
        parts += [
            f"\n## {plot.capitalize()}\n",
            f"![Time against {plot}]({picture})\n",
            _table(caption, curves, series),
        ]
    return Report("growth", "\n".join(parts) + "\n", [asdict(point) for point in points], pictures)


_LEGEND = """Time against size on logarithmic axes; the exponent is that of the power law that fits a curve best.
Schedules: wall-clock time of the exact method, stopped after {limit_s:g} s, median of three core counts, with the
median gap where it is not 0 (hollow points, left out of the fit). The rest: processor time, median of three runs."""


def _curve(name: str, row: Sequence[Point]) -> Curve:
    return Curve(name, [(p.x, p.seconds) for p in row], frozenset(p.x for p in row if p.gap))


def _series(points: Sequence[Point]) -> dict[str, list[Point]]:
    rows: dict[str, list[Point]] = {}
    for point in points:
        rows.setdefault(point.series, []).append(point)
    return rows


def _table(caption: str, curves: Sequence[Curve], series: dict[str, list[Point]]) -> str:
    """A line per series, a column per size."""
    sizes = sorted({point.x for row in series.values() for point in row})
    lines = []
    for curve in curves:
        at = {point.x: _cell(point) for point in series[curve.name]}
        power = "" if curve.exponent is None else f"{curve.exponent:.2f}"
        lines.append((curve.name, *(at.get(size, "") for size in sizes), power))
    return table((caption, *(f"{size:,}" for size in sizes), "exponent"), lines)


def _cell(point: Point) -> str:
    return duration(point.seconds) + (f" ({percent(point.gap)})" if point.gap else "")


def _placed(plot: str, series: str, size: int, document: dict[str, object]) -> Iterable[Point]:
    """A point if there is a plan."""
    problem = read_problem(document)
    if place(problem).status is PlacementStatus.OPTIMAL:
        yield Point(plot, series, size, median_s(lambda: place(problem)))
