"""The page of a plan in a fleet of unlike devices."""

from __future__ import annotations

from collections.abc import Iterator

from phaze.explore.documents.fleet_document import FleetDocument, FleetPipeline
from phaze.report import number_format as fmt
from phaze.report.figures.first_screen import command
from phaze.report.figures.question_and_answer import Tile, repeat, request_table, tiled
from phaze.report.html_markup import Html, Section, join, table, tag, text
from phaze.report.page.page_frame import Frame, kicker, render
from phaze.report.terminal.plans.fleet_tables import bound_words, plan_words, where


def fleet_page(name: str, document: FleetDocument) -> str:
    """Where the model lies, stage by stage, and what else there is. All texts are escaped."""
    best, asked = document.best, document.request
    workloads = ", ".join(asked["workloads"])
    answer = join(
        [
            text("The best plan is on "),
            tag("strong", where(best)),
            text(
                f": {plan_words(best)}; {fmt.number(best.throughput_samples_per_s)} samples/s. {bound_words(document)}"
            ),
        ],
        "",
    )
    rows = [
        [where(one), plan_words(one), fmt.number(one.throughput_samples_per_s), _usd(one.cost_per_sample_usd)]
        for one in (best, *document.others)
    ]
    sections = [Section("plans", "Plans", table(("devices", "plan", "samples/s", "USD per sample"), rows))]
    if best.pipeline is not None:
        sections.insert(0, Section("stages", "Stages", _stages(best.pipeline)))
    sections += [Section("assumptions", "Inputs", request_table(asked)), repeat(document.manifest)]
    return render(
        Frame(
            title=f"{name}: {workloads} in fleet {asked['fleet']}",
            kicker=kicker(name, document.manifest.started_utc),
            heading=f"{workloads} in fleet {asked['fleet']}, {asked['devices']:,} devices",
            answer=answer,
            figures=join([tiled(_tiles(document)), *command(document.manifest)]),
            sections=sections,
        )
    )


def _tiles(document: FleetDocument) -> Iterator[Tile]:
    best = document.best
    yield "iteration", fmt.duration(best.iteration_time_s), ""
    yield "throughput", f"{fmt.number(best.throughput_samples_per_s)} samples/s", ""
    yield "cost per sample", f"{_usd(best.cost_per_sample_usd)} USD", "devices in use and egress"
    yield "energy per sample", fmt.decimal(best.energy_at_tdp_per_sample_j, "J"), "devices in use at TDP"


def _usd(cost: float | None) -> str:
    return "-" if cost is None else fmt.number(cost)


def _stages(pipeline: FleetPipeline) -> Html:
    head = ("pool", "chip", "devices", "tensor", "blocks", "recomputed", "microbatch", "memory")
    rows = [
        [
            one.pool,
            one.chip,
            f"{one.devices:,}",
            str(one.tensor_parallel),
            str(one.blocks),
            str(one.recomputed_blocks),
            fmt.duration(one.load_s),
            fmt.memory(one.memory_bytes),
        ]
        for one in pipeline.stages
    ]
    return table(head, rows)
