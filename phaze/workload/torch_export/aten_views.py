"""Operators that only move data: VIEW, without cost, as in the ONNX front end."""

from __future__ import annotations

from phaze.workload.operators.operator_graph import OpKind
from phaze.workload.torch_export.aten_lowering import Lowering
from phaze.workload.torch_export.exported_program import Node

IDENTITIES = frozenset(
    {
        *(
            "alias",
            "clone",
            "contiguous",
            "detach",
            "lift_fresh_copy",
            "view_as",
            "reshape_as",
            "resolve_conj",
        ),
        *("resolve_neg", "positive", "expand_as", "to", "_to_copy", "type_as", "float", "half", "double"),
    }
)
"""Operators that hand on their first argument, perhaps in another layout or element type."""

VIEWS = frozenset(
    {
        *("view", "reshape", "_unsafe_view", "_reshape_alias", "flatten", "unflatten", "ravel"),
        *("permute", "transpose", "t", "mT", "mH", "numpy_T", "swapaxes", "swapdims", "movedim", "moveaxis"),
        *("expand", "broadcast_to", "repeat", "tile", "repeat_interleave", "roll", "flip"),
        *("squeeze", "unsqueeze", "slice", "narrow", "select", "diagonal", "as_strided", "unfold", "im2col"),
        *("pad", "constant_pad_nd", "reflection_pad1d", "reflection_pad2d", "reflection_pad3d"),
        *("replication_pad1d", "replication_pad2d", "replication_pad3d", "rot90", "fliplr", "flipud"),
        *("index", "index_select", "gather", "take_along_dim"),
        *("pixel_shuffle", "pixel_unshuffle", "channel_shuffle", "native_channel_shuffle"),
        *("upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d", "one_hot"),
        *(
            "_upsample_nearest_exact1d",
            "_upsample_nearest_exact2d",
            "_upsample_nearest_exact3d",
            "real",
            "imag",
        ),
        *("eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_not", "logical_xor"),
        *("bitwise_and", "bitwise_or", "bitwise_not", "isnan", "isinf", "isfinite", "__and__", "__or__"),
    }
)
"""Data movement, and comparisons (masks): one result, no cost."""

SPLITS = frozenset({"split", "split_with_sizes", "chunk", "unbind", "tensor_split", "unsafe_split", "hsplit"})
SPLITS |= {"vsplit", "dsplit", "unsafe_chunk"}
"""Views with several results."""

JOINS = frozenset(
    {
        *("cat", "concat", "stack", "hstack", "vstack", "slice_scatter", "select_scatter"),
        *("scatter", "index_put", "index_copy", "masked_scatter"),
        *("concatenate", "dstack", "column_stack", "row_stack", "diagonal_scatter"),
    }
)
"""Views of several tensors."""

COMPLEX = {"view_as_complex": "pairs", "view_as_real": "real"}
"""Views of pairs of numbers as complex ones and back, and what they make."""

GENERATORS = frozenset(
    {
        *("empty_like", "zeros_like", "ones_like", "full_like", "rand_like", "randn_like"),
        *("new_empty", "new_zeros", "new_ones", "new_full", "new_tensor", "zero", "fill"),
        *("bernoulli", "uniform", "normal", "exponential", "randint_like", "histc", "bincount"),
    }
)
"""Operators that read only the shape of their argument, draw from it, or count in it."""

_TRANSPOSES = frozenset({"t", "transpose", "permute", "mT", "numpy_T", "swapaxes"})


def view(low: Lowering, node: Node) -> str:
    """One tensor in, one out; what else is read says how to move it."""
    source = next((t for name in node.reads() if (t := low.operand(name)) is not None), None)
    if source is None:
        raise low.error(node, "reads nothing that is computed")
    made = low.add(node, OpKind.VIEW, [source])
    if node.operator in _TRANSPOSES and low.is_matrix(source) and low.shape(made) != low.shape(source):
        low.transposes[made] = source
    return made


def identity(low: Lowering, node: Node) -> str:
    """The first argument itself; a view where the shape or element size changes."""
    source = low.first(node)
    same = low.shape(source) == low.shape_of(node) and low.element_bytes(source) == low.bytes_of(node)
    return source if same else low.add(node, OpKind.VIEW, [source])


def complex_view(meaning: str, low: Lowering, node: Node) -> str:
    """Pairs of numbers as complex ones, or complex numbers as pairs of `real` ones."""
    return low.add(node, OpKind.VIEW, [low.first(node)], complex=meaning)


def detach(low: Lowering, node: Node) -> str:
    """The first argument under another name, which no gradient passes."""
    return low.add(node, OpKind.VIEW, [low.first(node)], detached=True)


def split(low: Lowering, node: Node) -> tuple[str, ...]:
    """One view with all the pieces that are read."""
    label = low.label(node)
    pieces = {f"{label}.{i}": low.shape_of(node, i) for i in range(len(node.outputs))}
    return low.builder.split_into(label, low.first(node), pieces)


def broadcast(low: Lowering, node: Node) -> tuple[str, ...]:
    """Each tensor in the shape of all."""
    factors = (low.factor(node, name, str(i)) for i, name in enumerate(node.reads()))
    return tuple(low.view(node, t, low.shape_of(node, i), f"wide{i}") for i, t in enumerate(factors))


def join(low: Lowering, node: Node) -> str:
    """Joins activations and parameters (such as a class token)."""
    return low.add(node, OpKind.VIEW, low.operands(node.reads()))


def copied(low: Lowering, node: Node) -> str:
    """`copy`: what is written over the first argument."""
    return low.add(node, OpKind.VIEW, [low.tensor(node, "src")])
