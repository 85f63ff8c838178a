"""The page of a training plan."""

from __future__ import annotations

from collections.abc import Iterator

from phaze.explore.documents.plan_document import PlanDocument
from phaze.report import format as fmt
from phaze.report.figures.answer import tiled
from phaze.report.figures.plan import PlanContents, sections
from phaze.report.page.frame import Frame, kicker, render
from phaze.report.page.markup import join, tag, text
from phaze.report.plan_words import summary


def plan_page(contents: PlanContents) -> str:
    """The file. All texts of the document are escaped."""
    document = contents.document
    workload = ", ".join(document.request["workloads"])
    chips = f"{document.request['devices']:,} x {document.request['architecture']}"
    words = (
        f": {fmt.duration(document.best.iteration_time_s)} per iteration at {fmt.percent(document.best.mfu)} MFU; no "
        f"other of {document.certificate.space_size:,} plans that fits is faster within the model."
    )
    plan = tag("strong", summary(document.best.strategy))
    return render(
        Frame(
            title=f"{workload} on {chips}",
            kicker=kicker(contents.name, document.manifest.started_utc),
            heading=f"{document.request['mode'].capitalize()}: {workload} on {chips}",
            answer=join([text("The fastest plan that fits in memory is "), plan, text(words)], ""),
            figures=tiled(_figures(document)),
            sections=list(sections(contents)),
        )
    )


def _figures(document: PlanDocument) -> Iterator[tuple[str, str, str]]:
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
