"""Figures of a result beyond one workload on a given number of devices, where they were asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby

from phaze.explore.documents.network_report import NetworkReport
from phaze.explore.documents.result_document import ClusterReport, PortfolioReport, SampleCost, TrainingRun
from phaze.explore.documents.strategy_report import Distance, PerStage, StrategyReport
from phaze.report import number_format as fmt
from phaze.report.cost_words import UnitCost, counted, grouped_kg, grouped_usd
from phaze.report.figures.iteration_timeline import pipeline_chart
from phaze.report.figures.report_contents import Contents
from phaze.report.html_markup import Bar, Html, Section, bars, join, pair, paragraph, table, tag
from phaze.report.plan_words import summary
from phaze.report.terminal.frontier_tables import amount
from phaze.report.terminal.network_tables import network_words
from phaze.report.terminal.question_tables import training_table


def questions(contents: Contents) -> Iterator[Section]:
    """Several workloads, a cluster, a training run, a search without proof, a design per stage."""
    document = contents.document
    if document.portfolio is not None:
        yield Section("workloads", "One design for all", _portfolio(document.portfolio))
    if document.cluster is not None:
        yield Section("cluster", "How many devices", _cluster(document.cluster))
    if document.networks is not None:
        yield Section("networks", "The network", _networks(document.networks, document.certificate.objective))
    for name, result in document.best.workloads.items():
        if result.cost is not None:
            of = f" of {name}" if len(document.best.workloads) > 1 else ""
            yield Section(f"cost-{name}" if of else "cost", f"Money and carbon{of}", _cost(result.cost))
    if document.training_run is not None:
        yield Section("training-run", "The whole training run", _training(document.training_run))
    if document.strategy is not None:
        yield Section("search", "The search", _strategy(document.strategy, document.certificate.objective))
    if document.wham is not None and document.wham.per_stage is not None:
        yield Section("per-stage", "A design per stage", _per_stage(contents, document.wham.per_stage))


def _portfolio(report: PortfolioReport) -> Html:
    rows = [
        [
            name,
            fmt.number(share.weight),
            fmt.number(share.throughput_samples_per_s),
            fmt.number(share.own.throughput_samples_per_s),
            fmt.regret(share.regret),
            bars([Bar(min(share.ratio, 1.0), "c1"), Bar(max(share.regret, 0.0), "c7")]),
        ]
        for name, share in report.workloads.items()
    ]
    words = (
        f"Combined by {report.combine}. Regret: what is lost against the workload's own best design within the same "
        "budgets; none where the time for a workload alone found a worse one."
    )
    heads = ("", "weight", "samples/s", "alone", "regret", "")
    crossed = [
        [
            ", ".join(cross.winner_for) or "all together",
            tag("td", cross.id, look="left"),
            fmt.number(cross.score),
            *(fmt.number(cross.throughputs_samples_per_s[name]) for name in report.workloads),
        ]
        for cross in report.cross
    ]
    return join(
        [
            paragraph(words),
            table(heads, rows, look="wide"),
            table(
                ("best for", "<design", "score", *report.workloads),
                crossed,
                caption="Each workload's own best design on all workloads, samples/s",
            ),
        ]
    )


def _cluster(report: ClusterReport) -> Html:
    words = (
        f"{report.devices:,} devices, {fmt.decimal(report.power_w, 'W')} with an overhead of {report.overhead:g}, "
        f"{fmt.number(report.cost_usd)} USD to make."
    )
    most = max((choice.throughput_samples_per_s or 0.0 for choice in report.choices), default=0.0) or 1.0
    rows = [
        [
            f"{choice.devices:,}",
            tag("td", choice.status, look="left"),
            "-" if (found := choice.throughput_samples_per_s) is None else fmt.number(found),
            fmt.number(choice.upper_bound_samples_per_s),
            tag("td", choice.id or "-", look="left"),
            bars([Bar((found or 0.0) / most, "c1" if choice.devices == report.devices else "c6")]),
        ]
        for choice in report.choices
    ]
    heads = ("devices", "", "samples/s", "at most", "<design", "")
    return join([paragraph(words), table(heads, rows, look="wide")])


def _networks(report: NetworkReport, objective: str) -> Html:
    most = max((choice.objective_value or 0.0 for choice in report.choices), default=0.0) or 1.0
    rows = [
        [
            tag("td", choice.network, look="left"),
            tag("td", choice.status, look="left"),
            f"{choice.architectures_within:,}",
            "-" if (found := choice.objective_value) is None else amount(objective, found),
            amount(objective, choice.upper_bound) if choice.upper_bound else "-",
            bars([Bar((found or 0.0) / most, "c1" if choice.network == report.network else "c6")]),
        ]
        for choice in report.choices
    ]
    heads = ("<network", "", "architectures", "best", "at most", "")
    return join([paragraph(network_words(report)), table(heads, rows, look="wide")])


def _training(run: TrainingRun) -> Html:
    told = training_table(run)
    facts = list(zip(*(column.cells for column in told.columns), strict=True))
    return join([table(("", ""), facts, look="facts"), paragraph(str(told.caption))])


def _cost(cost: SampleCost) -> Html:
    """Money and carbon by part, with their shares."""
    each = UnitCost.of(cost)
    usd = _shares(grouped_usd(cost.cost_parts_usd), each.samples, f"Cost per {each.unit}, USD")
    kg = _shares(grouped_kg(cost.carbon_parts_kg), each.samples, f"Carbon per {each.unit}, kg CO2e")
    return join([pair(usd, kg), paragraph(counted(cost))])


def _shares(parts: Mapping[str, float], samples: float, caption: str) -> Html:
    """Parts of one sample, told for some samples."""
    total = sum(parts.values())
    rows = [
        [name, fmt.number(samples * part), fmt.percent(part / total), bars([Bar(part / total, "c1")])]
        for name, part in parts.items()
    ]
    return table(("", "", "share", ""), rows, caption=caption)


def _strategy(report: StrategyReport, objective: str) -> Html:
    facts = [
        ("strategy", report.strategy),
        ("evaluated", f"{report.evaluations:,} architectures in {fmt.duration(report.runtime_s)}"),
        ("stopped by", fmt.label(report.stopped.value)),
        ("best found", "nothing" if report.best_value is None else amount(objective, report.best_value)),
        ("distance", _distance(report.distance, objective)),
    ]
    history = [
        [f"{step.evaluation:,}", fmt.duration(step.elapsed_s), amount(objective, step.value)]
        for step in report.history
    ]
    heads = ("after evaluation", "time", "objective")
    return join([table(("", ""), facts, look="facts"), table(heads, history, caption="Its improvements")])


def _distance(away: Distance | None, objective: str) -> str:
    """How far below the certified answer it ended."""
    if away is None:
        return "nothing certified to compare with"
    certified = "the proven optimum" if away.proven else "the best that is known"
    if away.share <= 0:
        return f"none: it found {certified}"
    return f"{fmt.percent(away.share)} below {certified}, {amount(objective, away.certified)}"


def _choices(told: PerStage) -> str:
    """How the mixed pipeline spreads the model."""
    if told.plan is not None:
        return f"Its plan: {summary(told.plan)}"
    return (
        f"{told.data_parallel:,} replicas, {told.tensor_parallel:,} devices per stage, microbatch "
        f"{told.microbatch_size:,}, recompute {told.recompute}"
    )


def _per_stage(contents: Contents, told: PerStage) -> Html:
    words = (
        f"{told.distinct_designs} different designs in {len(told.stages)} stages: "
        f"{fmt.number(told.throughput_samples_per_s)} samples/s, {100 * told.gain:+.2f} % against the best single "
        f"design, {fmt.number(told.mean_tdp_w)} W on average. {_choices(told)}. The certificate speaks of one design "
        "for all stages."
    )
    slowest = max(stage.load_s for stage in told.stages)
    rows: list[list[object]] = []
    for (design, tdp_w), run in groupby(
        enumerate(told.stages, 1), key=lambda item: (item[1].id, item[1].tdp_w)
    ):
        same = list(run)
        first, last = same[0][0], same[-1][0]
        load_s = max(stage.load_s for _, stage in same)
        rows.append(
            [
                f"{first}" if first == last else f"{first} to {last}",
                tag("td", design, look="left"),
                fmt.number(tdp_w),
                fmt.memory(max(stage.memory_bytes for _, stage in same)),
                fmt.duration(load_s),
                bars([Bar(load_s / slowest, "c1")]),
            ]
        )
    heads = ("stages", "<design", "W", "peak memory", "per microbatch", "")
    parts = [paragraph(words), table(heads, rows, look="wide")]
    if contents.per_stage is not None:
        parts.append(pipeline_chart(contents.per_stage))
    return join(parts)
