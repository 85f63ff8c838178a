"""Random general placement problems, and their optimum by trying every plan."""

from __future__ import annotations

import math
from itertools import islice, permutations, product

from phaze.solvers.placement import PlanError
from phaze.solvers.placement.general import GeneralStage, general_plan_time
from phaze.solvers.placement.general.general_problem import (
    Conventions,
    DeviceType,
    GeneralProblem,
    Model,
    Recompute,
    Reduced,
    Schedule,
    Transfers,
)

PLAIN = Conventions(Transfers.EXPOSED, Reduced.EVERY, 2.0, in_flight_capped=True)


def random_edges(rng, count, shape):
    """A chain, a chain with skips, or any graph, of layers in topological order."""
    if shape == "chain":
        return [(v, v + 1) for v in range(count - 1)]
    if shape == "skips":
        pairs = [(v, v + 1) for v in range(count - 1)]
        return sorted(
            pairs + [(u, v) for u in range(count) for v in range(u + 2, count) if rng.random() < 0.3]
        )
    density = rng.choice([0.2, 0.4, 0.7])
    return [(u, v) for u in range(count) for v in range(u + 1, count) if rng.random() < density]


def random_model(rng, count, edges, device_type, width):
    """Small whole numbers, so that memory limits are met exactly and ties occur."""

    def numbers(most, scale=1.0):
        return tuple(rng.randint(0, most) * scale for _ in range(count))

    return Model(
        device_type=device_type,
        tensor_parallel=width,
        forward_s=numbers(8, 0.25),
        input_gradient_s=numbers(8, 0.25),
        weight_gradient_s=numbers(8, 0.25),
        parameter_bytes=numbers(12),
        activation_bytes=numbers(12),
        is_tensor_parallel=tuple(rng.random() < 0.6 for _ in range(count)),
        boundary_bytes=tuple(float(rng.randint(0, 8)) for _ in edges),
    )


def random_problem(rng, *, layers=(1, 4), shape="chain", widths=(1,), types=1, **choices):
    """One instance; `choices` override fields of the problem."""
    count = rng.randint(*layers)
    edges = random_edges(rng, count, shape)
    fields = {
        "microbatches_per_batch": rng.randint(1, 9),
        "link_bandwidth_bytes_per_s": rng.choice([1.0, 4.0, 16.0]),
        "optimizer_state_ratio": rng.choice([0.0, 1.0, 6.0]),
        "schedule": Schedule.ONE_F_ONE_B,
        "virtual_stages": 1,
        "recompute": (Recompute.NONE,),
        "zero": (0,),
        "uniform_width": False,
        "conventions": PLAIN,
        "device_types": tuple(
            DeviceType(f"type{i}", rng.randint(1, 6), float(rng.choice([60, 100, 150, 400])))
            for i in range(types)
        ),
        "layer_ids": tuple(10 * v - 1 for v in range(count)),
        "edges": tuple(edges),
        "models": tuple(random_model(rng, count, edges, i, width) for i in range(types) for width in widths),
    }
    return GeneralProblem(**{**fields, **choices})


def partitions(problem):
    """All ways to cut the layers into stages none of which feeds an earlier one, in a topological order.

    In every such order if the stages are interleaved: their places matter.
    """
    count = len(problem.layer_ids)

    def blocks(v):
        if v == count:
            yield []
            return
        for rest in blocks(v + 1):
            yield [[v], *rest]
            for i, block in enumerate(rest):
                yield [*rest[:i], [v, *block], *rest[i + 1 :]]

    for cut in blocks(0):
        home = {v: i for i, block in enumerate(cut) for v in block}
        waits = {i: {home[u] for u, v in problem.edges if home[v] == i != home[u]} for i in range(len(cut))}
        orders = (o for o in permutations(waits) if all(waits[i] <= set(o[:k]) for k, i in enumerate(o)))
        for order in orders if problem.schedule is Schedule.INTERLEAVED else islice(orders, 1):
            yield [tuple(problem.layer_ids[v] for v in cut[i]) for i in order]


def stage_options(problem, layers):
    """All a stage may be."""
    grouped = problem.schedule is Schedule.INTERLEAVED
    for model, recompute, zero in product(problem.models, Recompute, problem.zero):
        sharded = dict(zip(problem.layer_ids, model.is_tensor_parallel, strict=True))
        wide = any(sharded[layer] for layer in (problem.layer_ids if grouped else layers))
        yield GeneralStage(
            layers=layers,
            devices=model.tensor_parallel if wide else 1,
            device_type=problem.device_types[model.device_type].name,
            tensor_parallel=model.tensor_parallel,
            recompute=recompute,
            zero=zero,
        )


def exhaustive(problem):
    """(time, devices used, number of stages) of the best plan, by the checker alone; None if nothing fits."""
    plans = []
    for cut in partitions(problem):
        for stages in product(*(tuple(stage_options(problem, layers)) for layers in cut)):
            for degree in range(1, problem.microbatches_per_batch + 1):
                try:
                    time_s = general_plan_time(problem, degree, stages)
                except PlanError:
                    continue
                devices = degree * sum(stage.devices for stage in stages) // problem.virtual_stages
                plans.append((time_s, devices, len(stages)))
    if not plans:
        return None
    least = min(plan[0] for plan in plans)
    return min(
        (devices, stages, time_s) for time_s, devices, stages in plans if time_s <= least * (1 + 1e-13)
    )


def agrees(result, expected):
    """Whether the solver's answer is the optimum with its ties."""
    if expected is None:
        return result.time_per_batch_s is None and math.isinf(result.lower_bound_s)
    devices, stages, time_s = expected
    return math.isclose(result.time_per_batch_s, time_s, rel_tol=1e-12) and (
        (result.devices_used, result.num_stages) == (devices, stages)
    )
