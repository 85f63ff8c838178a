from __future__ import annotations

import pytest

from phaze.hardware.network import load_network
from phaze.hardware.space_file import load_space
from phaze.workload.spec import load_workload

SMALL = """
schema_version: 1
name: small
axes:
  - {fields: [tensor_cores], values: [1, 4, 6]}
  - {fields: [tensor_core_rows], values: [64, 256]}
  - {fields: [tensor_core_columns], values: [128]}
  - {fields: [vector_cores], values: [1, 3]}
  - {fields: [vector_core_alus], values: [64, 1024]}
  - {fields: [global_buffer_bytes], values: [16MiB, 64MiB]}
  - fields: [hbm_generation, hbm_stacks]
    values: [[HBM2e, 4], [HBM3, 6]]
"""

# Two layers of a small decoder: everything the large ones have, in milliseconds.
TINY = """
schema_version: 1
name: tiny
family: decoder
source: {all: made up for tests}
dimensions:
  layers: 6
  hidden: 512
  heads: 8
  ffn_hidden: 2048
  vocabulary: 8000
  max_positions: 256
  activation: gelu_tanh
  norm: layer
  norm_place: pre
  bias: true
  positions: learned
  tied_embeddings: true
sequence_length: 256
global_batch: 12
precision: bf16
optimizer: adam
"""


@pytest.fixture(scope="session")
def small_space(tmp_path_factory):
    """96 architectures of very different balance."""
    path = tmp_path_factory.mktemp("spaces") / "small.yaml"
    path.write_text(SMALL)
    return load_space(path)


@pytest.fixture(scope="session")
def network():
    return load_network()


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    return load_workload(str(tiny_path(tmp_path_factory)))


def tiny_path(tmp_path_factory):
    path = tmp_path_factory.mktemp("workloads") / "tiny.yaml"
    path.write_text(TINY)
    return path
