"""The serving document: what `dse plan serving` prints with `--json`."""

from __future__ import annotations

import math
from dataclasses import asdict, fields
from datetime import UTC, datetime
from typing import Any

from pydantic import ConfigDict, Field

from phaze.document_names import DocumentName
from phaze.explore.documents.document_record import Record
from phaze.explore.documents.engine_commands import start_commands
from phaze.explore.documents.result_document import Certificate, Manifest
from phaze.explore.documents.result_manifest import manifest
from phaze.explore.request.search_progress import Clock
from phaze.hardware.architecture import Architecture, to_table
from phaze.hardware.economics.cluster_rates import cluster_rates
from phaze.hardware.economics.economic_figures import Economics
from phaze.hardware.silicon.die_area import area_mm2
from phaze.hardware.silicon.package_power import tdp_w
from phaze.parallel.serving import ServingPlan, ServingSpace, best_of
from phaze.parallel.serving.serving_plan import Role
from phaze.parallel.serving.serving_trial import Trial, trial

SERVING_SCHEMA = DocumentName.SERVING.version(2)
_MILLION = 1e6


class _Figures(Record):
    """Figures read from an object of the model."""

    model_config = ConfigDict(from_attributes=True, defer_build=True)


class PoolFigures(_Figures):
    """Equal replicas; figures of one, memory of its fullest device."""

    role: str
    replicas: int
    tensor_parallel: int
    pipeline_parallel: int
    expert_parallel: int = Field(1, description="replicas that share the experts of the model")
    context_parallel: int = Field(
        1, description="devices of a tensor group that hold the cache of a part of the tokens each"
    )
    redundant_experts: int = Field(0, description="copies of experts that such replicas keep, all together")
    devices: int = Field(description="of all replicas")
    batch: float = Field(description="sequences of a decode pass, or prompts of a prefill pass, on average")
    sequences: float = Field(description="that a replica works on at once")
    weight_bytes: float
    cache_bytes: float
    working_bytes: float = Field(description="activations")
    memory_bytes: float
    chip: str = Field("", description="architecture")
    clock_hz: float = Field(
        0.0, description="sustained; below the chip's own where a cap on power holds it down"
    )
    drawn_w: float = Field(0.0, description="W of a device, on average")
    energy_per_token_j: float = Field(
        0.0, description="all devices of the pool, per output token of all pools"
    )


class ServingFigures(_Figures):
    """How the model is served, and what that gives; rates are those of all devices."""

    policy: str = Field(description="prefill first, chunked prefill or disaggregated")
    pools: list[PoolFigures]
    chunk_tokens: int = Field(description="tokens that one pass takes of a prompt")
    prompts_per_pass: int = Field(1, description="prompts that one pass takes such tokens of, at most")
    cached_share: float = Field(0.0, description="of prompt tokens, found in the prefix cache")
    loaded_share: float = Field(0.0, description="of prompt tokens, the part of these read from hosts")
    tokens_per_pass: float = Field(
        1.0, description="output tokens of a sequence in a decode pass, guessed ones included"
    )
    ttft_s: float = Field(description="time to first token, mean")
    waiting_s: float = Field(description="the part of it before the prefill begins")
    tpot_s: float = Field(description="time per output token after the first, mean")
    longest_gap_s: float = Field(description="between two tokens")
    transfer_s: float = Field(description="cache of a prompt from pool to pool, a part of tpot_s")
    requests_per_s: float
    tokens_per_s: float = Field(description="output tokens")
    tokens_per_s_per_device: float = Field(description="of the devices in use")
    energy_per_token_j: float = Field(description="all devices in use, per output token")
    prefill_mfu: float = Field(description="model FLOPs of a prompt over the peak during its prefill")
    devices: int = Field(description="in use")
    devices_given: int
    binding: str = Field(description="what keeps the plan from serving more")


class PercentileFigures(_Figures):
    """Mean and percentiles over simulated requests."""

    mean_s: float
    p50_s: float
    p90_s: float
    p99_s: float


class TrialFigures(_Figures):
    """Simulated latencies."""

    requests: int
    ttft: PercentileFigures
    tpot: PercentileFigures


class ServingCost(Record):
    """Money, emissions and energy of a million output tokens, all devices in use with hosts, network and building."""

    cost_per_million_tokens_usd: float
    carbon_per_million_tokens_kg: float
    energy_per_million_tokens_j: float = Field(description="on site: hosts, network and cooling included")
    cost_parts_usd: dict[str, float] = Field(
        description="by part, as of a training run; they sum to the cost"
    )
    carbon_parts_kg: dict[str, float] = Field(
        description="by part, as of a training run; they sum to the carbon"
    )
    energy_parts_j: dict[str, float] = Field(
        description="accelerators, hosts, network and cooling of the site"
    )


