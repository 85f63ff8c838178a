"""Independent evaluation of a plan: placement.md read literally, sharing nothing with the search."""

from __future__ import annotations

from collections.abc import Sequence

from phaze.solvers.placement.chain.chain_problem import Optimizer, PlacementProblem, Stage, WidthModel


class PlanError(ValueError):
    """The plan breaks a rule of the instance."""


class _Edges:
    """The edges by end: (source, bytes) into each layer and (target, bytes) out of it."""

    def __init__(self, model: WidthModel) -> None:
        self.into: list[list[tuple[int, float]]] = [[] for _ in model.forward_s]
        self.out_of: list[list[tuple[int, float]]] = [[] for _ in model.forward_s]
        for source, target, size in model.edges:
            self.into[target].append((source, size))
            self.out_of[source].append((target, size))


def plan_time(
    problem: PlacementProblem, tensor_parallel: int, data_parallel: int, stages: Sequence[Stage]
) -> float:
    """Seconds per batch of a plan, first stage first.

    Raises:
        PlanError: layers, devices or memory do not admit the plan.
    """
    models = [model for model in problem.models if model.tensor_parallel == tensor_parallel]
    if not models:
        raise PlanError(f"the instance has no tensor-parallel width {tensor_parallel}")
    if tuple(layer for stage in stages for layer in stage.layers) != problem.layer_ids:
        raise PlanError("the stages do not hold every layer once, in order")
    _check_devices(problem, models[0], data_parallel, stages)
    edges = _Edges(models[0])
    worst, first = 0.0, 0
    for number, stage in enumerate(stages):
        last = first + len(stage.layers) - 1
        worst = max(worst, _load(problem, models[0], edges, first, last, len(stages) - number))
        first = last + 1
    microbatches = -(-problem.microbatches_per_batch // data_parallel)
    reduced = sum(models[0].parameter_bytes[: len(stages[0].layers)])
    resync = 4 * (data_parallel - 1) * reduced / problem.link_bandwidth_bytes_per_s / data_parallel
    time_s: float = worst * (microbatches + len(stages) - 1) + resync
    return time_s


def _check_devices(
    problem: PlacementProblem, model: WidthModel, data_parallel: int, stages: Sequence[Stage]
) -> None:
    if not 1 <= data_parallel <= min(problem.num_devices, problem.microbatches_per_batch):
        raise PlanError(f"data-parallel degree {data_parallel} is out of range")
    sharded = dict(zip(problem.layer_ids, model.is_tensor_parallel, strict=True))
    for stage in stages:
        expected = model.tensor_parallel if any(sharded[layer] for layer in stage.layers) else 1
        if not stage.layers or stage.devices != expected:
            raise PlanError(
                f"a stage of layers {stage.layers} runs on {expected} devices, not {stage.devices}"
            )
    if sum(stage.devices for stage in stages) > problem.num_devices // data_parallel:
        raise PlanError("the plan needs more devices than there are")


def _load(
    problem: PlacementProblem, model: WidthModel, edges: _Edges, first: int, last: int, depth: int
) -> float:
    """Seconds per microbatch of the stage first..last, `depth` counted from the end."""
    _check_memory(problem, model, edges, first, last, depth)
    bandwidth = problem.link_bandwidth_bytes_per_s
    recompute = problem.activation_recomputation and depth > 1
    forward: dict[int, float] = {}
    for v in range(first, last + 1):
        arrivals = [forward.get(u, size / bandwidth) for u, size in edges.into[v]]
        forward[v] = max(arrivals, default=0.0) + model.forward_s[v]
    release = sum(model.forward_s[first : last + 1]) if recompute else 0.0
    backward: dict[int, float] = {}
    for v in range(last, first - 1, -1):
        arrivals = [backward.get(w, size / bandwidth) for w, size in edges.out_of[v]]
        backward[v] = max([release, *arrivals]) + model.backward_s[v]
    return forward[last] + backward[first]


def _check_memory(
    problem: PlacementProblem, model: WidthModel, edges: _Edges, first: int, last: int, depth: int
) -> None:
    parameters = sum(model.parameter_bytes[first : last + 1])
    activations = sum(model.activation_bytes[first : last + 1])
    held = 2 * parameters + (parameters if problem.optimizer is Optimizer.ADAM else 0) + activations
    stash = activations
    if problem.activation_recomputation:
        stash = sum(size for v in range(first, last + 1) for u, size in edges.into[v] if u < first)
    needed = held + (depth - 1) * stash
    # The search divides where this multiplies: allow for the last bit.
    if needed > problem.device_memory_bytes * (1 + 1e-12):
        raise PlanError(f"a stage needs {needed} bytes of memory, a device has {problem.device_memory_bytes}")
