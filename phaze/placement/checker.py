"""Independent check of a plan: every figure worked out again from the definitions, sharing no code with the planner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, isclose

from phaze.placement.cluster import Cluster, FixedDegrees, Recompute
from phaze.placement.plan import Plan, StagePlan
from phaze.workload.work import Layer, LayerChain
from phaze.workload.workload import Numerics

TOLERANCE = 1e-9
"""Relative difference that counts as rounding."""


class PlanError(Exception):
    """A plan that breaks a rule or misstates a figure: a defect of the planner that made it."""


@dataclass(frozen=True, slots=True)
class Premises:
    """What a plan was made for: one chain on one architecture of one cluster.

    `forward_s`, `backward_s`: seconds of each unique layer; `memory_bytes` of one device; `link_bytes_per_s` per
    direction; `optimizer_s` seconds per parameter of one optimizer step.
    """

    chain: LayerChain
    forward_s: Sequence[float]
    backward_s: Sequence[float]
    numerics: Numerics
    cluster: Cluster
    memory_bytes: float
    link_bytes_per_s: float
    optimizer_s: float
    fixed: FixedDegrees


def check_plan(plan: Plan, premises: Premises) -> None:
    """Verify degrees, stages, recompute flags, memory, loads and the iteration time.

    Raises PlanError that says what is wrong.
    """
    check_mixed_plan(plan, [premises] * max(1, len(plan.stages)))


def check_mixed_plan(plan: Plan, premises: Sequence[Premises]) -> None:
    """The same of a pipeline whose stages may be of different architectures: the premises of each stage's own.

    They are for one chain on one cluster. Raises PlanError that says what is wrong.
    """
    _check_degrees(plan, premises[0])
    _check_cover(plan, len(premises[0].chain.index))
    _equal("number of stages", len(plan.stages), len(premises))
    depths = range(len(plan.stages), 0, -1)
    for depth, stage, own in zip(depths, plan.stages, premises, strict=True):
        _check_stage(plan, own, stage, depth)
    _check_iteration(plan, premises)


def _check_degrees(plan: Plan, premises: Premises) -> None:
    chain, cluster, fixed = premises.chain, premises.cluster, premises.fixed
    d, t, depth = plan.data_parallel, plan.tensor_parallel, len(plan.stages)
    _equal("microbatch size", plan.microbatch, chain.microbatch)
    _equal("tensor-parallel degree", t, chain.tensor_parallel)
    microbatches, rest = divmod(cluster.global_batch, plan.microbatch)
    _require(rest == 0, f"microbatches of {plan.microbatch} do not divide a batch of {cluster.global_batch}")
    _require(1 <= d <= microbatches, f"{d} pipelines for {microbatches} microbatches")
    _equal("microbatches per pipeline", plan.microbatches, -(-microbatches // d))
    _require(d * t * depth <= cluster.devices, f"{d} x {t} x {depth} devices of {cluster.devices}")
    domain = cluster.network.scale_up_devices
    _require(t <= domain, f"tensor-parallel degree {t} leaves the scale-up domain of {domain} devices")
    for what, wanted, got in (
        ("data-parallel degree", fixed.data_parallel, d),
        ("tensor-parallel degree", fixed.tensor_parallel, t),
        ("pipeline-parallel degree", fixed.pipeline_parallel, depth),
        ("microbatch size", fixed.microbatch, plan.microbatch),
        ("recompute", fixed.recompute, plan.recompute),
    ):
        _require(wanted in (None, got), f"{what} is {got}, fixed at {wanted}")


def _check_cover(plan: Plan, layers: int) -> None:
    covered = [layer for stage in plan.stages for layer in range(stage.first, stage.last + 1)]
    empty = any(stage.last < stage.first for stage in plan.stages)
    _require(
        covered == list(range(layers)) and not empty, f"the stages do not cover {layers} layers once in order"
    )


def _check_stage(plan: Plan, premises: Premises, stage: StagePlan, depth: int) -> None:
    """`depth`: number of stages from this one to the end, itself included."""
    where = f"stage of layers {stage.first} to {stage.last}: "
    layers = _layers(premises, stage)
    in_flight, limit = min(depth, plan.microbatches), premises.memory_bytes
    caches = plan.microbatches if premises.chain.keeps_cache else 1
    cache_bytes = caches * sum(layer.cache_bytes for layer in layers)
    kept = cache_bytes + _peak_bytes(premises, layers, in_flight, recompute=False)
    everywhere = premises.fixed.recompute is Recompute.FULL
    if plan.recompute is not Recompute.FULL or depth > 1 or everywhere:
        expected = plan.recompute is Recompute.FULL
    else:  # the last stage never recomputes unless it must; at the very limit rounding may decide
        expected = stage.recompute if isclose(kept, limit, rel_tol=TOLERANCE) else kept > limit
    _require(stage.recompute == expected, f"{where}recompute is {stage.recompute}, not {expected}")
    peak = cache_bytes + _peak_bytes(premises, layers, in_flight, stage.recompute)
    _close(f"{where}memory", stage.memory_bytes, peak)
    _require(peak <= limit * (1 + TOLERANCE), f"{where}{peak} bytes do not fit into {limit}")
    _equal(f"{where}parameters", stage.parameters, sum(layer.parameters for layer in layers))
    _close(f"{where}transfers", stage.transfer_s, _transfer_s(plan, premises, stage))
    _close(f"{where}load", stage.load_s, _work_s(premises, stage) + stage.transfer_s)


def _layers(premises: Premises, stage: StagePlan) -> list[Layer]:
    return [premises.chain.layers[i] for i in premises.chain.index[stage.first : stage.last + 1]]


def _peak_bytes(premises: Premises, layers: list[Layer], in_flight: int, recompute: bool) -> float:
    """State, what the microbatches in flight keep, and the layer that needs most while it runs."""
    state = premises.numerics.state_bytes * sum(layer.parameters for layer in layers)
    if recompute:
        kept = sum(layer.input_bytes for layer in layers)
        return state + in_flight * kept + max(layer.saved_bytes + layer.working_bytes for layer in layers)
    kept = sum(layer.saved_bytes for layer in layers)
    return state + in_flight * kept + max(layer.working_bytes for layer in layers)


def _work_s(premises: Premises, stage: StagePlan) -> float:
    """One layer after the other, the forward pass twice where it is recomputed."""
    unique = premises.chain.index[stage.first : stage.last + 1]
    passes = 2 if stage.recompute else 1
    return sum(passes * premises.forward_s[i] + premises.backward_s[i] for i in unique)


def _transfer_s(plan: Plan, premises: Premises, stage: StagePlan) -> float:
    """Tensors and gradients over both ends of a stage; each group's devices send a share and gather the rest."""
    chain, t = premises.chain, plan.tensor_parallel
    bandwidth, latency_s = _tier(premises, plan.data_parallel * t * len(plan.stages))
    inside, inside_latency_s = _tier(premises, t)
    ways = 2 if _training(premises) else 1
    total = 0.0
    for before in (stage.first, stage.last + 1):
        if before in (0, len(chain.index)):
            continue
        tensor = chain.layers[chain.index[before - 1]].output_bytes
        total += ways * (_seconds(tensor / t, bandwidth) + latency_s)
        total += _seconds(tensor * (t - 1) / t, inside) + (t - 1) * inside_latency_s
    return total


