"""The answer of `dse run` as text, from the result document alone; it fits 80 columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console, Group, RenderableType
from rich.markup import escape
from rich.table import Table

from phaze.explore.document import Certificate, Comparison, Design, FrontierPoint, ResultDocument
from phaze.explore.metrics import METRICS
from phaze.report import format as fmt
from phaze.report.design import blocks, plain_table

FRONTIER_ROWS = 10
NEXT_BEST_ROWS = 3


def print_result(document: ResultDocument, console: Console) -> None:
    """The whole answer, most important first."""
    console.print(answer(document), highlight=False)
    console.print()
    for block in _blocks(document):
        console.print(block, highlight=False)
        console.print()


def answer(document: ResultDocument) -> str:
    """The answer in one sentence (rich markup)."""
    best, certificate = document.best, document.certificate
    names = ", ".join(best.workloads)
    devices = next(iter(best.workloads.values())).devices
    plural = "" if devices == 1 else "s"
    figures = "; ".join(
        f"{fmt.number(r.throughput_samples_per_s)} samples/s at {fmt.percent(r.mfu)} MFU"
        + (f" on {escape(name)}" if len(best.workloads) > 1 else "")
        for name, r in best.workloads.items()
    )
    found = "" if certificate.optimal else " found"
    if certificate.objective != "throughput":
        by = " by least power" if certificate.objective == "tdp" else " by throughput per watt"
    else:
        by = ""
    return (
        f"The best accelerator{found} for [bold]{escape(names)}[/bold] on {devices:,} device{plural}{by} is "
        f"[bold]{escape(best.id)}[/bold]: {figures}, with {fmt.number(best.area_mm2)} mm2 and "
        f"{fmt.number(best.tdp_w)} W; {_proof(certificate)}."
    )


def certificate_table(certificate: Certificate) -> Table:
    """What is proven, and over which points."""
    table = plain_table("Certificate", "", "")
    table.show_header = False
    table.columns[1].justify = "left"
    undecided = certificate.pruned_by.get("open", 0)
    by = ", ".join(
        f"{count:,} {fmt.label(stage)}"
        for stage, count in certificate.pruned_by.items()
        if count and stage != "open"
    )
    reached, bound = (
        _objective(certificate.objective, v) for v in (certificate.objective_value, certificate.upper_bound)
    )
    for name, value in (
        ("objective", f"{fmt.label(certificate.objective)}: {reached}"),
        ("no point is better than", f"{bound} (gap {100 * certificate.gap:.3g} %)"),
        ("points of the space", f"{certificate.space_size:,}"),
        ("  over budget", f"{certificate.over_budget:,}"),
        ("  pruned by a bound", f"{certificate.pruned - undecided:,}" + (f" ({by})" if by else "")),
        *((("  not decided", f"{undecided:,}"),) if undecided else ()),
        ("  evaluated", f"{certificate.evaluated:,}"),
        ("frontier complete", "yes" if certificate.frontier_complete else "no"),
        ("holds within", "; ".join(certificate.scope)),
    ):
        table.add_row(name, escape(value))
    return table


def _objective(name: str, value: float) -> str:
    """An objective with its unit; power is minimised, and enters the certificate as its reciprocal."""
    if name == "tdp":
        return f"{fmt.number(1 / value, 5)} W"
    return f"{fmt.number(value, 5)} {METRICS[name].unit}"


def frontier_table(frontier: Sequence[FrontierPoint], best_id: str, *, complete: bool) -> Table:
    """Throughput against power, some ten rows; the winner is among them and marked."""
    shown = thin(frontier, FRONTIER_ROWS, best_id)
    title = f"Frontier of throughput against power, {len(shown)} of {len(frontier)} points"
    title += (" (* the winner)" if best_id in {p.id for p in shown} else "") + (
        "" if complete else " (so far)"
    )
    table = plain_table(title, "architecture", "W", "mm2", "samples/s", "MFU", "J/sample")
    for point in shown:
        table.add_row(
            escape(point.id) + (" *" if point.id == best_id else ""),
            fmt.number(point.tdp_w),
            fmt.number(point.area_mm2),
            fmt.number(point.throughput_samples_per_s),
            fmt.percent(point.mfu),
            fmt.number(point.energy_per_sample_j),
        )
    return table


def thin(points: Sequence[FrontierPoint], rows: int, keep_id: str = "") -> list[FrontierPoint]:
    """At most `rows` points at even steps of throughput, both ends among them, and the one to keep."""
    ordered = sorted(points, key=lambda point: (point.throughput_samples_per_s, point.tdp_w))
    if len(ordered) <= rows:
        return ordered
    low, high = (ordered[end].throughput_samples_per_s for end in (0, -1))
    kept = {i for i, point in enumerate(ordered) if point.id == keep_id}
    for step in range(rows):
        wanted = low + (high - low) * step / (rows - 1)
        kept.add(min(range(len(ordered)), key=lambda i: abs(ordered[i].throughput_samples_per_s - wanted)))
    return [ordered[i] for i in sorted(kept)]


def next_best_table(designs: Sequence[Design], best: Design) -> Table:
    """The best evaluated architectures after the winner."""
    table = plain_table("Next best", "architecture", "W", "mm2", "samples/s", "of the winner")
    for design in designs[:NEXT_BEST_ROWS]:
        ratio = _ratio(design, best)
        table.add_row(
            escape(design.id),
            fmt.number(design.tdp_w),
            fmt.number(design.area_mm2),
            " / ".join(fmt.number(r.throughput_samples_per_s) for r in design.workloads.values()),
            fmt.percent(ratio),
        )
    return table


def comparison_table(rows: Sequence[Comparison], best: Design) -> Table:
    """Known chips and plans beside the winner, each figure that of the model."""
    table = plain_table(
        "Known chips beside the winner", "", "W", "mm2", "GHz", "samples/s", "MFU", "winner is"
    )
    reference = next(iter(best.workloads.values())).throughput_samples_per_s
    for row in rows:
        result = row.result
        figures = (
            (
                fmt.number(result.throughput_samples_per_s),
                fmt.percent(result.mfu),
                f"{fmt.number(reference / result.throughput_samples_per_s)} x as fast",
            )
            if result
            else ("-", "-", "-")
        )
        table.add_row(
            escape(row.name),
            fmt.number(row.tdp_w),
            fmt.number(row.area_mm2),
            fmt.number(row.clock_hz / 1e9),
            *figures,
        )
    return table


def _blocks(document: ResultDocument) -> Iterator[RenderableType]:
    yield from blocks(document.best)
    yield certificate_table(document.certificate)
    yield frontier_table(document.frontier, document.best.id, complete=document.certificate.frontier_complete)
    if document.next_best:
        yield next_best_table(document.next_best, document.best)
    if document.comparison:
        yield Group(comparison_table(document.comparison, document.best), *_notes(document.comparison))


def _notes(rows: Sequence[Comparison]) -> Iterator[str]:
    """What was changed, alike notes on one line; the clock has a column of its own."""
    alike: dict[str, list[str]] = {}
    for row in rows:
        note = row.note.removeprefix(f"at {row.clock_hz / 1e9:.2f} GHz, ")
        alike.setdefault(note, []).append(row.name)
    for note, names in alike.items():
        if note:
            yield escape(f"  {', '.join(names)}: {note}")


def _proof(certificate: Certificate) -> str:
    if certificate.optimal:
        return "no other point of the space is better within the model"
    return f"no other point can be better by more than {fmt.percent(certificate.gap)} within the model"


def _ratio(design: Design, best: Design) -> float:
    """Geometric mean of the throughput ratios over the workloads both have."""
    product, count = 1.0, 0
    for name, result in design.workloads.items():
        if name in best.workloads:
            product *= result.throughput_samples_per_s / best.workloads[name].throughput_samples_per_s
            count += 1
    return product ** (1 / count) if count else 0.0
