"""A program as `torch.export` records it, described without torch: nodes with their arguments, tensors, parameters.

Readers (`pt2_archive.py` for files, `torch_tracing.py` for modules) make these descriptions; everything after
needs no torch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

Shape = tuple[int, ...]

INTEGER_BYTES: Mapping[str, int] = {
    "bool": 1,
    "uint8": 1,
    "int8": 1,
    "uint16": 2,
    "int16": 2,
    "uint32": 4,
    "int32": 4,
    "uint64": 8,
    "int64": 8,
    "complex32": 4,
    "complex64": 4,
    "complex128": 4,
}
"""Bytes of the element types that are no real numbers; complex ones are two real ones of 16 bits."""


@dataclass(frozen=True, slots=True)
class Ref:
    """An argument that is a tensor, by name."""

    tensor: str


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """Shape and element type (`float32`, `int64`, ...) of a tensor."""

    shape: Shape
    dtype: str


_LIBRARIES = ("aten", "transformers", "phaze")


@dataclass(frozen=True, slots=True)
class Node:
    """One call of an operator.

    `target` is its full name (`aten.linear.default`). `arguments` go by the names of the operator's schema,
    those left at their defaults are absent; a value is a number, a word, None, a Ref or a tuple of them.
    `outputs` are tensor names, `module` the dotted path of the module that made the call. `detached`: it runs under
    `no_grad`, or is a `detach`, so that no gradient passes.
    """

    name: str
    target: str
    arguments: Mapping[str, object]
    outputs: tuple[str, ...]
    module: str = ""
    detached: bool = False

    @property
    def operator(self) -> str:
        """Name without library, overload and the underscore of in-place variants: `add` of `aten.add_.Tensor`."""
        parts = self.target.split(".")
        base = parts[1] if parts[0] in _LIBRARIES and len(parts) > 1 else self.target
        return base[:-1] if self.is_in_place else base

    @property
    def is_in_place(self) -> bool:
        """Whether the operator overwrites its first argument."""
        base = self.target.split(".")[1] if self.target.startswith("aten.") else ""
        return base.endswith("_") and not base.endswith("__")

    def get(self, argument: str, default: object = None) -> object:
        """Value of an argument."""
        return self.arguments.get(argument, default)

    def reads(self) -> Iterator[str]:
        """Names of the tensors among the arguments, in order."""
        for value in self.arguments.values():
            yield from tensors_in(value)


@dataclass(frozen=True)
class Program:
    """A recorded program at one batch.

    `source` is how errors call it. `parameters` and `buffers` map tensor names to names in the model (tied
    parameters to the same one); `inputs` are the tensors that come from outside. `frozen`: tensor names of the
    parameters that ask for no gradient.
    """

    source: str
    batch: int
    nodes: tuple[Node, ...]
    tensors: Mapping[str, TensorInfo]
    inputs: tuple[str, ...]
    parameters: Mapping[str, str]
    buffers: Mapping[str, str]
    outputs: tuple[str, ...]
    frozen: frozenset[str] = frozenset()


_BESIDE = ("hidden_state", "attentions", "past_key", "cache", "outputs", "router")
"""Parts of the names under which a model hands out what it computed on the way to its `logits`."""


def results_of(outputs: Sequence[str | None], fields: Sequence[tuple[str, int]]) -> tuple[str, ...]:
    """Tensors among the outputs, in order; beside named logits not states, caches and weights of attention.

    `fields`: name of each entry that a model hands out, and how many of the outputs are in it; empty where it hands
    out no names.
    """
    names = [name for name, count in fields for _ in range(count)]
    if len(names) != len(outputs) or not any("logits" in name for name in names):
        return tuple(t for t in outputs if t is not None)
    kept = zip(outputs, names, strict=True)
    return tuple(t for t, name in kept if t is not None and not any(part in name for part in _BESIDE))


def tensors_in(value: object) -> Iterator[str]:
    """Names of the tensors in an argument."""
    if isinstance(value, Ref):
        yield value.tensor
    elif isinstance(value, tuple):
        for item in value:
            yield from tensors_in(item)


def integer(node: Node, argument: str, default: int) -> int:
    """A whole number."""
    value = node.get(argument, default)
    return int(value) if isinstance(value, int | float) else default


def number(node: Node, argument: str) -> float | None:
    """A number, None where the argument is a tensor or absent."""
    value = node.get(argument)
    return float(value) if isinstance(value, int | float) else None


def per_axis(node: Node, argument: str, axes: int, default: int) -> tuple[int, ...]:
    """One number per spatial axis; a single number stands for all, an empty list for the default."""
    value = node.get(argument, default)
    given = (
        value if isinstance(value, tuple) and value else (value,) if isinstance(value, int) else (default,)
    )
    sizes = tuple(int(str(size)) for size in given)
    return sizes * axes if len(sizes) == 1 else sizes