class EngineStart(Record):
    """Command that starts the replicas of a pool with an engine."""

    engine: str = Field(description="vllm, sglang or tensorrt-llm")
    role: str = Field(description="of the pool")
    copies: int = Field(description="times that it is started: replicas, or groups that share experts")
    command: str = Field(description="the weights are $MODEL")


class ServedChip(Record):
    """Architecture that was found for a service."""

    id: str = Field(description="short stable name of the architecture within its space")
    architecture: dict[str, Any] = Field(description="hardware fields, as in an architecture YAML file")
    area_mm2: float
    tdp_w: float
    tokens_per_s_per_w: float = Field(
        description="output tokens per second over the TDP of the devices in use"
    )


class NextService(Record):
    """Architecture that comes after the best, with what its best plan gives."""

    id: str
    area_mm2: float
    tdp_w: float
    objective_value: float = Field(description="as the certificate tells it: more is better")
    tokens_per_s: float = Field(description="output tokens of all devices in use")
    devices: int = Field(description="in use")


class PoolChip(Record):
    """Architecture of the pools of one role."""

    id: str = Field(description="short stable name of the architecture within its space")
    role: str = Field(description="prefill or decode")
    devices: int = Field(description="of these pools")
    tdp_w: float
    area_mm2: float
    architecture: dict[str, Any] = Field(description="hardware fields, as in an architecture YAML file")


class SecondDesign(Record):
    """What designing a second chip costs beside what it saves: the pair in the place of a fleet of the best one chip.

    Both fleets make as many tokens. Costs are of a million of them, over the lifetime, interest included.
    """

    extra_usd: float = Field(description="design and mask sets of the two chips beyond those of the one")
    volume_chips: float = Field(description="of the one chip, whose place the pair takes (`--volume`)")
    must_save_per_million_tokens_usd: float = Field(
        description="what the extra comes to on a million tokens of that fleet"
    )
    saved_per_million_tokens_usd: float = Field(
        description="what the pair saves of all else; negative where it costs more"
    )
    pays: bool = Field(description="whether it saves what it must, at that volume")
    pays_from_chips: float | None = Field(
        description="volume of the one chip from which it pays; null where it saves nothing"
    )


class TwoChips(Record):
    """The best with one chip for prefill pools and one for decode pools: `best` of the document where no pair is
    better, and then without chips.
    """

    objective_value: float = Field(description="as the certificate tells it: more is better")
    gain: float = Field(description="over the best one chip for both phases: what the second one buys")
    upper_bound: float = Field(description="that no pair exceeds")
    gap: float = Field(description="(upper_bound - objective_value) / objective_value")
    optimal: bool
    chips: list[PoolChip] = Field(description="empty where a second chip buys nothing")
    best: ServingFigures | None = Field(description="the plan of the pair; null likewise")
    cost: ServingCost | None = Field(
        description="each design at the volume that was given; null likewise, or where the dies fit on no wafer"
    )
    starts: list[EngineStart] = Field(description="commands of serving engines")
    second_design: SecondDesign | None = Field(
        description="null where there is no cost, and for rented devices"
    )
    worked_out: dict[str, int] = Field(description="architectures whose pools were worked out, by role")
    pairs_worked_out: int = Field(description="pairs of pools of two architectures")
    scope: list[str] = Field(description="what the bound speaks of, beside the certificate's scope")


class ServingDocument(Record):
    """What was asked, the best plan, what it costs, and its simulation where one was asked for.

    Of `dse run --serve` also the chip, the proof that no other one is better, and the chips after it.
    """

    schema_: str = Field(default=SERVING_SCHEMA, alias="schema")
    request: dict[str, Any]
    best: ServingFigures
    cost: ServingCost | None = Field(None, description="none where the dies fit on no wafer")
    simulation: TrialFigures | None
    starts: list[EngineStart] = Field(default_factory=list, description="commands of serving engines")
    chip: ServedChip | None = Field(
        None, description="the architecture that was found; null where one was given"
    )
    certificate: Certificate | None = Field(
        None, description="how far another one could be better; null likewise"
    )
    next_best: list[NextService] = Field(
        default_factory=list,
        description="the best evaluated architectures after it, one of every kind: chips with the same power and area "
        "have their cores in other groups",
    )
    two_chips: TwoChips | None = Field(
        None, description="the best chip for prefill and the best for decode, where two were asked for"
    )
    manifest: Manifest


