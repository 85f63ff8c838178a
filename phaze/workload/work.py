"""What the rest of the product sees of a model: layers made of work for the hardware.

`Work` is one operator reduced to numbers a cost model needs; `Pass` is the operator graph of one
pass (forward or backward) of one layer; `Layer` adds parameters and memory; `LayerChain` is the
whole model as a chain of layers, isomorphic ones stored once. All figures are per device (already
sharded) and per microbatch, in SI units.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Unit(StrEnum):
    """What an operator occupies while it runs."""

    TENSOR = "TC"
    VECTOR = "VC"
    TENSOR_VECTOR = "TC+VC"
    LINK = "LINK"


class Traffic(StrEnum):
    """How a matrix product's HBM traffic arises."""

    TILED = "tiled"  # operands stream from HBM, re-read as the tiling demands
    FUSED = "fused"  # inside a fused operator: on-chip only, HBM bytes are in `Work.stream_bytes`


@dataclass(frozen=True, slots=True)
class Gemm:
    """`groups` independent products (m x k) times (k x n), each with its own operands.

    `a_bytes`, `b_bytes`, `c_bytes`: sizes of the whole left, right and result tensors (all groups) as
    they lie in HBM. For a convolution `a_bytes` is the feature map, smaller than m x k elements.
    """

    groups: int
    m: int
    k: int
    n: int
    a_bytes: float
    b_bytes: float
    c_bytes: float
    traffic: Traffic = Traffic.TILED

    @property
    def macs(self) -> int:
        """Multiply-accumulates."""
        return self.groups * self.m * self.k * self.n


@dataclass(frozen=True, slots=True)
class Work:
    """One operator as the hardware sees it.

    `vector_cycles` is the sum over elements of fp32-ALU cycles; `stream_bytes` the HBM bytes beside
    those of TILED products (each tensor read or written once; re-reads of a flash kernel not
    included); `reread_bytes` is read again once per `reread_rows_bytes` of global buffer (flash
    attention: keys and values are re-read for every block of queries that fits); `link_bytes` is
    the payload of a collective over `link_group` devices of one tensor-parallel group (per-rank
    buffer, nccl-tests convention).
    """

    name: str
    kind: str
    unit: Unit
    gemms: tuple[Gemm, ...] = ()
    vector_cycles: float = 0.0
    stream_bytes: float = 0.0
    reread_bytes: float = 0.0
    reread_rows_bytes: float = 0.0
    link_bytes: float = 0.0
    link_group: int = 1

    @property
    def macs(self) -> int:
        """Multiply-accumulates on tensor cores."""
        return sum(g.macs for g in self.gemms)


@dataclass(frozen=True, slots=True)
class Pass:
    """Operators of one pass of a layer; `edges` are (before, after) positions. No free operators."""

    works: tuple[Work, ...]
    edges: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Layer:
    """The operators between two cuts of the model.

    `parameters`: elements on one device. `saved_bytes`: what forward keeps for backward.
    `working_bytes`: the largest set of activations alive while the layer runs (beyond what is saved).
    `input_bytes`, `output_bytes`: the boundary tensors as one tensor-parallel group exchanges them (whole,
    not divided by the tensor-parallel width). `model_flops`: multiply and add of matrix products and
    convolutions, forward plus (in training) backward, of the whole layer, not divided by the width.
    """

    kind: str
    forward: Pass
    backward: Pass | None
    parameters: int
    saved_bytes: float
    working_bytes: float
    input_bytes: float
    output_bytes: float
    model_flops: float


@dataclass(frozen=True, slots=True)
class LayerChain:
    """A model as a chain: position i is layer `layers[index[i]]`, called `names[i]`.

    `microbatch` samples per microbatch, `tensor_parallel` devices per layer.
    """

    workload: str
    microbatch: int
    tensor_parallel: int
    layers: tuple[Layer, ...]
    index: tuple[int, ...]
    names: tuple[str, ...]

    @property
    def model_flops(self) -> float:
        """Model FLOPs of one microbatch, whole model."""
        return sum(self.layers[i].model_flops for i in self.index)

    @property
    def parameters(self) -> int:
        """Parameters on one tensor-parallel rank, whole chain."""
        return sum(self.layers[i].parameters for i in self.index)
