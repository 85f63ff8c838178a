"""The registry of ONNX operators: each type with the converter that appends its operators to the graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType

from onnx import NodeProto

from phaze.workload.onnx.input_dimensions import RECURRENT
from phaze.workload.onnx.onnx_fused import ATTENTIONS, FUSED
from phaze.workload.onnx.onnx_lowering import Lowering
from phaze.workload.onnx.onnx_nodes import node_label, operator_type
from phaze.workload.onnx.onnx_products import (
    convert_convolution,
    convert_dynamic_quantisation,
    convert_einsum,
    convert_gemm,
    convert_global_pool,
    convert_integer_convolution,
    convert_integer_product,
    convert_matmul,
    convert_pool,
    convert_recurrent,
    convert_scaled_convolution,
    convert_scaled_product,
    convert_scaling,
)
from phaze.workload.onnx.onnx_vector import (
    REDUCTIONS,
    convert_batch_norm,
    convert_binary,
    convert_concat,
    convert_divide,
    convert_element_wise,
    convert_gather,
    convert_gelu,
    convert_hardmax,
    convert_local_response,
    convert_mish,
    convert_norm,
    convert_power,
    convert_power_pool,
    convert_prelu,
    convert_reduce,
    convert_reduction,
    convert_resize,
    convert_softmax,
    convert_split,
    convert_top_k,
    convert_transposed_convolution,
    convert_unit_norm,
    convert_variadic,
    convert_view,
    convert_where,
)

Converter = Callable[[Lowering, NodeProto], None]


def _registry() -> dict[str, Converter]:
    table: dict[str, Converter] = {
        "MatMul": convert_matmul,
        "Gemm": convert_gemm,
        "Conv": convert_convolution,
        "MaxPool": partial(convert_pool, "max"),
        "AveragePool": partial(convert_pool, "average"),
        "GlobalMaxPool": partial(convert_global_pool, "max"),
        "GlobalAveragePool": partial(convert_global_pool, "average"),
        "BatchNormalization": convert_batch_norm,
        "LRN": convert_local_response,
        "Softmax": convert_softmax,
        "LogSoftmax": convert_softmax,  # the logarithm replaces the division
        "Gather": convert_gather,
        "Concat": convert_concat,
        "Split": convert_split,
        "Add": partial(convert_binary, "add", "scale"),
        "Sub": partial(convert_binary, "sub", "scale"),
        "Mul": partial(convert_binary, "mul", "scale"),
        "Div": convert_divide,
        "Where": convert_where,
        "Pow": convert_power,
        "Sum": partial(convert_variadic, "add", "scale"),
        "Mean": partial(convert_variadic, "add", "scale"),
        "Max": partial(convert_variadic, "max", "clip"),
        "Min": partial(convert_variadic, "min", "clip"),
        "Gelu": convert_gelu,
        "PRelu": convert_prelu,
        "Mish": convert_mish,
        "ConvTranspose": convert_transposed_convolution,
        "Resize": convert_resize,
        "Upsample": convert_resize,
        "Einsum": convert_einsum,
        "TopK": convert_top_k,
        "Hardmax": convert_hardmax,
        "LpNormalization": convert_unit_norm,
        "LpPool": convert_power_pool,
        "GlobalLpPool": convert_power_pool,
        "CumSum": partial(convert_reduce, "sum"),
        "CumProd": partial(convert_reduce, "prod"),
        "Mod": partial(convert_binary, "div", "div"),
        "QuantizeLinear": convert_scaling,
        "DequantizeLinear": convert_scaling,
        "MatMulInteger": convert_integer_product,
        "ConvInteger": convert_integer_convolution,
        "QLinearMatMul": convert_scaled_product,
        "QLinearConv": convert_scaled_convolution,
        "DynamicQuantizeLinear": convert_dynamic_quantisation,
    }
    table |= dict.fromkeys(RECURRENT, convert_recurrent)
    table |= {**ATTENTIONS, **FUSED}
    norms = {
        "Layer": "layer",
        "RMS": "rms",
        "Instance": "instance",
        "Group": "group",
        "MeanVariance": "instance",
    }
    table |= {f"{prefix}Normalization": partial(convert_norm, function) for prefix, function in norms.items()}
    reductions = ("Mean", "Sum", "Max", "Min", "Prod")
    table |= {f"Reduce{name}": partial(convert_reduce, name.lower()) for name in reductions}
    table |= dict.fromkeys(REDUCTIONS, convert_reduction)
    table |= {"ArgMax": partial(convert_reduce, "argmax"), "ArgMin": partial(convert_reduce, "argmax")}
    table |= {name: partial(convert_element_wise, function) for name, function in ELEMENT_WISE.items()}
    return table | dict.fromkeys(MOVES, convert_view)


ELEMENT_WISE: Mapping[str, str] = MappingProxyType(
    {
        "Abs": "abs",
        "Acos": "sin",
        "Acosh": "log",
        "Asin": "sin",
        "Asinh": "log",
        "Atan": "sin",
        "Atanh": "log",
        "Ceil": "cast",
        "Celu": "elu",
        "Clip": "clip",
        "Cos": "cos",
        "Cosh": "tanh",
        "Dropout": "dropout",
        "Elu": "elu",
        "Erf": "erf",
        "Exp": "exp",
        "Floor": "cast",
        "HardSigmoid": "hard_sigmoid",
        "HardSwish": "hard_swish",
        "LeakyRelu": "leaky_relu",
        "Log": "log",
        "Neg": "neg",
        "Reciprocal": "div",
        "Relu": "relu",
        "Round": "cast",
        "Selu": "elu",
        "Sigmoid": "sigmoid",
        "Shrink": "clip",
        "Sign": "cast",
        "Sin": "sin",
        "Sinh": "tanh",
        "Softplus": "softplus",
        "Softsign": "div",
        "Sqrt": "sqrt",
        "Swish": "silu",
        "Tan": "sin",
        "Tanh": "tanh",
        "ThresholdedRelu": "relu",
        "Trilu": "where",
    }
)
"""Element-wise functions, as `elementwise_cycles.FUNCTIONS` calls them; what has no name there, by its nearest kin."""

MOVES = frozenset(
    {
        *("Cast", "CastLike", "Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose"),
        *("Slice", "Pad", "Expand", "Tile"),
        *("DepthToSpace", "SpaceToDepth"),
        *("GatherElements", "GatherND", "ScatterElements", "ScatterND"),
        *("And", "Or", "Xor", "Not", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"),
        *("IsNaN", "IsInf", "BitShift", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot", "BitCast"),
        *("OneHot", "ReverseSequence", "Scatter", "TensorScatter"),
    }
)
"""Data movement, comparisons and other work on bits (masks): no cost."""

MANY_RESULTS = frozenset({"Split", "TopK", "DynamicQuantizeLinear", *RECURRENT, *ATTENTIONS, *FUSED})
"""Operators whose converters make every result that is read."""

BY_PRODUCTS = frozenset({"Dropout", "MaxPool", "BatchNormalization", "LayerNormalization"})
"""Operators whose further results (masks, places, statistics) come with the first at no cost of their own."""

CONTROL_FLOW = frozenset({"If", "Loop", "Scan", "SequenceMap"})

CONVERTERS: Mapping[str, Converter] = MappingProxyType(_registry())
"""Converters by operator type, with its domain unless that is the standard one."""


def unsupported(node: NodeProto) -> str | None:
    """Report of an operator that cannot be converted; None for one that can."""
    name = operator_type(node)
    if name in CONTROL_FLOW:
        return f"control flow {node_label(node)}"
    return None if name in CONVERTERS else name
