"""Work of a model as the rest of the product sees it: layers made of work for the hardware.

`Work` is one operator reduced to numbers a cost model needs; `Pass` is the operator graph of one
pass (forward or backward) of one layer; `Layer` adds parameters and memory; `LayerChain` is the
whole model as a chain of layers, isomorphic ones stored once. All figures are per device (already
sharded) and per microbatch, in SI units.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from itertools import pairwise

from phaze.workload.fusion_rules import Fused
from phaze.workload.parallel_degrees import Group, Shardable, Sharding
from phaze.workload.routed_copies import NO_COPIES, Copies


class Unit(StrEnum):
    """Unit that an operator occupies while it runs."""

    TENSOR = "TC"
    VECTOR = "VC"
    TENSOR_VECTOR = "TC+VC"
    LINK = "LINK"


class Traffic(StrEnum):
    """Origin of a matrix product's HBM traffic."""

    TILED = "tiled"  # operands stream from HBM, re-read as the tiling demands
    FUSED = "fused"  # inside a fused operator: on-chip only, HBM bytes are in `Work.stream_bytes`


class Format(StrEnum):
    """Format of the operands of a product; accumulation in fp32 (int32 for int8)."""

    INT8 = "int8"
    FP4 = "fp4"
    FP8 = "fp8"
    BF16 = "bf16"
    FP16 = "fp16"
    TF32 = "tf32"  # fp32 tensors, read by the tensor cores with 10 bits of mantissa
    FP32 = "fp32"


NARROW = (Format.FP8, Format.FP4, Format.INT8)
"""Formats of linear layers in few bits (`phaze.workload.operators.low_precision`), which some chips are faster on."""


class Collective(StrEnum):
    """Collective operation of a group of devices."""

    ALL_REDUCE = "all_reduce"
    REDUCE_SCATTER = "reduce_scatter"
    ALL_GATHER = "all_gather"
    ALL_TO_ALL = "all_to_all"
    SEND_RECV = "send_recv"  # one of two to the other


@dataclass(frozen=True, slots=True)
class Link:
    """A collective: the buffer of one rank (nccl-tests convention) and who takes part.

    `payload_bytes`: the vector of an all-reduce, the input of a reduce-scatter, the output of an
    all-gather, the input (and output) of an all-to-all. `copies`: how many rows of an all-to-all are the same, for
    different members (a token and the experts it is sent to).
    """

    collective: Collective
    payload_bytes: float
    group: Group
    copies: Copies = NO_COPIES


class Role(StrEnum):
    """Role of a product among the three of a layer's training."""

    FORWARD = "forward"
    INPUT_GRADIENT = "input_gradient"
    WEIGHT_GRADIENT = "weight_gradient"


@dataclass(frozen=True, slots=True)
class Window:
    """Geometry of the convolution that a product stands for, which decides the algorithms there are for it.

    One extent per spatial axis each: of the kernel, its step, and the feature maps before and after.
    """

    role: Role
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Gemm:
    """`groups` independent products (m x k) times (k x n), each with its own operands.

    `a_bytes`, `b_bytes`, `c_bytes`: sizes of the whole left, right and result tensors (all groups) as
    they lie in HBM. For a convolution `a_bytes` is the feature map, smaller than m x k elements. `operands`:
    their format in the arithmetic; None, whatever the tensor cores of the chip take. `window`: of a convolution.
    """

    groups: int
    m: int
    k: int
    n: int
    a_bytes: float
    b_bytes: float
    c_bytes: float
    traffic: Traffic = Traffic.TILED
    operands: Format | None = None
    window: Window | None = None

    @property
    def macs(self) -> int:
        """Multiply-accumulates."""
        return self.groups * self.m * self.k * self.n


LATENT = "latent_attention"
"""Kind of flash attention over latent vectors, from which keys and values are not unfolded."""


@dataclass(frozen=True, slots=True)
class Flash:
    """Figures of a flash-attention kernel beyond the sizes of its products.

    `queries`: query rows of each head, 1 while decoding; `share`: query heads that read one key-value head;
    `visible`: share of the scores that no causal mask hides (keys outside a window are not among the scores);
    `staged_bytes`: HBM bytes of a kernel that is part of the operator and rearranges queries, keys and values
    before; 0 where they come as they are needed. `warm`: the kernel ran on the same tensors just before, so
    that those that fit are in the chip's cache.
    """

    queries: int
    share: int
    visible: float = 1.0
    staged_bytes: float = 0.0
    warm: bool = False


