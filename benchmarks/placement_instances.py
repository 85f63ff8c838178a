"""Seeded placement instances in the format `dse-placement/1`: chains of transformer blocks."""

from __future__ import annotations

import random

GPT3_WIDTH, GPT3_TOKENS, GPT3_VOCABULARY = 12288, 2048, 50257
"""Hidden size, sequence length and vocabulary of GPT-3 175B (Brown et al. 2020, table 2.1)."""

_FLOP_PER_S, _HALF = 150e12, 2


def transformer_chain(
    layers: int,
    devices: int,
    tensor_parallel: tuple[int, ...] = (1, 2, 4, 8),
    *,
    memory_bytes: float = 16 * 2.0**30,
    seed: int = 0,
) -> dict[str, object]:
    """GPT-3's blocks between an embedding and a head, `layers` in all (GPT-3 has 98).

    Latencies vary by 15 % from block to block, so that no two are the same. Little memory makes many stages.
    """
    rng = random.Random(f"{layers}/{seed}")
    noise = [rng.uniform(0.85, 1.15) for _ in range(layers)]
    boundary = float(_HALF * GPT3_TOKENS * GPT3_WIDTH)
    edges = [{"source": i, "target": i + 1, "boundary_bytes": boundary} for i in range(layers - 1)]
    models = [
        {
            "tensor_parallel_width": width,
            "layers": [_layer(i, layers, width, noise[i]) for i in range(layers)],
            "edges": edges,
        }
        for width in tensor_parallel
    ]
    return {
        "format": "dse-placement/1",
        "name": f"gpt3-L{layers}-D{devices}-T{len(tensor_parallel)}-{seed}",
        "num_devices": devices,
        "device_memory_bytes": memory_bytes,
        "link_bandwidth_bytes_per_s": 50e9,
        "microbatches_per_batch": 1536,
        "activation_recomputation": True,
        "optimizer": "Adam",
        "models": models,
    }


def _layer(i: int, layers: int, width: int, noise: float) -> dict[str, object]:
    """Embedding, head or block; blocks are split over `width` devices, with what an all-reduce costs."""
    ends = i in (0, layers - 1)
    parameters = GPT3_VOCABULARY * GPT3_WIDTH if ends else 12 * GPT3_WIDTH**2 / width
    flop = 2 * GPT3_TOKENS * parameters * (1e-3 if i == 0 else 1.0)
    forward_s = noise * (flop / _FLOP_PER_S + (0.0 if ends or width == 1 else 2e-4))
    activations = 34.0 * GPT3_TOKENS * GPT3_WIDTH / (1 if ends else width)
    return {
        "id": i,
        "name": "embedding" if i == 0 else "head" if i == layers - 1 else f"block{i - 1}",
        "forward_latency_s": forward_s,
        "backward_latency_s": 2 * forward_s,
        "parameter_bytes": _HALF * parameters,
        "activation_bytes": activations,
        "is_tensor_parallel": not ends,
    }
