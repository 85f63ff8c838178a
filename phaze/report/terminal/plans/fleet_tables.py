"""Plans in fleets as tables: the best one, its stages, what else there is, and the bound."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console, RenderableType
from rich.markup import escape
from rich.table import Table

from phaze.explore.documents.fleet_document import FleetDocument, FleetPipeline, FleetPlan
from phaze.report import number_format as fmt
from phaze.report.plan_words import summary
from phaze.report.terminal.design_tables import plain_table


def print_fleet(document: FleetDocument, console: Console) -> None:
    """Everything there is to say about a plan."""
    for block in fleet_blocks(document):
        console.print(block)


def fleet_blocks(document: FleetDocument) -> Iterator[RenderableType]:
    """Head, the best plan and its stages, the others, the bound."""
    request = document.request
    yield (
        f"[bold]{escape(' '.join(request['workloads']))}[/bold] in fleet {escape(str(request['fleet']))}, "
        f"{request['devices']:,} devices, framework {escape(str(request['framework']))}, rung {request['rung']}, "
        f"for {request['objective']}"
    )
    yield ""
    yield _best(document.best)
    if document.best.pipeline is not None:
        yield ""
        yield _stages(document.best.pipeline)
    if document.others:
        yield ""
        yield _others(document)
    for pool, why in document.unfit.items():
        yield f"{escape(pool)} alone: {escape(why)}"
    yield ""
    yield bound_words(document)


def where(plan: FleetPlan) -> str:
    """Devices of a plan by pool."""
    return " + ".join(f"{n:,} {name}" for name, n in plan.pools.items() if n)


def plan_words(plan: FleetPlan) -> str:
    """A plan in one line."""
    if plan.plan is not None:
        return summary(plan.plan.strategy)
    pipeline = plan.pipeline
    if pipeline is None:
        return ""
    widths = "-".join(str(stage.tensor_parallel) for stage in pipeline.stages)
    return (
        f"data {pipeline.data_parallel} x pipeline {len(pipeline.stages)}, tensor {widths}, "
        f"microbatch {pipeline.microbatch_size}, ZeRO {pipeline.zero_stage}"
    )


def _best(best: FleetPlan) -> Table:
    table = plain_table("Best plan", "", "")
    table.show_header = False
    table.columns[1].justify = "left"
    tokens, cost = best.throughput_tokens_per_s, best.cost_per_iteration_usd
    for label, value in (
        ("devices", where(best)),
        ("plan", plan_words(best)),
        ("iteration time", fmt.duration(best.iteration_time_s)),
        ("throughput", f"{fmt.number(best.throughput_samples_per_s)} samples/s"),
        *([("tokens", f"{fmt.number(tokens)} tokens/s")] if tokens is not None else []),
        ("model FLOPs utilisation of the fleet", fmt.percent(best.mfu)),
        *([("cost per iteration", f"{fmt.number(cost)} USD")] if cost is not None else []),
        *([("  of it egress", f"{fmt.number(best.egress_usd)} USD")] if best.egress_usd else []),
        ("energy per sample at TDP", fmt.decimal(best.energy_at_tdp_per_sample_j, "J")),
    ):
        table.add_row(label, escape(value))
    return table


def _stages(pipeline: FleetPipeline) -> Table:
    table = plain_table(
        "Stages", "pool", "chip", "devices", "tensor", "blocks", "recomputed", "microbatch", "memory"
    )
    for stage in pipeline.stages:
        table.add_row(
            escape(stage.pool),
            escape(stage.chip),
            f"{stage.devices:,}",
            str(stage.tensor_parallel),
            str(stage.blocks),
            str(stage.recomputed_blocks),
            fmt.duration(stage.load_s),
            fmt.memory(stage.memory_bytes),
        )
    return table


def _others(document: FleetDocument) -> Table:
    table = plain_table("Other plans", "devices", "plan", "samples/s", "USD per sample")
    for other in document.others:
        cost = other.cost_per_sample_usd
        table.add_row(
            escape(where(other)),
            escape(plan_words(other)),
            fmt.number(other.throughput_samples_per_s),
            "" if cost is None else fmt.number(cost),
        )
    return table


def bound_words(document: FleetDocument) -> str:
    """How far any other plan could be better."""
    proof = document.certificate
    worked = f"{proof.pipelines_worked_out:,} pipelines across pools worked out"
    if proof.optimal:
        return f"Proved best of its space: {worked}, all others ruled out by bounds."
    return f"No plan of the space is more than {fmt.percent(proof.gap)} better: {worked}."
