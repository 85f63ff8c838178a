"""Training plans as tables: the plan, its performance, time, memory and the plans next to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from phaze.explore.documents.plan_document import PlanConvergence, PlanDocument, PlanResult
from phaze.report import number_format as fmt
from phaze.report.plan_words import BYTES, TIMES, next_plan_rows, next_plans_head, summary
from phaze.report.terminal.design_tables import plain_table
from phaze.report.terminal.plans.failure_tables import goodput_table


def print_plan(document: PlanDocument, console: Console) -> None:
    """The best plan, where its time and memory go, the next plans, and the proof."""
    best = document.best
    console.print(plan_head(document))
    console.print()
    console.print(plan_table(best, document.request))
    console.print()
    console.print(_parts("Time of an iteration", TIMES, best.breakdown.model_dump(), fmt.duration))
    if best.breakdown.hidden_s > 0:
        console.print(f"Beside computation: {fmt.duration(best.breakdown.hidden_s)} of exchanges.")
    if best.convergence is not None:
        console.print()
        console.print(_convergence(best.convergence))
    if best.goodput is not None:
        console.print()
        console.print(goodput_table(best.goodput))
    console.print()
    console.print(_kinds(best))
    console.print()
    console.print(_parts("Memory of the fullest device", BYTES, best.memory.model_dump(), fmt.memory))
    if document.next_best:
        console.print()
        console.print(_others(document))
    console.print()
    console.print(plan_proof(document))


def plan_head(document: PlanDocument) -> str:
    """Head of a plan: workloads, devices, architecture, framework, rung and global batch (rich markup)."""
    request = document.request
    return (
        f"[bold]{escape(' '.join(request['workloads']))}[/bold] on {request['devices']:,} x "
        f"{escape(str(request['architecture']))}, framework {escape(str(request['framework']))}, "
        f"rung {request['rung']}"
        + (f", global batch {batch:,}" if (batch := request.get("global_batch")) else "")
    )


def plan_proof(document: PlanDocument) -> str:
    """Proof of a plan, in one sentence."""
    proof = document.certificate
    return (
        f"Proved best of {proof.space_size:,} plans{_named(document)}: {proof.evaluated:,} evaluated, "
        f"{proof.pruned:,} ruled out by bounds, {proof.out_of_memory:,} do not fit in memory."
    )


def _named(document: PlanDocument) -> str:
    """Their space, where the document tells it (dse-plan/3)."""
    name = document.request.get("plans")
    return f" (space {escape(str(name))})" if name else ""


def devices_used(used: int, request: Mapping[str, Any]) -> str:
    """How many of the devices asked for a plan uses, and where some are idle, of which batch."""
    devices, batch = request.get("devices", used), request.get("global_batch")
    idle = f" of {devices:,}; no plan that uses more of them is faster" if used < devices else ""
    return f"{used:,}{idle}" + (f" for a global batch of {batch:,}" if idle and batch else "")


def plan_table(best: PlanResult, request: Mapping[str, Any] = MappingProxyType({})) -> Table:
    """The best plan and its figures; `request` tells of how many devices it uses so many."""
    table = plain_table("Best plan", "", "")
    table.show_header = False
    table.columns[1].justify = "left"
    tokens = best.throughput_tokens_per_s
    for label, value in (
        ("plan", summary(best.strategy)),
        ("iteration time", fmt.duration(best.iteration_time_s)),
        ("throughput", f"{fmt.number(best.throughput_samples_per_s)} samples/s"),
        *([("tokens", f"{fmt.number(tokens)} tokens/s")] if tokens is not None else []),
        ("model FLOPs utilisation", fmt.percent(best.mfu)),
        ("energy per iteration, all devices", fmt.decimal(best.energy_per_iteration_j, "J")),
        ("devices used", devices_used(best.devices_used, request)),
        *([("memory at the host of a device", fmt.memory(host))] if (host := best.host_memory_bytes) else []),
        *([("exchanged with its host", fmt.memory(moved))] if (moved := best.host_link_bytes) else []),
        ("microbatches of a pipeline", f"{best.strategy.microbatches:,}"),
    ):
        table.add_row(label, escape(value))
    return table


def _parts(
    title: str, names: Mapping[str, str], values: Mapping[str, float], told: Callable[[float], str]
) -> Table:
    """The parts of a breakdown that are there, with their shares."""
    shown = {names[key]: value for key, value in values.items() if key in names and value > 0}
    total = sum(shown.values())
    table = plain_table(title, "", "", "share")
    for name, value in shown.items():
        table.add_row(name, told(value), fmt.percent(value / total))
    table.add_row("total", told(total), "", style="bold")
    return table


def _kinds(best: PlanResult) -> Table:
    """Computation by kind of operator, and what of it waits for the global buffer and for HBM."""
    table = plain_table("Computation, recompute aside", "", "", "waits for: global buffer", "HBM")
    for kind in best.kinds:
        buffer_s = kind.global_buffer_s
        table.add_row(
            escape(kind.kind),
            fmt.duration(kind.time_s),
            "-" if buffer_s is None else fmt.percent(buffer_s / kind.time_s),
            fmt.percent(kind.stall_s / kind.time_s),
        )
    return table


def _convergence(found: PlanConvergence) -> Table:
    """What samples of the batch are worth."""
    table = plain_table("Progress", "", "")
    table.show_header = False
    for label, value in (
        ("goodput", f"{fmt.number(found.goodput_samples_per_s)} samples/s"),
        ("statistical efficiency of the batch", fmt.percent(found.efficiency)),
        ("gradient noise scale", f"{fmt.number(found.noise_scale_samples)} samples"),
    ):
        table.add_row(label, value)
    return table


def _others(document: PlanDocument) -> Table:
    table = plain_table("Next plans", *next_plans_head(document))
    for row in next_plan_rows(document):
        table.add_row(*map(escape, row))
    return table
