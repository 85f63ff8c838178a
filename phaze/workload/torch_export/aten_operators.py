"""The table of aten operators: each name with the rule that appends its operators to the graph."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import partial
from types import MappingProxyType

from phaze.errors import InputError
from phaze.workload.operators.recurrent_layers import Cell
from phaze.workload.torch_export import aten_products, aten_vector, aten_views
from phaze.workload.torch_export.aten_composed import COMPOSED
from phaze.workload.torch_export.aten_lowering import LOSSES, Rule
from phaze.workload.torch_export.exported_program import Node, Program

_FUNCTIONS = {
    **{name: name for name in ("relu", "leaky_relu", "elu", "silu", "sigmoid", "softplus", "tanh", "erf")},
    **{name: name for name in ("exp", "log", "sqrt", "sin", "cos", "abs", "neg")},
    **dict.fromkeys(("clamp", "clamp_min", "clamp_max", "clip", "hardtanh", "relu6"), "clip"),
    **dict.fromkeys(("floor", "ceil", "round", "trunc", "sign"), "cast"),
    **dict.fromkeys(("selu", "celu", "expm1"), "elu"),
    **dict.fromkeys(("feature_dropout", "alpha_dropout"), "dropout"),
    **dict.fromkeys(("cumsum", "logcumsumexp", "cumprod"), "scale"),  # one operation per element
    **dict.fromkeys(("tril", "triu"), "where"),
    **dict.fromkeys(("tan", "atan", "asin", "acos", "arctan"), "sin"),
    **dict.fromkeys(("sinh", "cosh", "exp2"), "exp"),
    **dict.fromkeys(("erfc", "erfinv", "special_erf"), "erf"),
    **dict.fromkeys(("softshrink", "hardshrink", "nan_to_num"), "clip"),
    **dict.fromkeys(("frac", "fix", "sgn"), "cast"),
    "absolute": "abs",
    "negative": "neg",
    "special_expit": "sigmoid",
    "rrelu": "leaky_relu",
    "hardsigmoid": "hard_sigmoid",
    "hardswish": "hard_swish",
    "log1p": "log",
    "log2": "log",
    "log_sigmoid": "softplus",
    "reciprocal": "div",
    "rsqrt": "sqrt",
    "softsign": "div",
    "square": "mul",
    "threshold": "relu",
}
"""Functions of one tensor, as `elementwise_cycles.FUNCTIONS` calls them; what has no name there, by its nearest kin."""

_BINARY = {
    **dict.fromkeys(("add", "__add__"), ("add", "scale")),
    **dict.fromkeys(("sub", "rsub", "subtract"), ("sub", "scale")),
    **dict.fromkeys(("mul", "multiply"), ("mul", "scale")),
    **dict.fromkeys(("remainder", "fmod"), ("div", "scale")),
    "maximum": ("max", "clip"),
    "minimum": ("min", "clip"),
}

_ATTENTION = ("", "_flash", "_efficient", "_cudnn", "_fused")
_SPACES = ("1d", "2d", "3d")


def _products() -> dict[str, Rule]:
    table: dict[str, Rule] = {"linear": aten_products.linear, "einsum": aten_products.einsum}
    for name, arguments in {
        "mm": ("self", "mat2", ""),
        "bmm": ("self", "mat2", ""),
        "matmul": ("self", "other", ""),
        "addmm": ("mat1", "mat2", "self"),
        "baddbmm": ("batch1", "batch2", "self"),
        "mv": ("self", "vec", ""),
        "addmv": ("mat", "vec", "self"),
    }.items():
        table[name] = partial(aten_products.product, *arguments)
    stem = "scaled_dot_product"
    table |= {f"_{stem}{kind}_attention": aten_products.attention for kind in _ATTENTION}
    return table | {
        f"{stem}_attention": aten_products.attention,
        "flex_attention": aten_products.attention,
        f"_{stem}_flash_attention_for_cpu": aten_products.attention,
    }


def _spatial() -> dict[str, Rule]:
    table: dict[str, Rule] = {
        "convolution": aten_products.convolution,
        "conv_transpose": aten_products.convolution,
    }
    for space in _SPACES:
        table[f"conv{space}"] = aten_products.convolution
        table[f"conv_transpose{space}"] = aten_products.transposed_convolution
        for function, word in (("max", "max"), ("average", "avg")):
            table[f"{word}_pool{space}"] = partial(aten_products.pool, function)
            table[f"adaptive_{word}_pool{space}"] = partial(aten_products.adaptive_pool, function)
            table[f"_adaptive_{word}_pool{space}"] = partial(aten_products.adaptive_pool, function)
        table[f"max_pool{space}_with_indices"] = partial(aten_products.pool, "max")
    kernels = {"linear1d": 2, "bilinear2d": 2, "trilinear3d": 2, "bicubic2d": 4}
    smooth = {f"_upsample_{k}_aa": n for k, n in kernels.items()} | {
        f"upsample_{k}": n for k, n in kernels.items()
    }
    return table | {name: partial(aten_products.interpolation, n) for name, n in smooth.items()}


def _norms() -> dict[str, Rule]:
    kinds = {
        "layer": ("layer_norm", "native_layer_norm"),
        "rms": ("rms_norm", "_fused_rms_norm"),
        "group": ("group_norm", "native_group_norm"),
        "instance": ("instance_norm",),
    }
    table: dict[str, Rule] = {
        name: partial(aten_vector.norm, function) for function, names in kinds.items() for name in names
    }
    plain = ("batch_norm", "native_batch_norm", "_native_batch_norm_legit", "_batch_norm_with_update")
    variants = ("_native_batch_norm_legit_no_training", "_native_batch_norm_legit_functional")
    return table | dict.fromkeys((*plain, *variants), aten_vector.batch_norm)


def _reductions() -> dict[str, Rule]:
    table: dict[str, Rule] = {
        name: partial(aten_vector.reduce, name.removeprefix("a"))
        for name in ("sum", "mean", "prod", "amax", "amin")
    }
    table |= {name: partial(aten_vector.reduce, "argmax") for name in ("argmax", "argmin")}
    table |= dict.fromkeys(("any", "all"), partial(aten_vector.reduce, "max"))
    table |= {name: partial(aten_vector.extremes, name) for name in ("max", "min")}
    table |= dict.fromkeys(("topk", "sort", "argsort"), partial(aten_vector.extremes, "max"))
    table |= dict.fromkeys(
        ("linalg_vector_norm", "norm"), partial(aten_vector.composed_reduction, "mul", "sqrt")
    )
    table["logsumexp"] = partial(aten_vector.composed_reduction, "exp", "log")
    table |= dict.fromkeys(("var", "var_mean"), partial(aten_vector.variance, ""))
    return table | dict.fromkeys(("std", "std_mean"), partial(aten_vector.variance, "sqrt"))


def _registry() -> dict[str, Rule]:
    table: dict[str, Rule] = {
        name: partial(aten_vector.unary, function) for name, function in _FUNCTIONS.items()
    }
    table |= {name: partial(aten_vector.binary, *functions) for name, functions in _BINARY.items()}
    table |= dict.fromkeys(("div", "divide", "true_divide", "floor_divide"), aten_vector.divide)
    table |= dict.fromkeys(("where", "masked_fill"), aten_vector.chosen)
    table |= dict.fromkeys(("outer", "ger"), aten_vector.outer)
    table |= dict.fromkeys(("softmax", "_softmax", "log_softmax", "_log_softmax"), aten_vector.softmax)
    table |= dict.fromkeys(("dropout", "native_dropout"), aten_vector.dropout)
    bags = ("embedding_bag", "_embedding_bag", "_embedding_bag_forward_only")
    table |= {"embedding": aten_vector.embedding, **dict.fromkeys(bags, aten_vector.embedding_bag)}
    table |= dict.fromkeys(LOSSES, aten_vector.cross_entropy)
    table |= {
        "gelu": aten_vector.gelu,
        "mish": aten_vector.mish,
        "glu": aten_vector.gated,
        "pow": aten_vector.power,
    }
    table |= dict.fromkeys(aten_views.VIEWS, aten_views.view)
    table |= {"index": aten_vector.index, "index_select": aten_vector.index, "copy": aten_views.copied}
    table |= {"broadcast_tensors": aten_views.broadcast}
    table |= dict.fromkeys(aten_views.IDENTITIES, aten_views.identity)
    table |= {name: partial(aten_views.complex_view, made) for name, made in aten_views.COMPLEX.items()}
    table |= {"detach": aten_views.detach, **dict.fromkeys(("prelu", "_prelu_kernel"), aten_vector.prelu)}
    table |= dict.fromkeys(aten_views.SPLITS, aten_views.split) | dict.fromkeys(
        aten_views.JOINS, aten_views.join
    )
    cells = {"lstm": Cell.LSTM, "gru": Cell.GRU, "rnn_tanh": Cell.RNN}
    table |= {name: partial(aten_products.recurrent, cell) for name, cell in cells.items()}
    return table | _products() | _spatial() | _norms() | _reductions() | COMPOSED


RULES: Mapping[str, Rule] = MappingProxyType(_registry())
"""Rules by the operator's name without overload."""

FREE = (
    aten_views.VIEWS | aten_views.IDENTITIES | aten_views.SPLITS | aten_views.JOINS | set(aten_views.COMPLEX)
)
"""Operators that only move data."""


def is_work(node: Node) -> bool:
    """Whether a node computes anything."""
    return node.operator not in FREE


def check_supported(program: Program, nodes: Iterable[Node]) -> None:
    """Raise InputError naming the first node without a rule and how many others there are."""
    unknown = [node for node in nodes if node.operator not in RULES]
    if not unknown:
        return
    first, *others = unknown
    where = f" in module {first.module!r}" if first.module else ""
    listed = ", ".join(
        f"{name} ({count})" for name, count in sorted(Counter(n.target for n in others).items())
    )
    raise InputError(
        f"{program.source}: unsupported operator {first.target} (node {first.name!r}{where})"
        + (f"; {len(others)} more unsupported: {listed}" if others else "")
    )
