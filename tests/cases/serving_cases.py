"""A decoder with grouped queries, small enough to be served in milliseconds, on chips of today."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from phaze.hardware.architecture import load_architecture
from phaze.hardware.cluster_network import load_network
from phaze.parallel.serving import ServingOptions, Targets, Traffic
from phaze.parallel.serving.serving_space import ServingSpace

DECODER = """
schema_version: 1
name: served
family: decoder
source: {all: made up for tests}
dimensions:
  {layers: 5, hidden: 1024, heads: 8, kv_heads: 4, ffn_hidden: 4096, vocabulary: 16000, max_positions: 4096,
   positions: rope, bias: false}
sequence_length: 512
global_batch: 8
"""
LAYERS, KV_HEADS, HEAD = 5, 4, 128
CACHE_BYTES_PER_TOKEN = 2 * LAYERS * KV_HEADS * HEAD * 2


def served(folder):
    path = folder / "served.yaml"
    path.write_text(DECODER)
    return str(path)


def space(source, *, devices=4, chip="h100", traffic=None, targets=None, batch=32, **options):
    options.setdefault("largest_batch", batch)
    return ServingSpace(
        source,
        load_architecture(chip),
        devices,
        load_network(),
        traffic or Traffic(256, 64),
        targets or Targets(),
        ServingOptions(**options),
    )


def aimed(made, targets=None, **options):
    """The space with other targets and options; the costs of its replicas are kept."""
    other = replace(made, targets=targets or Targets(), options=replace(made.options, **options))
    shared = {
        name: getattr(made, name) for name in ("served", "chip", "links", "grids", "shapes", "replicas")
    }
    other.__dict__.update(shared)
    return other


def batches(*sizes):
    return np.array(sizes, dtype=np.float64)


MIXTURE = """
schema_version: 1
name: mixture
family: decoder
source: {all: made up for tests}
dimensions:
  {layers: 3, hidden: 512, heads: 4, kv_heads: 4, ffn_hidden: 1024, vocabulary: 8000, max_positions: 4096,
   positions: rope, bias: false, gated: true, activation: silu,
   experts: {number: 8, per_token: 2, hidden: 1024}}
sequence_length: 512
global_batch: 8
"""


def served_mixture(folder):
    path = folder / "mixture.yaml"
    path.write_text(MIXTURE)
    return str(path)
