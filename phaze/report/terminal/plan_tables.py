"""Plans as tables: for training the plan, its performance, time, memory and the plans next to it; for serving the
policy, latencies and pools.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import astuple
from types import MappingProxyType
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from phaze.explore.documents.plan_document import PlanDocument, PlanResult
from phaze.explore.documents.serving_document import ServingCost
from phaze.parallel.serving import Binding, Policy, ServingPlan, ServingSpace
from phaze.parallel.serving.request_simulation import Trial
from phaze.report import number_format as fmt
from phaze.report.plan_words import BYTES, TIMES, summary
from phaze.report.terminal.design_tables import plain_table
from phaze.report.terminal.failure_tables import goodput_table


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


def _others(document: PlanDocument) -> Table:
    table = plain_table("Next plans", "plan", "iteration", "slower by", "memory")
    for other in document.next_best:
        slower = other.iteration_time_s / document.best.iteration_time_s - 1
        table.add_row(
            escape(summary(other.strategy)),
            fmt.duration(other.iteration_time_s),
            fmt.percent(slower),
            fmt.memory(other.memory_bytes),
        )
    return table


STOPS: Mapping[str, str] = {
    Binding.MEMORY: "no room for more sequences",
    Binding.TTFT: "more would miss its target",
    Binding.TPOT: "more would miss its target",
    Binding.CHUNKS: "every pass has its chunk of a prompt",
    Binding.BATCH: "the largest batch of the engine",
    Binding.LOAD: "no more requests arrive than it serves",
    Binding.NOTHING: "a larger batch would not serve more",
}


def print_serving(
    plan: ServingPlan,
    space: ServingSpace,
    trial: Trial | None,
    console: Console,
    cost: ServingCost | None = None,
) -> None:
    """Everything there is to say about a plan."""
    for table in serving_tables(plan, space, trial, cost):
        console.print(table)
        console.print()


def serving_tables(
    plan: ServingPlan, space: ServingSpace, trial: Trial | None, cost: ServingCost | None = None
) -> list[Table]:
    """The answer with what it costs, latencies, pools, and percentiles where requests were simulated."""
    tables = [_serving_answer(plan, space, cost), _latency(plan, space), _pools(plan)]
    return tables if trial is None else [*tables, _percentiles(trial)]


def _serving_answer(plan: ServingPlan, space: ServingSpace, cost: ServingCost | None) -> Table:
    traffic = space.traffic
    spent = (
        ()
        if cost is None
        else (
            ("cost per million output tokens", fmt.decimal(cost.cost_per_million_tokens_usd, "USD")),
            ("carbon per million output tokens", fmt.decimal(cost.carbon_per_million_tokens_kg, "kg CO2e")),
        )
    )
    table = plain_table(f"Serving {escape(space.workload)}: {_policy(plan)}", "", "")
    table.show_header = False
    table.columns[1].justify = "left"
    for label, value in (
        ("requests", f"{traffic.prompt_tokens:,} tokens in, {traffic.output_tokens:,} out"),
        ("throughput", f"{fmt.number(plan.tokens_per_s)} output tokens/s"),
        ("", f"{fmt.number(plan.requests_per_s)} requests/s"),
        ("per device in use", f"{fmt.number(plan.tokens_per_s_per_device)} output tokens/s"),
        ("devices in use", f"{plan.devices:,} of {plan.devices_given:,}"),
        ("energy per output token", fmt.decimal(plan.energy_per_token_j, "J")),
        *spent,
        ("MFU while prefilling", fmt.percent(plan.prefill_mfu)),
        ("limited by", f"{plan.binding.value}: {STOPS[plan.binding]}"),
    ):
        table.add_row(label, value)
    return table


def _policy(plan: ServingPlan) -> str:
    if plan.policy is Policy.CHUNKED:
        return f"{plan.policy.value}, {plan.chunk_tokens:,} prompt tokens a pass"
    return plan.policy.value


def _latency(plan: ServingPlan, space: ServingSpace) -> Table:
    table, targets = plain_table("Latency", "", "mean", "target"), space.targets
    whole = plan.ttft_s + plan.tpot_s * space.traffic.passes
    rows = [
        ("time to first token", plan.ttft_s, targets.ttft_s),
        ("  of it waiting", plan.waiting_s, None),
        ("time per output token after it", plan.tpot_s, targets.tpot_s),
        ("longest gap between two tokens", plan.longest_gap_s, None),
        ("cache from pool to pool", plan.transfer_s, None),
        ("whole request", whole, None),
    ]
    for label, seconds, target in rows:
        if seconds > 0:
            aim = fmt.duration(target) if target is not None and math.isfinite(target) else ""
            table.add_row(label, fmt.duration(seconds), aim)
    return table


def _pools(plan: ServingPlan) -> Table:
    shared = ["experts"] if any(pool.expert_parallel > 1 for pool in plan.pools) else []
    figures = "batch", "weights", "cache", "activations"
    table = plain_table("Replicas", "pool", "replicas", "tensor", "pipeline", *shared, *figures)
    for pool in plan.pools:
        table.add_row(
            pool.role.value,
            f"{pool.replicas:,}",
            str(pool.tensor_parallel),
            str(pool.pipeline_parallel),
            *(str(pool.expert_parallel) for _ in shared),
            fmt.number(pool.batch),
            *(fmt.memory(size) for size in (pool.weight_bytes, pool.cache_bytes, pool.working_bytes)),
        )
    return table


def _percentiles(trial: Trial) -> Table:
    table = plain_table(f"Simulated: {trial.requests:,} requests", "", "mean", "p50", "p90", "p99")
    for label, found in (("time to first token", trial.ttft), ("time per output token after it", trial.tpot)):
        table.add_row(label, *map(fmt.duration, astuple(found)))
    return table
