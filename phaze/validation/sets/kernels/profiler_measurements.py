"""Operators of Megatron's transformer layers as a profiler of parallel strategies times them on the host.

Each row is a list of kernels of an eager framework. Of linear layers the backward pass has the gradient of the
input alone (its times are those of one product). Short rows show the host: its time per operator is in `timers.yaml`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

from phaze.validation.measured.measured_cases import Cases, Judged, timer_of
from phaze.validation.measured.measured_systems import chip_of
from phaze.validation.measured.measurement_columns import Columns
from phaze.validation.measured.single_operators import norm, product, softmax
from phaze.validation.sets.kernels.gemm_measurements import NO_TEMPLATE
from phaze.validation.sets.kernels.vector_measurements import NOT_MODELLED
from phaze.workload.work import Format, Unit, Work

_SET = "op_transformer_aceso_profiles"
BYTES: Mapping[Format, int] = MappingProxyType({Format.FP16: 2, Format.FP32: 4, Format.TF32: 4})
_VOCABULARY, _POSITIONS = 50272, 2048  # rows of OPT's tables of tokens and positions
_RANDOM_CYCLES = 25.0  # one number of a counter-based generator
_LOOKUP_CYCLES = 80.0  # 64-bit divisions that find the row of every element


@dataclass(frozen=True)
class Operator:
    """One row: `batch` products (m x k) (k x n), or m rows of n elements, in a `format`."""

    name: str
    samples: int
    batch: int
    m: int
    n: int
    k: int
    format: Format

    @property
    def size(self) -> int:
        """Bytes of an element."""
        return BYTES[self.format]

    def product(self, m: int, k: int, n: int) -> Work:
        """A batch of products in the row's format."""
        made = product(self.batch, m, k, n, self.size)
        return replace(made, gemms=(replace(made.gemms[0], operands=self.format),))

    def streams(self, *moved: float, cycles: float = 1.0, extra_bytes: float = 0.0) -> tuple[Work, ...]:
        """Element-wise kernels that move so many of the row's tensors, and `extra_bytes` of each element."""
        n = self.m * self.n
        each = [(tensors * self.size + extra_bytes) * n for tensors in moved]
        return tuple(
            Work(self.name, "elementwise", Unit.VECTOR, vector_cycles=cycles * n, stream_bytes=moved_bytes)
            for moved_bytes in each
        )


Kernels = Callable[[Operator], tuple[Work, ...]]


def _linear(op: Operator) -> tuple[Work, ...]:
    return (op.product(op.m, op.k, op.n),)


def _linear_gradient(op: Operator) -> tuple[Work, ...]:
    return (op.product(op.m, op.n, op.k),)


def _batched_gradients(op: Operator) -> tuple[Work, ...]:
    return op.product(op.m, op.n, op.k), op.product(op.k, op.m, op.n)


def _norm(op: Operator) -> tuple[Work, ...]:
    """Threads of Megatron's kernels move one element at a time."""
    return (replace(norm("layer", op.m, op.n, op.size), access_bytes=op.size),)


def _norm_gradients(op: Operator) -> tuple[Work, ...]:
    """Of the input, row by row, then of scale and shift."""
    rows, columns = op.streams(3, 2, cycles=5.0)
    return replace(rows, kind="norm", rows=op.m, access_bytes=op.size), columns


def _dropout(op: Operator) -> tuple[Work, ...]:
    """Forward: a mask of one byte an element is written beside the result."""
    return op.streams(2, cycles=_RANDOM_CYCLES, extra_bytes=1)


def _softmax(op: Operator) -> tuple[Work, ...]:
    """In 16 bits one kernel that reads the lower triangle; else scaled, copied, masked, normalised."""
    if op.format is Format.FP16:
        return op.streams(1.5, cycles=14.0)
    return *op.streams(2, 2, 1), softmax(op.m, op.n, op.size)


def _softmax_gradient(op: Operator) -> tuple[Work, ...]:
    """The same backward; the gradient of the softmax is two kernels."""
    return op.streams(2, cycles=3.0) if op.format is Format.FP16 else op.streams(3, 3, 2, 1, 2)


def _embedding(op: Operator) -> tuple[Work, ...]:
    """Rows of both tables looked up, added, transposed and dropped out."""
    return *op.streams(2, 2, cycles=_LOOKUP_CYCLES), *op.streams(3, 2), *_dropout(op)


def _embedding_gradient(op: Operator) -> tuple[Work, ...]:
    """Mask, transpose, scatter into gradients of both tables, which are set to zero and added to those before."""
    tables = replace(op, m=_VOCABULARY + _POSITIONS)
    scattered = op.streams(1, 1, cycles=_LOOKUP_CYCLES)
    return *op.streams(2, extra_bytes=1), *op.streams(2), *scattered, *tables.streams(1, 3)


def _cast(op: Operator) -> tuple[Work, ...]:
    """Between 16 bits and fp32; nothing where the row is fp32."""
    return op.streams(1, extra_bytes=BYTES[Format.FP32]) if op.format is Format.FP16 else ()


