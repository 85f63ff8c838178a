"""Pages of answers that are no single design or plan: architectures side by side, one thing varied, serving, and
several runs together.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from rich.text import Text

from phaze.explore.documents.compare_document import CompareDocument
from phaze.explore.documents.plan_document import WhatIfDocument, WhatIfPoint
from phaze.explore.documents.result_document import Certificate, Design, ResultDocument
from phaze.explore.documents.serving_document import PercentileFigures, PoolFigures, ServingDocument, TwoChips
from phaze.report import number_format as fmt
from phaze.report.cost_words import UnitCost, counted
from phaze.report.figures.designs_compared import (
    AXES,
    POWER,
    THROUGHPUT,
    Axis,
    Marks,
    design_mark,
    frontier_rows,
    plane,
)
from phaze.report.figures.first_screen import command
from phaze.report.figures.plan_figures import TIME_GROUPS, TIME_LOOKS
from phaze.report.figures.question_and_answer import Tile, repeat, request_table, sentence, tiled
from phaze.report.html_markup import (
    Bar,
    Html,
    Section,
    bars,
    details,
    figure,
    join,
    legend,
    paragraph,
    table,
    tag,
    text,
)
from phaze.report.page.page_frame import Frame, kicker, render
from phaze.report.plan_words import TIMES, degrees_beside, summary
from phaze.report.terminal.plans.service_tables import worth
from phaze.report.terminal.plans.serving_tables import STOPS
from phaze.report.terminal.plans.two_chips_tables import second_design_rows, two_chips_sentence


def compare_page(name: str, document: CompareDocument) -> str:
    """Architectures side by side, each under its own best placement. All texts are escaped."""
    designs = document.designs
    workloads = list(next(iter(designs.values())).workloads) if designs else []
    title = f"{len(document.request.get('architectures', designs))} architectures on {', '.join(workloads)}"
    sections = [Section(f"workload-{i}", one, _compared(one, designs)) for i, one in enumerate(workloads)]
    if document.infeasible:
        rows = [[chip, reason.removeprefix(f"{chip}: ")] for chip, reason in document.infeasible.items()]
        sections.append(Section("infeasible", "Cannot run it", table(("", ""), rows, look="facts")))
    sections += [Section("assumptions", "Inputs", request_table(document.request)), repeat(document.manifest)]
    return render(
        Frame(
            title=f"{name}: a comparison",
            kicker=kicker(name, document.manifest.started_utc),
            heading=title,
            answer=_fastest(designs),
            figures=join(command(document.manifest)),
            sections=sections,
        )
    )


def _fastest(designs: Mapping[str, Design]) -> Html:
    if not designs:
        return text("None of the architectures can run the workload.")
    speeds = {name: _speed(design) for name, design in designs.items()}
    order = sorted(speeds, key=lambda name: -speeds[name])
    first = [tag("strong", order[0]), f" is the fastest: {fmt.number(speeds[order[0]])} samples/s"]
    if order[1:]:
        first.append(f", {fmt.number(speeds[order[0]] / speeds[order[1]])} x as fast as {order[1]}")
    return join([*map(text, first), text(".")], "")


def _speed(design: Design) -> float:
    return next(iter(design.workloads.values())).throughput_samples_per_s


def _compared(workload: str, designs: Mapping[str, Design]) -> Html:
    """A row per architecture, the fastest first."""
    results = {name: design.workloads[workload] for name, design in designs.items()}
    order = sorted(results, key=lambda name: -results[name].throughput_samples_per_s)
    top = results[order[0]].throughput_samples_per_s
    kinds, degrees = degrees_beside([results[name].placement for name in order], " x ")
    rows = []
    for name, placement in zip(order, degrees, strict=True):
        design, result = designs[name], results[name]
        cost = UnitCost.of(result.cost) if result.cost else None
        rows.append(
            [
                name,
                fmt.number(result.throughput_samples_per_s),
                bars([Bar(result.throughput_samples_per_s / top, "c1")]),
                fmt.percent(result.mfu),
                fmt.number(design.tdp_w),
                fmt.number(design.area_mm2),
                fmt.number(result.energy_per_iteration_j / result.global_batch),
                fmt.number(cost.usd) if cost else "-",
                fmt.number(cost.kg) if cost else "-",
                placement,
            ]
        )
    told = next((result.cost for result in results.values() if result.cost), None)
    note = f"Placement: {kinds} parallel."
    note += f" USD and kg CO2e per {UnitCost.of(told).unit}. {counted(told)}" if told else ""
    heads = ("", "samples/s", "", "MFU", "W", "mm²", "J/sample", "USD", "kg CO2e", "placement")
    return figure(table(heads, rows, look="wide"), note)


def whatif_page(name: str, document: WhatIfDocument) -> str:
    """One thing varied: the best plan for every value, and where its time goes. All texts are escaped."""
    varied = fmt.label(document.varied)
    fits = [point for point in document.points if point.plan is not None]
    best = max(fits, key=_rate, default=None)
    answer = "No value leaves a plan that fits in memory." if best is None else ""
    plans = [[point.value, _plan(point)] for point in document.points]
    sections = [
        Section("values", f"Each value of {varied}", _values(document, varied)),
        Section("time", "Where the time goes", _times(document, varied)),
        Section("plans", "The plans", table((varied, "<plan"), plans, look="told")),
    ]
    if fits and fits[0].plan is not None:
        sections.append(Section("assumptions", "Inputs", request_table(fits[0].plan.request)))
    if document.manifest is not None:
        sections.append(repeat(document.manifest))
    started = document.manifest.started_utc if document.manifest else ""
    return render(
        Frame(
            title=f"{name}: {varied} varied",
            kicker=kicker(name, started) if started else name,
            heading=f"What if: {varied} {', '.join(point.value for point in document.points)}",
            answer=text(answer) if best is None else _best_value(best, fits, varied),
            figures=join(command(document.manifest)) if document.manifest else Html(""),
            sections=sections,
        )
    )


def _rate(point: WhatIfPoint) -> float:
    return point.plan.best.throughput_samples_per_s if point.plan else 0.0


def _best_value(best: WhatIfPoint, fits: Sequence[WhatIfPoint], varied: str) -> Html:
    slowest = min(fits, key=_rate)
    told = f": {fmt.number(_rate(best))} samples/s"
    if slowest is not best:
        told += f", {fmt.number(_rate(best) / _rate(slowest))} x as fast as with {slowest.value}"
    return join([text("The fastest is "), tag("strong", f"{varied} {best.value}"), text(f"{told}.")], "")


def _plan(point: WhatIfPoint) -> Html:
    return tag("td", summary(point.plan.best.strategy) if point.plan else point.reason or "", look="left")


def _values(document: WhatIfDocument, varied: str) -> Html:
    top = max(map(_rate, document.points), default=0.0) or 1.0
    rows = []
    for point in document.points:
        if point.plan is None:
            rows.append([point.value, "does not fit", "", "", "", bars([])])
            continue
        told = point.plan.best
        rows.append(
            [
                point.value,
                fmt.duration(told.iteration_time_s),
                fmt.number(told.throughput_samples_per_s),
                fmt.percent(told.mfu),
                fmt.memory(told.memory_bytes),
                bars([Bar(_rate(point) / top, "c1")]),
            ]
        )
    return table((varied, "iteration", "samples/s", "MFU", "peak memory", ""), rows, look="wide")


def _times(document: WhatIfDocument, varied: str) -> Html:
    """Device seconds per sample by cause, a bar per value."""
    spent = {point.value: _spent(point) for point in document.points}
    longest = max((sum(parts.values()) for parts in spent.values()), default=0.0) or 1.0
    rows = [
        [
            value,
            fmt.duration(sum(parts.values())) if parts else "does not fit",
            bars([Bar(s / longest, TIME_LOOKS[name], TIMES[name]) for name, s in parts.items()]),
        ]
        for value, parts in spent.items()
    ]
    used = {TIME_LOOKS[name] for parts in spent.values() for name in parts}
    names = {look: words for look, words in TIME_GROUPS.items() if look in used}
    heads = (varied, "device time per sample", "")
    causes = [n for n in TIMES if any(n in parts for parts in spent.values())]
    each = [[v, *(fmt.duration(parts.get(n, 0.0)) for n in causes)] for v, parts in spent.items() if parts]
    behind = table((varied, *(TIMES[n] for n in causes)), each)
    picture = join([legend(names), table(heads, rows, look="wide")])
    return figure(picture, "Time of all devices for one sample, by cause.", behind)


def _spent(point: WhatIfPoint) -> dict[str, float]:
    if point.plan is None:
        return {}
    best = point.plan.best
    each = int(point.plan.request["devices"]) / (best.throughput_samples_per_s * best.iteration_time_s)
    return {n: getattr(best.breakdown, n) * each for n in TIMES if getattr(best.breakdown, n) > 0}


def serving_page(name: str, document: ServingDocument) -> str:
    """How a model is served: policy, latencies, replicas. All texts are escaped."""
    best, asked = document.best, document.request
    answer = join(
        [
            text("The best policy is "),
            tag("strong", best.policy),
            text(
                f": {fmt.number(best.requests_per_s)} requests/s, {fmt.number(best.tokens_per_s)} output "
                f"tokens/s, on {best.devices:,} of {best.devices_given:,} devices; limited by {best.binding}: "
                f"{STOPS.get(best.binding, '')}."
            ),
        ],
        "",
    )
    sections = [
        Section("latency", "Latency", _latency(document)),
        Section("replicas", "Replicas", _replicas(best.pools)),
    ]
    if document.simulation is not None:
        tried = document.simulation
        rows = [
            _percentiles("time to first token", tried.ttft),
            _percentiles("time per output token after it", tried.tpot),
        ]
        body = table(("", "mean", "p50", "p90", "p99"), rows)
        sections.append(Section("simulation", f"Simulated: {tried.requests:,} requests", body))
    if document.certificate is not None:
        sections.append(Section("certificate", "Certificate", _served_proof(document.certificate)))
    if document.two_chips is not None:
        sections.append(Section("two-chips", "Two chips", _two_chips(document, document.two_chips)))
    sections += [Section("assumptions", "Inputs", request_table(asked)), repeat(document.manifest)]
    chip = asked["architecture"] if document.chip is None else document.chip.id
    return render(
        Frame(
            title=f"{name}: serving {asked['workload']}",
            kicker=kicker(name, document.manifest.started_utc),
            heading=f"Serving {asked['workload']} on {asked['devices']:,} x {chip}",
            answer=answer,
            figures=join([tiled(_serving_tiles(document)), *command(document.manifest)]),
            sections=sections,
        )
    )


def _two_chips(document: ServingDocument, told: TwoChips) -> Html:
    """What a second chip buys, its pools, and what its design must save to pay."""
    objective = "throughput" if document.certificate is None else document.certificate.objective
    parts = [tag("p", Text.from_markup(two_chips_sentence(told, partial(worth, objective))).plain)]
    if told.best is not None:
        heads = "pool", "chip", "devices", "W", "mm2"
        rows = [
            [chip.role, chip.id, f"{chip.devices:,}", fmt.number(chip.tdp_w), fmt.number(chip.area_mm2)]
            for chip in told.chips
        ]
        parts += [table(heads, rows), _replicas(told.best.pools)]
    if told.second_design is not None:
        parts.append(table(("the second design", ""), second_design_rows(told.second_design)))
    return join(parts)


def _served_proof(proof: Certificate) -> Html:
    """What no other chip and plan can exceed, in the words of the certificate."""
    rows = [
        ("objective", fmt.label(proof.objective)),
        ("reached (more is better)", fmt.number(proof.objective_value, 5)),
        ("no point is better than", f"{fmt.number(proof.upper_bound, 5)} (gap {100 * proof.gap:.3g} %)"),
        ("architectures of the space", f"{proof.space_size:,}"),
        ("of them over budget", f"{proof.over_budget:,}"),
        ("pruned by a bound, or open", f"{proof.pruned:,}"),
        ("worked out", f"{proof.evaluated:,}"),
        ("holds within", "; ".join(proof.scope)),
    ]
    return table(("", ""), rows)


def _serving_tiles(document: ServingDocument) -> Iterator[Tile]:
    best = document.best
    if document.chip is not None:
        yield "chip", f"{fmt.number(document.chip.tdp_w)} W", f"{fmt.number(document.chip.area_mm2)} mm2"
    yield "time to first token", fmt.duration(best.ttft_s), _target(document, "max_ttft_s")
    yield "time per output token", fmt.duration(best.tpot_s), _target(document, "max_tpot_s")
    yield (
        "throughput",
        f"{fmt.number(best.tokens_per_s)} tokens/s",
        f"{fmt.number(best.requests_per_s)} requests/s",
    )
    yield "per device in use", f"{fmt.number(best.tokens_per_s_per_device)} tokens/s", ""
    yield "energy per output token", fmt.decimal(best.energy_per_token_j, "J"), "on all devices in use"
    yield "MFU while prefilling", fmt.percent(best.prefill_mfu), ""


def _target(document: ServingDocument, key: str) -> str:
    limit = document.request.get(key)
    return "no target given" if limit is None else f"target {fmt.duration(limit)}"


def _latency(document: ServingDocument) -> Html:
    best, output = document.best, int(document.request["output_tokens"])
    rows = [
        ("time to first token", best.ttft_s),
        ("of it waiting", best.waiting_s),
        ("time per output token after it", best.tpot_s),
        ("longest gap between two tokens", best.longest_gap_s),
        ("cache from pool to pool", best.transfer_s),
        ("whole request", best.ttft_s + best.tpot_s * (output - 1)),
    ]
    return table(("", "mean"), [[words, fmt.duration(s)] for words, s in rows if s > 0])


_BYTES = {
    "weight_bytes": ("weights", "c1"),
    "cache_bytes": ("cache", "c3"),
    "working_bytes": ("activations", "c4"),
}


def _replicas(pools: Sequence[PoolFigures]) -> Html:
    rows = [
        [
            pool.role,
            f"{pool.replicas:,}",
            f"{pool.tensor_parallel}",
            f"{pool.pipeline_parallel}",
            f"{pool.expert_parallel}",
            fmt.number(pool.batch),
            *(fmt.memory(getattr(pool, key)) for key in _BYTES),
            bars(
                [
                    Bar(getattr(pool, k) / pool.memory_bytes, look, words)
                    for k, (words, look) in _BYTES.items()
                ]
            ),
        ]
        for pool in pools
    ]
    names = {look: words for words, look in _BYTES.values()}
    heads = (
        "pool",
        "replicas",
        "tensor",
        "pipeline",
        "experts",
        "batch",
        *(words for words, _ in _BYTES.values()),
        "",
    )
    return figure(
        join([legend(names), table(heads, rows, look="wide")]), "Memory of the fullest device of a replica."
    )


def _percentiles(words: str, told: PercentileFigures) -> list[str]:
    return [words, *(fmt.duration(s) for s in (told.mean_s, told.p50_s, told.p90_s, told.p99_s))]


def runs_page(runs: Mapping[str, ResultDocument]) -> str:
    """Several runs of `dse run` on one page: their winners side by side, their frontiers together, what was asked.

    All texts are escaped.
    """
    best = max(runs, key=lambda name: _speed(runs[name].best))
    answer = f" has the fastest winner: {fmt.number(_speed(runs[best].best))} samples/s."
    return render(
        Frame(
            title=f"{len(runs)} runs",
            kicker=", ".join(runs),
            heading=f"{len(runs)} runs side by side",
            answer=join([tag("strong", best), text(answer)], ""),
            figures=_winners(runs),
            sections=[
                Section("frontier", "Frontiers", _frontiers(runs)),
                Section("answers", "The answers", join(_answers(runs))),
                Section("asked", "What was asked", _differences(runs)),
            ],
        )
    )


def _winners(runs: Mapping[str, ResultDocument]) -> Html:
    top = max(_speed(document.best) for document in runs.values())
    rows = []
    for name, document in runs.items():
        design = document.best
        result = next(iter(design.workloads.values()))
        state = "proven" if document.certificate.optimal else f"gap {fmt.percent(document.certificate.gap)}"
        rows.append(
            [
                name,
                tag("td", design.id, look="left"),
                fmt.number(result.throughput_samples_per_s),
                bars([Bar(_speed(design) / top, "c1")]),
                fmt.percent(result.mfu),
                fmt.number(design.tdp_w),
                fmt.number(design.area_mm2),
                fmt.decimal(result.energy_per_iteration_j / result.global_batch, "J"),
                state,
            ]
        )
    heads = ("run", "<winner", "samples/s", "", "MFU", "W", "mm²", "energy per sample", "proof")
    return table(heads, rows, look="wide")


def _frontiers(runs: Mapping[str, ResultDocument]) -> Html:
    """All frontiers in one plot and one table, each design under the name of its run."""
    each = {
        name: [
            {**row, "id": f"{name}: {row['id']}"} for row in frontier_rows(document) if row.get(THROUGHPUT)
        ]
        for name, document in runs.items()
    }
    rows = [row for one in each.values() for row in one]
    winners = [{**design_mark(d.best), "id": f"{name}: {d.best.id}"} for name, d in runs.items()]
    if not rows:
        return paragraph("None of the runs has a frontier of one workload.")
    axes: Sequence[Axis] = AXES
    return plane(Marks(rows, (), (), winners, each), axes, POWER, THROUGHPUT)


def _answers(runs: Mapping[str, ResultDocument]) -> Iterator[Html]:
    for name, document in runs.items():
        yield tag("h3", name)
        yield paragraph(sentence(document))
        yield from command(document.manifest)


def _differences(runs: Mapping[str, ResultDocument]) -> Html:
    """Options in which the runs differ; the others folded away."""
    keys = list(dict.fromkeys(key for document in runs.values() for key in document.request))
    told = {key: [_asked(document.request.get(key), key) for document in runs.values()] for key in keys}
    apart = [[fmt.label(key), *values] for key, values in told.items() if len(set(values)) > 1]
    alike = [
        [fmt.label(key), values[0]]
        for key, values in told.items()
        if len(set(values)) == 1 and values[0] != "-"
    ]
    parts = [details("What is the same in all", table(("", ""), alike, look="facts"))]
    if apart:
        parts.insert(0, table(("", *runs), apart, caption="Where they differ"))
    return join(parts)


def _asked(value: object, key: str) -> str:
    if value is None or value in ({}, [], False):
        return "-"
    if isinstance(value, float) and not math.isfinite(value):
        return "-"
    return ", ".join(map(str, value)) if isinstance(value, list) else fmt.field(key, value)
