"""Steps: the operators of one pass with their work, still linked by tensor names.

Rules turn graph operators into steps, fusion merges steps, `operator_fusion.py` drops the names and leaves a
`work.Pass`. A step without work is a view: it only carries precedence.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Set
from dataclasses import dataclass, field
from math import prod

from phaze.workload.operators.operator_graph import Operator, OpKind, Tensor
from phaze.workload.parallel_degrees import Sharding
from phaze.workload.work import Format, Unit, Work

# Parameter gradients are accumulated in fp32 (definitions: training numerics): each of m microbatches reads
# and writes them, 2 m passes. Overwriting them at first takes 2 m - 1, setting them to zero before 2 m + 1.
GRADIENT_BYTES = 4


@dataclass(frozen=True, slots=True)
class Step:
    """One operator of a pass.

    `reads`, `writes`: bytes of each tensor that passes between steps (parameters and their gradients are
    not among them). `hosts`: can take an epilogue; `epilogue`: can become one; `bias`: adds a parameter; `scales`:
    multiplies all by one number.
    """

    name: str
    kind: OpKind
    work: Work | None
    reads: Mapping[str, float]
    writes: Mapping[str, float]
    hosts: bool = False
    epilogue: bool = False
    bias: bool = False
    scales: bool = False


@dataclass(frozen=True)
class OperatorContext:
    """Context that a rule may look at beside its operator.

    `parameters`: names of parameters and views of parameters. `differentiable`: tensors (parameters
    included) through which a gradient flows; empty for a forward-only workload. `sharding`: the degrees by
    which the tensors are divided already. `operands`: format of the products' operands; None, the tensor cores' own.
    """

    tensors: Mapping[str, Tensor]
    parameters: Collection[str]
    differentiable: Set[str]
    training: bool
    sharding: Sharding = field(default_factory=Sharding)
    operands: Format | None = None

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of a tensor."""
        return self.tensors[name].shape

    def elements(self, name: str) -> int:
        """Number of elements of a tensor."""
        return self.tensors[name].elements

    def bytes(self, name: str) -> float:
        """Bytes of a tensor."""
        return float(self.tensors[name].size_bytes)

    def activations(self, names: Iterable[str]) -> dict[str, float]:
        """Bytes of those of the tensors that are not parameters, each once."""
        return {t: self.bytes(t) for t in names if t not in self.parameters}

    def parameter_bytes(self, op: Operator) -> float:
        """Bytes of the parameters an operator reads."""
        return sum(self.bytes(t) for t in set(op.inputs) if t in self.parameters)


def gradient_of(op: Operator, tensor: str) -> str:
    """Name of the gradient that the backward of `op` contributes to `tensor`."""
    return f"d.{tensor}@{op.name}"


def view_step(name: str, reads: Mapping[str, float], writes: Mapping[str, float]) -> Step:
    """Build a step that costs nothing and only carries precedence."""
    return Step(name, OpKind.VIEW, None, reads, writes)


def vector_step(
    name: str,
    kind: OpKind,
    cycles: float,
    reads: Mapping[str, float],
    writes: Mapping[str, float],
    *,
    extra_bytes: float = 0.0,
    rows: int = 0,
    hosts: bool = False,
    epilogue: bool = False,
    bias: bool = False,
    scales: bool = False,
) -> Step:
    """Build a vector-core step; HBM traffic is every read and write once plus `extra_bytes`."""
    stream = sum(reads.values()) + sum(writes.values()) + extra_bytes
    work = Work(name, kind.value, Unit.VECTOR, vector_cycles=cycles, stream_bytes=stream, rows=rows)
    return Step(name, kind, work, reads, writes, hosts, epilogue, bias, scales)


def integer(op: Operator, key: str, default: int) -> int:
    """Read an integer attribute."""
    value = op.attributes.get(key, default)
    if not isinstance(value, int):
        msg = f"operator {op.name!r}: attribute {key!r} is {value!r}, not an integer"
        raise TypeError(msg)
    return value


def real(op: Operator, key: str, default: float) -> float:
    """Read an attribute that is any number."""
    value = op.attributes.get(key, default)
    if not isinstance(value, int | float):
        msg = f"operator {op.name!r}: attribute {key!r} is {value!r}, not a number"
        raise TypeError(msg)
    return float(value)


def extents(op: Operator, key: str) -> tuple[int, ...]:
    """Read a tuple attribute such as a kernel (empty if absent)."""
    value = op.attributes.get(key, ())
    if not isinstance(value, tuple):
        msg = f"operator {op.name!r}: attribute {key!r} is {value!r}, not a tuple"
        raise TypeError(msg)
    return value


def extent(op: Operator, key: str) -> int:
    """Product of a tuple attribute (1 if absent)."""
    return prod(extents(op, key))


def flag(op: Operator, key: str) -> bool:
    """Read a yes-or-no attribute (absent: no)."""
    return bool(op.attributes.get(key, False))


def word(op: Operator, key: str, default: str = "") -> str:
    """Read a textual attribute."""
    return str(op.attributes.get(key, default))
