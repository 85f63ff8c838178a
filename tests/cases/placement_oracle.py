"""Small placement instances, and their best time by enumeration."""

import math
from itertools import combinations, pairwise

from hypothesis import strategies as st
from phaze.solvers.placement import PlanError, Stage, plan_time


def exhaustive(problem):
    """Best time over every width, partition and degree, by the checker alone."""
    best, count = math.inf, len(problem.layer_ids)
    for model in problem.models:
        for cuts in (c for n in range(count) for c in combinations(range(1, count), n)):
            ends = [0, *cuts, count]
            stages = []
            for i, j in pairwise(ends):
                devices = model.tensor_parallel if any(model.is_tensor_parallel[i:j]) else 1
                stages.append(Stage(problem.layer_ids[i:j], devices))
            for degree in range(1, problem.num_devices + 1):
                try:
                    best = min(best, plan_time(problem, model.tensor_parallel, degree, stages))
                except PlanError:
                    break
    return best


@st.composite
def instances(draw):
    """Chains of up to six layers with any skip edges; whole numbers, so memory limits are met exactly."""
    count = draw(st.integers(1, 6))
    small = st.integers(0, 12)
    skips = [(u, v) for u in range(count) for v in range(u + 2, count) if draw(st.booleans())]
    pairs = [(v, v + 1) for v in range(count - 1)] + (skips if draw(st.booleans()) else [])
    models = []
    for width in sorted(draw(st.sets(st.sampled_from([1, 2, 3, 4]), min_size=1, max_size=3))):
        layers = [
            {
                "id": 10 * v - 1,
                "forward_latency_s": draw(small) / 4,
                "backward_latency_s": draw(small) / 4,
                "parameter_bytes": draw(small),
                "activation_bytes": draw(small),
                "is_tensor_parallel": draw(st.booleans()),
            }
            for v in range(count)
        ]
        edges = [
            {"source": 10 * u - 1, "target": 10 * v - 1, "boundary_bytes": draw(small)} for u, v in pairs
        ]
        models.append(
            {
                "tensor_parallel_width": width,
                "layers": draw(st.permutations(layers)),
                "edges": draw(st.permutations(edges)),
            }
        )
    return {
        "format": "dse-placement/1",
        "num_devices": draw(st.integers(1, 12)),
        "device_memory_bytes": draw(st.integers(0, 120)),
        "link_bandwidth_bytes_per_s": draw(st.sampled_from([1, 4, 16])),
        "microbatches_per_batch": draw(st.integers(1, 20)),
        "activation_recomputation": draw(st.booleans()),
        "optimizer": draw(st.sampled_from(["SGD", "Adam"])),
        "models": models,
    }