def _check_iteration(plan: Plan, premises: Sequence[Premises]) -> None:
    """Slowest stage in every slot, then whichever stage takes longest to reduce gradients and to step."""
    tails = [_tail_s(plan, stage, own) for stage, own in zip(plan.stages, premises, strict=True)]
    reduction_s, optimizer_s = max(tails, key=sum)
    slots = plan.microbatches + len(plan.stages) - 1
    pipeline_s = slots * max(stage.load_s for stage in plan.stages)
    scale = pipeline_s + reduction_s + optimizer_s
    _close("gradient reduction", plan.reduction_s, reduction_s, scale)
    _close("optimizer step", plan.optimizer_s, optimizer_s, scale)
    _close("iteration time", plan.iteration_s, scale)


def _tail_s(plan: Plan, stage: StagePlan, premises: Premises) -> tuple[float, float]:
    """Ring all-reduce of a stage's gradients over its replicas, and its optimizer step."""
    d, numerics = plan.data_parallel, premises.numerics
    bandwidth, latency_s = _tier(premises, d * plan.tensor_parallel)
    reduction_s = _seconds(2 * (d - 1) / d * stage.parameters * numerics.gradient_bytes, bandwidth)
    if numerics.gradient_bytes > 0:
        reduction_s += 2 * (d - 1) * latency_s
    return reduction_s, stage.parameters * premises.optimizer_s if _training(premises) else 0.0


def _training(premises: Premises) -> bool:
    return any(layer.backward is not None for layer in premises.chain.layers)


def _tier(premises: Premises, span: int) -> tuple[float, float]:
    """Bandwidth and latency between the devices of a group that spans so many neighbours."""
    tiers = premises.cluster.network.tiers
    fitting = [tier for tier in tiers if tier.devices is None or tier.devices >= span]
    tier = fitting[0] if fitting else tiers[-1]
    own = tier.bandwidth_bytes_per_s
    stated = premises.link_bytes_per_s if own is None else own
    return stated * tier.law.efficiency / tier.oversubscription, tier.law.step_s


def _seconds(sent_bytes: float, bytes_per_s: float) -> float:
    if sent_bytes == 0:
        return 0.0
    return sent_bytes / bytes_per_s if bytes_per_s > 0 else inf


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise PlanError(otherwise)


def _equal(what: str, got: int, expected: int) -> None:
    _require(got == expected, f"{what} is {got}, not {expected}")


def _close(what: str, got: float, expected: float, scale: float = 0.0) -> None:
    near = isclose(got, expected, rel_tol=TOLERANCE, abs_tol=TOLERANCE * scale)
    _require(near, f"{what} is {got}, not {expected}")
