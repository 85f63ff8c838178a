"""One stage of a plan, evaluated literally: its time per microbatch, its reduction and its memory."""

from __future__ import annotations

from dataclasses import dataclass

from phaze.solvers.placement.general.problem import GeneralProblem, Model, Recompute, Reduced, Transfers
from phaze.solvers.placement.general.result import GeneralStage


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
