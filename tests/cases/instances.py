"""Instances of the solvers, small enough to be solved by hand."""

from __future__ import annotations

SCHEDULE = {
    "format": "dse-schedule/1",
    "num_tensor_cores": 1,
    "num_vector_cores": 1,
    "core_pairing": False,
    "ops": [
        {"id": 0, "unit": "TC", "latency_s": 2.0, "parallel_latency_s": 2.0},
        {"id": 1, "unit": "VC", "latency_s": 3.0, "parallel_latency_s": 3.0},
        {"id": 2, "unit": "TC", "latency_s": 1.0, "parallel_latency_s": 1.0},
    ],
    "edges": [[0, 1]],
}
MODES = {
    "format": "dse-schedule/2",
    "units": {"TC": 2, "VC": 1, "LINK": 1},
    "unblocked": ["LINK"],
    "core_pairing": False,
    "bandwidth_bytes_per_s": 1e12,
    "ops": [
        {
            "id": i,
            "units": ["TC"],
            "modes": [
                {"cores": 1, "latency_s": 3.0, "bandwidth_bytes_per_s": 5e11},
                {"cores": 2, "latency_s": 2.0, "bandwidth_bytes_per_s": 1e12},
            ],
        }
        for i in range(2)
    ]
    + [
        {"id": 2, "units": ["TC", "VC"], "latency_s": 3.0, "parallel_latency_s": 1.0},
        {"id": 3, "units": ["LINK"], "latency_s": 1.0, "parallel_latency_s": None},
    ],
    "edges": [[0, 2], [1, 2], [0, 3]],
}
# placement.md's worked example: three layers, four devices, the answer is 53.25 s on two stages with d = 2.
PLACEMENT = {
    "format": "dse-placement/1",
    "num_devices": 4,
    "device_memory_bytes": 300,
    "link_bandwidth_bytes_per_s": 40,
    "microbatches_per_batch": 7,
    "activation_recomputation": False,
    "optimizer": "SGD",
    "models": [
        {
            "tensor_parallel_width": 1,
            "layers": [
                {
                    "id": i,
                    "name": f"layer{i}",
                    "forward_latency_s": forward,
                    "backward_latency_s": backward,
                    "parameter_bytes": parameters,
                    "activation_bytes": activations,
                    "is_tensor_parallel": False,
                }
                for i, (forward, backward, parameters, activations) in enumerate(
                    [(1, 2, 40, 30), (2, 4, 60, 50), (1.5, 2.5, 20, 40)]
                )
            ],
            "edges": [
                {"source": 0, "target": 1, "boundary_bytes": 10},
                {"source": 1, "target": 2, "boundary_bytes": 20},
            ],
        }
    ],
}
