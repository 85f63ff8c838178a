"""A model's layer graph as an instance for the exact placement of graphs (docs/formats/placement-2.md)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from phaze.cost.collectives.collective_times import tier
from phaze.parallel.cluster import Cluster
from phaze.scheduling.layers import LayerTimes
from phaze.solvers.placement.general.general_problem import FORMAT
from phaze.workload.work import LayerGraph
from phaze.workload.workload import Numerics

_SCALE_UP = 0  # the innermost tier
_WEIGHT_BYTES = 2  # of a parameter in compute; the format has gradients of the same size


def placement_instance(
    graphs: Mapping[int, tuple[LayerGraph, LayerTimes]],
    link_bytes_per_s: float,
    cluster: Cluster,
    numerics: Numerics,
    memory_bytes: float,
) -> dict[str, Any]:
    """Document `dse-placement/2` of one model on one architecture under 1F1B, without recomputation or ZeRO.

    `graphs`: for every tensor-parallel width the layers and their times (1, U), all of one microbatch size.
    `link_bytes_per_s` of that architecture: every transfer is at what of it is left inside a scale-up domain, without
    latency. Gradients count with their own bytes when they are reduced, and all state together in memory.
    Raises ValueError for a workload without training.
    """
    if numerics.gradient_bytes == 0:
        msg = "the format places training steps only"
        raise ValueError(msg)
    (first, _), *_ = graphs.values()
    bandwidth, _ = tier(cluster.network, _SCALE_UP, np.array([link_bytes_per_s]))
    return {
        "format": FORMAT,
        "microbatches_per_batch": cluster.global_batch // first.order.microbatch,
        "link_bandwidth_bytes_per_s": float(bandwidth[0]),
        "optimizer_state_ratio": numerics.state_bytes / _WEIGHT_BYTES - 2,
        "schedule": {"kind": "1f1b"},
        "choices": {"recompute": ["none"], "zero": [0], "uniform_width": True},
        "conventions": {
            "transfers": "exposed",
            "reduced_stages": "every",
            "reduction_factor": 2 * numerics.gradient_bytes / _WEIGHT_BYTES,
            "in_flight_capped": True,
        },
        "device_types": [{"name": "chip", "count": cluster.devices, "memory_bytes": memory_bytes}],
        "models": [_model(width, *graphs[width]) for width in sorted(graphs)],
    }


def _model(width: int, graph: LayerGraph, times: LayerTimes) -> dict[str, Any]:
    """The layers at one width. What is alive only while a layer runs has no field in the format."""
    order = graph.order
    layers = []
    for place, unique in enumerate(order.index):
        layer = order.layers[unique]
        layers.append(
            {
                "id": place,
                "name": order.names[place],
                "forward_latency_s": float(times.forward_s[0, unique]),
                "input_gradient_latency_s": float(times.backward_s[0, unique]),
                "weight_gradient_latency_s": 0.0,
                "parameter_bytes": float(_WEIGHT_BYTES * layer.parameters),
                "activation_bytes": layer.saved_bytes,
                "is_tensor_parallel": width > 1,
            }
        )
    edges = [
        {"source": e.source, "target": e.target, "boundary_bytes": e.boundary_bytes} for e in graph.edges
    ]
    return {"device_type": "chip", "tensor_parallel_width": width, "layers": layers, "edges": edges}