def serve(
    space: ServingSpace, simulate: int | None = None, seed: int = 0, economics: Economics | None = None
) -> tuple[ServingPlan, Trial | None, ServingDocument]:
    """The best plan of a space, `simulate` requests through it, and both as a document.

    `economics`: figures behind money and carbon, as shipped unless given. Raises as `best_serving_plan`; InputError
    for a simulation without an arrival rate.
    """
    started, clock = datetime.now(UTC), Clock(math.inf)
    plan = best_of(space)
    tried = None if simulate is None else trial(plan, space, simulate, seed)
    document = ServingDocument(
        request=serving_request(space) | {"economics": dict((economics or Economics()).given)},
        best=ServingFigures.model_validate(plan),
        cost=serving_cost(plan, space, economics or Economics()),
        simulation=None if tried is None else TrialFigures.model_validate(tried),
        starts=engine_starts(plan, space),
        manifest=manifest(started, clock.elapsed_s, seed),
    )
    return plan, tried, document


def engine_starts(plan: ServingPlan, space: ServingSpace) -> list[EngineStart]:
    """How engines are started to serve by a plan."""
    return [
        EngineStart(
            engine=engine,
            role=pool.role.value,
            copies=pool.replicas // pool.expert_parallel,
            command=command,
        )
        for engine, pool, command in start_commands(plan, space.traffic, space.options)
    ]


def serving_cost(plan: ServingPlan, space: ServingSpace, economics: Economics) -> ServingCost | None:
    """Rates of a cluster of the devices in use, at work for a million output tokens.

    Seconds are a million over tokens per second, joules a million times those of a token: a device of a replica that
    waits for requests is paid for, one beyond the plan is not. Pools of two kinds of chip are one cluster, over whose
    network caches are handed over: a device has its share of that of all.
    """
    seconds, every = _MILLION / plan.tokens_per_s, list[tuple[dict[str, float], ...]]()
    for chip, devices, token_j in _clusters(plan, space):
        table = to_table([chip])
        rates = cluster_rates(table, area_mm2(table), tdp_w(table), plan.devices, space.network, economics)
        own_s = seconds * devices / plan.devices
        each = (of.parts(own_s, _MILLION * token_j) for of in (rates.usd, rates.kg, rates.joules))
        every.append(tuple({name: float(part[0]) for name, part in parts.items()} for parts in each))
    usd, kg, site = (
        {name: math.fsum(one[name] for one in of) for name in of[0]} for of in zip(*every, strict=True)
    )
    if not all(map(math.isfinite, (*usd.values(), *kg.values()))):
        return None
    return ServingCost(
        cost_per_million_tokens_usd=math.fsum(usd.values()),
        carbon_per_million_tokens_kg=math.fsum(kg.values()),
        energy_per_million_tokens_j=math.fsum(site.values()),
        cost_parts_usd=usd,
        carbon_parts_kg=kg,
        energy_parts_j=site,
    )


def _clusters(plan: ServingPlan, space: ServingSpace) -> list[tuple[Architecture, int, float]]:
    """Chips, devices of each, and their joules for an output token."""
    if space.pool_chips is None:
        return [(space.architecture, plan.devices, plan.energy_per_token_j)]
    return [
        (space.chip_at(pool.role, pool.clock_hz), pool.devices, pool.energy_per_token_j)
        for pool in plan.pools
    ]


def serving_request(space: ServingSpace) -> dict[str, Any]:
    """What was asked of a service, every default spelled out."""
    targets = {f"max_{name}": value for name, value in asdict(space.targets).items()}
    load = {f.name: getattr(space.traffic, f.name) for f in fields(space.traffic) if f.name != "recorded"}
    return {
        "workload": space.workload,
        "architecture": space.architecture.name,
        **_pool_chips(space),
        "devices": space.devices,
        "network": space.network.name,
        **load,
        "recorded_requests": None if space.traffic.recorded is None else len(space.traffic.recorded.prompts),
        **{name: value if math.isfinite(value) else None for name, value in targets.items()},
        **asdict(space.options),
        "engine": space.options.engine.name,
    }


def _pool_chips(space: ServingSpace) -> dict[str, Any]:
    """Chips and caps of pools, where they are told."""
    if space.pool_chips is None:
        return {}
    caps = {f"{role}_power_w": space.pool_chips.cap_w(role) for role in (Role.PREFILL, Role.DECODE)}
    told = {name: value if math.isfinite(value) else None for name, value in caps.items()}
    return {"decode_architecture": space.chip_of(Role.DECODE).name, **told}