@dataclass(frozen=True, slots=True)
class Work:
    """One operator as the hardware sees it.

    `vector_cycles` is the sum over elements of fp32-ALU cycles; `stream_bytes` the HBM bytes beside
    those of TILED products (each tensor read or written once; re-reads of a flash kernel not
    included); `reread_bytes` is read again once per `reread_rows_bytes` of global buffer (flash
    attention: keys and values are re-read for every block of queries that fits); `link` is the
    collective of a LINK operator. `rows`: rows of a softmax or row norm, each of which is reduced before its
    elements can be written; 0 where elements do not wait for each other. `access_bytes`: what a thread of a
    SIMT kernel moves at a time; 0, as much as the chip lets it. `row_threads`: how many of them walk a row together;
    0, 1,024. `flash` belongs to flash attention; `of_cache`: another
    operator whose work is that of the tokens in the key-value cache.
    """

    name: str
    kind: str
    unit: Unit
    gemms: tuple[Gemm, ...] = ()
    vector_cycles: float = 0.0
    stream_bytes: float = 0.0
    reread_bytes: float = 0.0
    reread_rows_bytes: float = 0.0
    link: Link | None = None
    rows: int = 0
    access_bytes: float = 0.0
    row_threads: int = 0
    flash: Flash | None = None
    of_cache: bool = False

    @property
    def macs(self) -> int:
        """Multiply-accumulates on tensor cores."""
        return sum(g.macs for g in self.gemms)

    @property
    def makes_weight_gradient(self) -> bool:
        """Whether nothing but a parameter's gradient comes of it, which no other operator waits for."""
        return all(part.endswith(".dW") for part in self.name.split("+"))

    @property
    def moved_bytes(self) -> float:
        """HBM bytes if every operand of its products is moved once."""
        tiled = (g for g in self.gemms if g.traffic is Traffic.TILED)
        return self.stream_bytes + sum(g.a_bytes + g.b_bytes + g.c_bytes for g in tiled)


@dataclass(frozen=True, slots=True)
class Pass:
    """Operators of one pass of a layer; `edges` are (before, after) positions. No free operators.

    `fused`: how operators were merged, in the order it was done.
    """

    works: tuple[Work, ...]
    edges: tuple[tuple[int, int], ...]
    fused: tuple[Fused, ...] = ()