def _loss(op: Operator) -> tuple[Work, ...]:
    """Product with the table, then in fp32 maximum, difference, exponential, sum, quotient."""
    return *_linear(op), *_cast(op), *replace(op, format=Format.FP32).streams(1, 2, 2, 1, 2)


def _loss_gradient(op: Operator) -> tuple[Work, ...]:
    """The probabilities scaled in place, then the product."""
    return *replace(op, format=Format.FP32).streams(2), *_cast(op), *_linear_gradient(op)


def _transposed(kernels: Kernels) -> Kernels:
    """Kernels beside a transposition of samples and positions; of one sample it moves nothing."""
    return lambda op: (*kernels(op), *(op.streams(2) if op.samples > 1 else ()))


def _with(kernels: Kernels, *moved: float) -> Kernels:
    """Kernels with copies, sums or additions around them."""
    return lambda op: (*kernels(op), *op.streams(*moved))


# Biases of the feed-forward's first product are added in the activation, those of others with the residual; the
# queries, keys and values are copied apart; a residual adds a gradient before each norm but the last.
FORWARD: Mapping[str, Kernels] = MappingProxyType(
    {
        "encoder-embedding": _embedding,
        "enc-1st-layernorm": _norm,
        "enc-attention-qkv": _with(_linear, 2),
        "enc-attention-score": _linear,
        "enc-attention-softmax": _softmax,
        "enc-attention-dropout": _dropout,
        "enc-attention-context": _linear,
        "enc-attention-dense": _linear,
        "enc-post-attention-dropout": _with(_dropout, 2, 3),
        "enc-2nd-layernorm": _norm,
        "enc-MLP-GEMM-1": _linear,
        "enc-MLP-gelu": lambda op: op.streams(2, cycles=18.0),
        "enc-MLP-GEMM-2": _linear,
        "enc-post-MLP-dropout": _with(_dropout, 2, 3),
        "final-layernorm": _transposed(_norm),
        "gpt-post-process": _loss,
    }
)


def _dropout_gradient(op: Operator) -> tuple[Work, ...]:
    return op.streams(2, extra_bytes=1)


BACKWARD: Mapping[str, Kernels] = MappingProxyType(
    {
        "encoder-embedding": _embedding_gradient,
        "enc-1st-layernorm": _with(_norm_gradients, 3),
        "enc-attention-qkv": _with(_linear_gradient, 2),
        "enc-attention-score": _batched_gradients,
        "enc-attention-softmax": _softmax_gradient,
        "enc-attention-dropout": _dropout_gradient,
        "enc-attention-context": _batched_gradients,
        "enc-attention-dense": _linear_gradient,
        "enc-post-attention-dropout": _with(_dropout_gradient, 1, 1),
        "enc-2nd-layernorm": _with(_norm_gradients, 3),
        "enc-MLP-GEMM-1": _linear_gradient,
        "enc-MLP-gelu": lambda op: (*op.streams(3, cycles=30.0), *op.streams(1)),
        "enc-MLP-GEMM-2": _linear_gradient,
        "enc-post-MLP-dropout": _with(_dropout_gradient, 1, 1),
        "final-layernorm": _transposed(_norm_gradients),
        "gpt-post-process": _loss_gradient,
    }
)


def forward(columns: Columns) -> Judged:
    """Forward pass of each operator."""
    return _judge(columns, "fwd_us", "forward", FORWARD)


def backward(columns: Columns) -> Judged:
    """Backward pass of each operator."""
    return _judge(columns, "bwd_us", "backward", BACKWARD)


def _judge(columns: Columns, time: str, pass_: str, kernels: Mapping[str, Kernels]) -> Judged:
    cases, latency = Cases(), columns.numbers(time) * 1e-6
    for row, (device, op) in enumerate(zip(columns["device"], _operators(columns), strict=True)):
        chip = chip_of(device)
        if chip is None or op is None:
            cases.drop(NO_TEMPLATE if chip is None else NOT_MODELLED)
        else:
            timer = timer_of(_SET, device, f"{op.name} {pass_}")
            cases.keep(chip, kernels[op.name](op), float(latency[row]), timer)
    return cases.judge()


def _operators(columns: Columns) -> list[Operator | None]:
    """Every row's operator, None where its name or format is not known."""
    fields = [np.nan_to_num(columns.numbers(name)) for name in ("micro_batch", "batch", "m", "n", "k")]
    formats = {format_.value: format_ for format_ in BYTES}
    rows = zip(columns["op_name"], columns["dtype"], zip(*fields, strict=True), strict=True)
    found: list[Operator | None] = []
    for name, dtype, sizes in rows:
        samples, batch, m, n, k = (int(size) for size in sizes)
        format_ = formats.get(dtype.split()[0])  # "tf32 (fp32 tensors, tensor core)"
        known = format_ if name in FORWARD else None
        found.append(Operator(name, samples, batch, m, n, k, known) if known else None)
    return found
