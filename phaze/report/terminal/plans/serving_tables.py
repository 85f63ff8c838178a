"""Serving plans as tables: the policy, what it costs, latencies and pools."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import astuple

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from phaze.explore.documents.serving_document import ServingCost
from phaze.parallel.serving import Binding, Policy, ServingPlan, ServingSpace
from phaze.parallel.serving.serving_trial import Trial
from phaze.report import number_format as fmt
from phaze.report.terminal.design_tables import plain_table

STOPS: Mapping[str, str] = {
    Binding.MEMORY: "no room for more sequences",
    Binding.TTFT: "more would miss its target",
    Binding.TPOT: "more would miss its target",
    Binding.CHUNKS: "every pass has its chunk of a prompt",
    Binding.BATCH: "the largest batch of the engine",
    Binding.POWER: "more would draw more than the cap",
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
    if space.pool_chips is not None:
        tables.append(_pool_chips(plan))
    return tables if trial is None else [*tables, _percentiles(trial)]


def _serving_answer(plan: ServingPlan, space: ServingSpace, cost: ServingCost | None) -> Table:
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
        ("requests", _requests(space)),
        *_known(plan),
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


def _requests(space: ServingSpace) -> str:
    load = space.traffic
    sizes = f"{load.prompt_tokens:,} tokens in, {load.output_tokens:,} out"
    return sizes if load.recorded is None else f"{len(load.recorded.prompts):,} recorded, {sizes} on average"


def _known(plan: ServingPlan) -> Iterator[tuple[str, str]]:
    """What need not be computed, and what is guessed."""
    if plan.cached_share:
        host = f", {fmt.percent(plan.loaded_share)} read from hosts" if plan.loaded_share else ""
        yield "found in the prefix cache", f"{fmt.percent(plan.cached_share)} of prompt tokens{host}"
    if plan.tokens_per_pass > 1:
        yield "tokens of a decode pass", f"{fmt.number(plan.tokens_per_pass)} of each sequence"
    for pool in plan.pools:
        if pool.redundant_experts:
            yield "copies of experts", f"{pool.redundant_experts:,} among {pool.expert_parallel:,} replicas"


def _policy(plan: ServingPlan) -> str:
    if plan.policy is Policy.CHUNKED:
        return f"{plan.policy.value}, {plan.chunk_tokens:,} prompt tokens a pass"
    return plan.policy.value


def _latency(plan: ServingPlan, space: ServingSpace) -> Table:
    table, targets = plain_table("Latency", "", "mean", "target"), space.targets
    whole = plan.ttft_s + plan.tpot_s * space.traffic.later_tokens
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
    parts = ["cache parts"] if any(pool.context_parallel > 1 for pool in plan.pools) else []
    figures = "batch", "weights", "cache", "activations"
    table = plain_table("Replicas", "pool", "replicas", "tensor", "pipeline", *shared, *parts, *figures)
    for pool in plan.pools:
        table.add_row(
            pool.role.value,
            f"{pool.replicas:,}",
            str(pool.tensor_parallel),
            str(pool.pipeline_parallel),
            *(str(pool.expert_parallel) for _ in shared),
            *(str(pool.context_parallel) for _ in parts),
            fmt.number(pool.batch),
            *(fmt.memory(size) for size in (pool.weight_bytes, pool.cache_bytes, pool.working_bytes)),
        )
    return table


def _pool_chips(plan: ServingPlan) -> Table:
    table = plain_table("Chips", "pool", "chip", "clock", "W drawn", "J per output token")
    for pool in plan.pools:
        clock = fmt.decimal(pool.clock_hz / 1e9, "GHz")
        figures = fmt.number(pool.drawn_w), fmt.number(pool.energy_per_token_j)
        table.add_row(pool.role.value, escape(pool.chip), clock, *figures)
    return table


def _percentiles(trial: Trial) -> Table:
    table = plain_table(f"Simulated: {trial.requests:,} requests", "", "mean", "p50", "p90", "p99")
    for label, found in (("time to first token", trial.ttft), ("time per output token after it", trial.tpot)):
        table.add_row(label, *map(fmt.duration, astuple(found)))
    return table