@dataclass(frozen=True, slots=True)
class Layer:
    """The operators between two cuts of the model.

    `parameters`: elements on one device, `expert_parameters` those of them that belong to
    experts; in training those that are trained. `frozen_weight_bytes`: all others, which every device keeps whole.
    `scaled_weight_bytes`: weights in few bits beyond the weights themselves, in training copies between microbatches;
    in inference what they take less, below 0. `saved_bytes`: what forward keeps for backward.
    `working_bytes`: the largest set of activations alive while the layer runs (beyond what is saved).
    `cache_bytes`: the key-value cache after the pass, new entries included.
    `input_bytes`, `output_bytes`: the boundary tensors as one tensor-parallel group exchanges them (whole,
    not divided by the tensor-parallel width). `model_flops`: multiply and add of matrix products and
    convolutions, forward plus (in training) backward, of the whole layer, not divided by any degree. `tied`: name and
    elements of those parameters that other layers read as well, such as a table of tokens; `frozen_tied` name and
    bytes of such ones that are not trained. `shardable`: its sort, where tensor parallelism divides it and it could as
    well stay whole.
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
    cache_bytes: float = 0.0
    expert_parameters: int = 0
    scaled_weight_bytes: float = 0.0
    frozen_weight_bytes: float = 0.0
    tied: tuple[tuple[str, int], ...] = ()
    frozen_tied: tuple[tuple[str, float], ...] = ()
    shardable: Shardable | None = None


_NUMBER = re.compile(r"(.*?[./]|)\d+(?=[./]|$)")
_NUMBERED = re.compile(r"(?:[^.]+\.)+?[^.]*\d(?=\.|$)")


@lru_cache(maxsize=1 << 14)
def block_of(name: str) -> str:
    """The block that a layer belongs to, by its name: its path up to the first part that is a number.

    Where none is, up to the first part inside it that ends with one, unless the first part of all does; else one part.
    `block7` of `block7.mlp`, `model.layers.7` of `model.layers.7.mlp.down_proj`, `encoder.block7` of
    `encoder.block7.mlp`, `head` of `head.norm`.
    """
    if found := _NUMBER.match(name):
        return found[0]
    first = name.split(".", maxsplit=1)[0]
    inside = None if first[-1:].isdigit() else _NUMBERED.match(name)
    return inside[0] if inside else first


def layer_in_block(name: str) -> str:
    """What a layer is called inside its block: `mlp` of `block7.mlp`; empty where it is the whole block."""
    return name[len(block_of(name)) + 1 :]


@dataclass(frozen=True, slots=True)
class LayerChain:
    """A model as a chain: position i is layer `layers[index[i]]`, called `names[i]`.

    `microbatch` samples per microbatch; `sharding` says how each layer is divided over devices. `keeps_cache`:
    the caches of all microbatches stay on the device (decode); otherwise a microbatch's is handed over with it
    (prefill).
    """

    workload: str
    microbatch: int
    sharding: Sharding
    layers: tuple[Layer, ...]
    index: tuple[int, ...]
    names: tuple[str, ...]
    keeps_cache: bool = False

    @property
    def tensor_parallel(self) -> int:
        """Devices that share heads and widths."""
        return self.sharding.tensor

    @property
    def replicated(self) -> tuple[bool, ...]:
        """Replication of every unique layer: whether all devices of a tensor-parallel group keep it whole."""
        return tuple(layer.shardable in self.sharding.replicated for layer in self.layers)

    @property
    def model_flops(self) -> float:
        """Model FLOPs of one microbatch, whole model."""
        return sum(self.layers[i].model_flops for i in self.index)

    @property
    def parameters(self) -> int:
        """Parameters on one tensor-parallel rank, whole chain; tied ones with every layer that reads them."""
        return sum(self.layers[i].parameters for i in self.index)

    @property
    def tied_parameters(self) -> int:
        """Parameters that the first layer reads and a later one as well, such as a head."""
        return sum(elements for _, elements in self.layers[self.index[0]].tied)

    @property
    def joined(self) -> LayerChain:
        """The chain on a device that has all layers which read a tied parameter: only the first one counts it.

        Nothing of it is tied any more: there are no gradients of two devices to sum.
        """
        if not any(layer.tied or layer.frozen_tied for layer in self.layers):
            return self
        layers, held = list(self.layers), dict[str, float]()
        for i in dict.fromkeys(self.index):
            layer = layers[i]
            known = sum(min(elements, int(held.get(name, 0))) for name, elements in layer.tied)
            frozen = sum(min(size, held.get(name, 0.0)) for name, size in layer.frozen_tied)
            held = {**dict(layer.tied), **dict(layer.frozen_tied), **held}
            layers[i] = replace(
                layer,
                parameters=layer.parameters - known,
                frozen_weight_bytes=layer.frozen_weight_bytes - frozen,
                tied=(),
                frozen_tied=(),
            )
        return replace(self, layers=tuple(layers))

    @property
    def replicated_parameters(self) -> int:
        """Parameters that belong to whole layers."""
        whole = self.replicated
        return sum(self.layers[i].parameters for i in self.index if whole[i])


@dataclass(frozen=True, slots=True)
class LayerEdge:
    """Tensor that one layer makes and another reads: positions of both and the bytes of one microbatch, undivided."""

    source: int
    target: int
    boundary_bytes: float


@dataclass(frozen=True, slots=True)
class LayerGraph:
    """A model as a graph of layers: `order` holds them in topological order, edges are by (source, target).

    The edges say which tensors a layer of `order` exchanges, not its place between two others.
    """

    order: LayerChain
    edges: tuple[LayerEdge, ...]

    @property
    def is_chain(self) -> bool:
        """Whether every layer feeds the next one and no other."""
        return [(e.source, e.target) for e in self.edges] == list(pairwise(range(len(self.order.index))))

    def in_order(self, places: Sequence[int]) -> LayerGraph:
        """The same graph with its layers in another order, by their places in this one.

        Raises ValueError where a layer is left out or stands twice, where an edge would lead backwards, and where
        parameters are tied and the first or the last layer, which exchange their gradients, is another one.
        """
        chain, count = self.order, len(self.order.index)
        if sorted(places) != list(range(count)):
            raise ValueError(f"{len(places)} places do not name each of {count} layers once")
        if chain.tied_parameters and (places[0], places[-1]) != (0, count - 1):
            raise ValueError("layers with tied parameters stay the first and the last")
        now = {place: at for at, place in enumerate(places)}
        edges = [LayerEdge(now[e.source], now[e.target], e.boundary_bytes) for e in self.edges]
        if any(e.source >= e.target for e in edges):
            raise ValueError("a layer stands ahead of one that it reads")
        index = tuple(chain.index[place] for place in places)
        names = tuple(chain.names[place] for place in places)
        ordered = sorted(edges, key=lambda e: (e.source, e.target))
        return LayerGraph(replace(chain, index=index, names=names), tuple(ordered))
