"""Whole pages: the report of a run, that of a training plan, and that of a sweep."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from phaze.explore.documents.plan_document import PlanDocument
from phaze.explore.documents.result_document import Manifest
from phaze.explore.request.design_metrics import Row
from phaze.report import number_format as fmt
from phaze.report.figures.designs_compared import AXES, POWER, THROUGHPUT, Marks, plane
from phaze.report.figures.figure_registry import drawn
from phaze.report.figures.first_screen import command, first_screen
from phaze.report.figures.plan_figures import PlanContents, sections
from phaze.report.figures.question_and_answer import repeat, sentence, tiled
from phaze.report.figures.report_contents import Contents
from phaze.report.html_markup import Section, join, paragraph, tag, text
from phaze.report.page.page_frame import Frame, kicker, render
from phaze.report.plan_words import summary


def run_page(contents: Contents) -> str:
    """The file. All texts of the run are escaped."""
    document = contents.document
    workloads = ", ".join(document.best.workloads)
    return render(
        Frame(
            title=f"{workloads}: {document.best.id}",
            kicker=kicker(contents.name, document.manifest.started_utc),
            heading=f"An accelerator for {workloads}",
            answer=sentence(document),
            figures=first_screen(contents),
            sections=list(drawn(contents)),
        )
    )


def plan_page(contents: PlanContents) -> str:
    """The file. All texts of the document are escaped."""
    document = contents.document
    workload = ", ".join(document.request["workloads"])
    chips = f"{document.request['devices']:,} x {document.request['architecture']}"
    words = (
        f": {fmt.duration(document.best.iteration_time_s)} per iteration at {fmt.percent(document.best.mfu)} MFU; "
        f"provably the fastest of {document.certificate.space_size:,} plans, according to the model."
    )
    plan = tag("strong", summary(document.best.strategy))
    return render(
        Frame(
            title=f"{workload} on {chips}",
            kicker=kicker(contents.name, document.manifest.started_utc),
            heading=f"{document.request['mode'].capitalize()}: {workload} on {chips}",
            answer=join([text("The fastest plan that fits in memory is "), plan, text(words)], ""),
            figures=join([tiled(_plan_key_figures(document)), *command(document.manifest)]),
            sections=list(sections(contents)),
        )
    )


def _plan_key_figures(document: PlanDocument) -> Iterator[tuple[str, str, str]]:
    """Name, value, and what belongs below it."""
    best, batch = document.best, document.request["global_batch"]
    tokens = best.throughput_tokens_per_s
    yield "one iteration", fmt.duration(best.iteration_time_s), f"of {batch:,} samples"
    below = f"{fmt.count(round(tokens))} tokens/s" if tokens else ""
    yield "throughput", f"{fmt.number(best.throughput_samples_per_s)} samples/s", below
    yield "MFU", fmt.percent(best.mfu), ""
    yield "devices", f"{best.devices_used:,}", f"of {document.request['devices']:,}"
    yield "energy per sample", fmt.decimal(best.energy_per_iteration_j / batch, "J"), "on all devices"
    yield "peak memory", fmt.memory(best.memory_bytes), "of one device"


_TOLD = "A sweep samples: it proves nothing of the designs between its trials. For a proof ask dse run."


def sweep_page(name: str, manifest: Manifest, designs: Sequence[Row], frontier: Sequence[str]) -> str:
    """The file: `designs` that were evaluated, ids of those on the `frontier`. All texts are escaped."""
    edge = sorted((row for row in designs if row["id"] in set(frontier)), key=lambda row: float(row[POWER]))
    others = [row for row in designs if row["id"] not in set(frontier)]
    fastest = max(designs, key=lambda row: float(row[THROUGHPUT]))
    words = (
        f" designs of {len(designs):,} that fit are beaten by no other. The fastest is {fastest['id']}: "
        f"{fmt.number(fastest[THROUGHPUT])} samples/s with {fmt.number(fastest[POWER])} W."
    )
    figures = [
        ("evaluated", f"{len(designs):,}", "designs that fit"),
        ("frontier", f"{len(edge):,}", "designs"),
    ]
    for axis in AXES[:3]:
        values = [float(row[axis.key]) for row in edge]
        figures.append(
            (axis.name, f"{fmt.number(min(values))} to {fmt.number(max(values))}", "on the frontier")
        )
    drawn = plane(Marks(edge, others), AXES, POWER, THROUGHPUT)
    return render(
        Frame(
            title=f"{name}: a sweep",
            kicker=kicker(name, manifest.started_utc),
            heading="A sweep of designs",
            answer=join([tag("strong", f"{len(edge):,}"), text(words)], ""),
            figures=join([tiled(figures), *command(manifest)]),
            sections=[
                Section("frontier", "Frontier", join([paragraph(_TOLD), drawn])),
                repeat(manifest),
            ],
        )
    )
