"""Independent evaluation of a plan, stage by stage: placement-2.md read literally, sharing nothing with the search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from phaze.solvers.placement.chain.chain_checker import PlanError
from phaze.solvers.placement.general.general_problem import (
    GeneralProblem,
    GeneralStage,
    Model,
    Recompute,
    Reduced,
    Schedule,
    Transfers,
)


@dataclass(frozen=True)
class StageTimes:
    """Seconds per microbatch of the forward pass, the backward pass and late weight gradients; and per batch
    of the gradient reduction."""

    forward_s: float
    backward_s: float
    late_s: float
    reduction_s: float


def model_of(problem: GeneralProblem, stage: GeneralStage) -> Model:
    """The layers as they are on the stage's devices; raises LookupError if the instance does not have them."""
    for model in problem.models:
        name = problem.device_types[model.device_type].name
        if (name, model.tensor_parallel) == (stage.device_type, stage.tensor_parallel):
            return model
    raise LookupError(f"no model of {stage.device_type!r} at tensor-parallel width {stage.tensor_parallel}")


def stage_times(problem: GeneralProblem, data_parallel: int, stage: GeneralStage) -> StageTimes:
    """Times of one stage by the rules of placement-2.md."""
    model, inside = model_of(problem, stage), _positions(problem, stage)
    late = problem.schedule.zero_bubble
    backward = {v: model.input_gradient_s[v] + (0.0 if late else model.weight_gradient_s[v]) for v in inside}
    recomputed = sum(model.forward_s[v] for v in inside) if stage.recompute is Recompute.FULL else 0.0
    forward_s = _pass(problem, model, inside, {v: model.forward_s[v] for v in inside}, 0.0, backwards=False)
    backward_s = _pass(problem, model, inside, backward, recomputed, backwards=True)
    late_s = sum(model.weight_gradient_s[v] for v in inside) if late else 0.0

    # A reduce-scatter or an all-gather over the d replicas: half an all-reduce.
    parameters = sum(model.parameter_bytes[v] for v in inside)
    share = (data_parallel - 1) / data_parallel
    half_s = (
        problem.conventions.reduction_factor / 2 * share * parameters / problem.link_bandwidth_bytes_per_s
    )
    if stage.zero == 3:
        forward_s += half_s
        backward_s += half_s if stage.recompute is Recompute.NONE else 2 * half_s
    if stage.zero >= 2:
        late_s += half_s if late else 0.0
        backward_s += 0.0 if late else half_s
    fed = any(v in inside and u not in inside for u, v in problem.edges)
    counted = problem.conventions.reduced is Reduced.EVERY or not fed
    halves = {0: 2, 1: 2, 2: 1, 3: 0}[stage.zero] if counted else 0
    return StageTimes(forward_s, backward_s, late_s, halves * half_s)


def stage_bytes(
    problem: GeneralProblem, data_parallel: int, stage: GeneralStage, held: int, late: int
) -> float:
    """Memory of one device that holds `held` microbatches until their backward pass and `late` ones after it."""
    model, inside = model_of(problem, stage), _positions(problem, stage)
    parameters = sum(model.parameter_bytes[v] for v in inside)
    activations = sum(model.activation_bytes[v] for v in inside)
    states = problem.optimizer_state_ratio * parameters
    gradients = weights = parameters
    if stage.zero >= 1:
        states /= data_parallel
    if stage.zero >= 2:
        gradients /= data_parallel
    if stage.zero >= 3:
        largest = max(model.parameter_bytes[v] for v in inside)
        weights = parameters / data_parallel + largest * (data_parallel - 1) / data_parallel
    stash = activations
    if stage.recompute is Recompute.FULL:
        edges = zip(problem.edges, model.boundary_bytes, strict=True)
        stash = sum(size for (u, v), size in edges if v in inside and u not in inside)
    return weights + gradients + states + activations * (1 + late) + (held - 1) * stash


def _positions(problem: GeneralProblem, stage: GeneralStage) -> list[int]:
    """The stage's layers as positions in topological order."""
    return sorted(problem.layer_ids.index(layer) for layer in stage.layers)


def _pass(
    problem: GeneralProblem,
    model: Model,
    inside: list[int],
    latency_s: dict[int, float],
    recomputed_s: float,
    *,
    backwards: bool,
) -> float:
    """Seconds from the start of a pass, a preceding recomputation included, to its last layer."""
    transfers = problem.conventions.transfers
    arrival_s = dict.fromkeys(inside, 0.0)
    crossing_s = 0.0
    for (u, v), size in zip(problem.edges, model.boundary_bytes, strict=True):
        if (u in arrival_s) != (v in arrival_s):
            seconds = size / problem.link_bandwidth_bytes_per_s
            crossing_s += seconds
            receiver = u if backwards else v
            if receiver in arrival_s:
                arrival_s[receiver] = max(arrival_s[receiver], seconds)
    now = recomputed_s
    for v in reversed(inside) if backwards else inside:
        if transfers is Transfers.OVERLAPPED:
            now = max(now, arrival_s[v])
        now += latency_s[v]
    return now + (crossing_s if transfers is Transfers.EXPOSED else 0.0)


def general_plan_time(problem: GeneralProblem, data_parallel: int, stages: Sequence[GeneralStage]) -> float:
    """Seconds per batch of a plan, stages in topological order.

    Raises:
        PlanError: layers, order, options, devices or memory do not admit the plan.
    """
    if not 1 <= data_parallel <= problem.microbatches_per_batch:
        raise PlanError(f"data-parallel degree {data_parallel} is out of range")
    microbatches = -(-problem.microbatches_per_batch // data_parallel)
    depths = _depths(problem, stages)
    _check_devices(problem, data_parallel, stages)
    for stage, depth in zip(stages, depths, strict=True):
        _check_options(problem, stage, _in_flight(problem, microbatches, depth, max(depths)))
        _check_memory(problem, data_parallel, stage, depth, max(depths))
    return _batch_s(problem, microbatches, max(depths), data_parallel, stages)


def _depths(problem: GeneralProblem, stages: Sequence[GeneralStage]) -> list[int]:
    """Stages on the longest path from each stage to the end, itself included; interleaved: place from the end."""
    home = {layer: i for i, stage in enumerate(stages) for layer in stage.layers}
    if sorted(layer for stage in stages for layer in stage.layers) != sorted(problem.layer_ids):
        raise PlanError("the stages do not hold every layer once")
    if not all(stage.layers for stage in stages):
        raise PlanError("a stage has no layer")
    links = {(home[problem.layer_ids[u]], home[problem.layer_ids[v]]) for u, v in problem.edges}
    if any(i > j for i, j in links):
        raise PlanError("a stage feeds an earlier one")
    if problem.schedule is Schedule.INTERLEAVED:
        return list(range(len(stages), 0, -1))
    depths = [1] * len(stages)
    for i in reversed(range(len(stages))):
        depths[i] = 1 + max((depths[k] for j, k in links if j == i and k != i), default=0)
    return depths


def _check_devices(problem: GeneralProblem, data_parallel: int, stages: Sequence[GeneralStage]) -> None:
    """Models exist, every stage has the devices it must have, and no device type is overdrawn."""
    used = {known.name: 0 for known in problem.device_types}
    interleaved = problem.schedule is Schedule.INTERLEAVED
    for stage in stages:
        try:
            sharded = model_of(problem, stage).is_tensor_parallel
        except LookupError as error:
            raise PlanError(str(error)) from error
        layers = problem.layer_ids if interleaved else stage.layers
        wide = any(sharded[problem.layer_ids.index(layer)] for layer in layers)
        expected = stage.tensor_parallel if wide else 1
        if stage.devices != expected:
            raise PlanError(
                f"a stage of layers {stage.layers} runs on {expected} devices, not {stage.devices}"
            )
        used[stage.device_type] += stage.devices
    if problem.uniform_width and len({stage.tensor_parallel for stage in stages}) > 1:
        raise PlanError("the stages have several tensor-parallel widths")
    if interleaved:
        if len({(stage.device_type, stage.tensor_parallel) for stage in stages}) > 1:
            raise PlanError("interleaved stages have one device type and one width")
        if len(stages) % problem.virtual_stages:
            raise PlanError(
                f"{len(stages)} stages do not divide into {problem.virtual_stages} for each device"
            )
    for known in problem.device_types:
        if data_parallel * used[known.name] > known.count * problem.virtual_stages:
            raise PlanError(f"the plan needs more devices of type {known.name!r} than there are")


def _in_flight(problem: GeneralProblem, microbatches: int, depth: int, deepest: int) -> int:
    """Microbatches that await their backward pass at a stage, at most."""
    held = {Schedule.GPIPE: microbatches, Schedule.ZB_H2: 2 * depth - 1}.get(problem.schedule, depth)
    if problem.schedule is Schedule.INTERLEAVED:
        groups = deepest // problem.virtual_stages
        whole, rest = divmod(2 * depth - 1, deepest)
        held = groups * whole + min(groups, rest)
    return min(held, microbatches) if problem.conventions.in_flight_capped else held


def _late(problem: GeneralProblem, microbatches: int, depth: int, deepest: int) -> int:
    """Microbatches that await their weight gradients alone."""
    if not problem.schedule.zero_bubble:
        return 0
    return _in_flight(problem, microbatches, deepest, deepest) - _in_flight(
        problem, microbatches, depth, deepest
    )


def _check_options(problem: GeneralProblem, stage: GeneralStage, held: int) -> None:
    """The instance offers what the stage does; a stage that holds one microbatch has nothing to recompute."""
    if stage.zero not in problem.zero:
        raise PlanError(f"ZeRO stage {stage.zero} is no choice")
    allowed = problem.recompute if held > 1 else (Recompute.NONE,)
    if stage.recompute not in allowed:
        raise PlanError(f"recompute {stage.recompute.value!r} is no choice for a stage that holds {held}")


def _check_memory(
    problem: GeneralProblem, data_parallel: int, stage: GeneralStage, depth: int, deepest: int
) -> None:
    microbatches = -(-problem.microbatches_per_batch // data_parallel)
    held = _in_flight(problem, microbatches, depth, deepest)
    needed = stage_bytes(problem, data_parallel, stage, held, _late(problem, microbatches, depth, deepest))
    device = next(known for known in problem.device_types if known.name == stage.device_type)
    # Sums differ in the last bit with their order.
    if needed * problem.virtual_stages > device.memory_bytes * (1 + 1e-12):
        raise PlanError(f"a stage of layers {stage.layers} does not fit in the memory of its devices")


def _batch_s(
    problem: GeneralProblem,
    microbatches: int,
    depth: int,
    data_parallel: int,
    stages: Sequence[GeneralStage],
) -> float:
    """Seconds per batch: the slowest of each kind of work in every slot, then the longest reduction."""
    times = [stage_times(problem, data_parallel, stage) for stage in stages]
    forward = max(t.forward_s for t in times)
    backward = max(t.backward_s for t in times)
    late = max(t.late_s for t in times)
    reduction = max(t.reduction_s for t in times)
    n, fill = microbatches, depth - 1
    if problem.schedule is Schedule.ONE_F_ONE_B:
        return (n + fill) * max(t.forward_s + t.backward_s for t in times) + reduction
    if problem.schedule is Schedule.GPIPE:
        return (n + fill) * (forward + backward) + reduction
    if problem.schedule is Schedule.INTERLEAVED:
        v = problem.virtual_stages
        groups = depth // v
        rounded = groups * -(-n // groups)
        return (rounded * v + groups - 1) * (forward + backward) + v * reduction
    moved = min(fill if problem.schedule is Schedule.ZB_H1 else 2 * fill, n - 1)
    bubble = max(0.0, fill * (forward + backward) - moved * late)
    return n * (forward + backward + late) + bubble + reduction
