"""Operators of transformer layers: products, norms, activations, softmax."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from phaze.validation.cases import Cases, Judged
from phaze.validation.chips import chip_of
from phaze.validation.columns import Columns
from phaze.validation.operators import elementwise, exchange, norm, product, softmax
from phaze.validation.sets.products import NO_TEMPLATE
from phaze.workload.work import Collective, Work

NOT_MODELLED = "operator not among those compared"

# Rows x columns of a 16-bit operator, by the name that the set gives it.
_VIDUR_VECTOR: Mapping[str, Callable[[int, int], Work]] = MappingProxyType(
    {
        "add": lambda rows, columns: elementwise("add", rows, columns, operands=2),
        "input_layernorm": lambda rows, columns: norm("rms", rows, columns),
        "post_attention_layernorm": lambda rows, columns: norm("rms", rows, columns),
    }
)
_LLMCOMPASS_VECTOR: Mapping[str, Callable[[int, int], Work]] = MappingProxyType(
    {
        "softmax": softmax,
        "layernorm": lambda rows, columns: norm("layer", rows, columns),
        "gelu": lambda rows, columns: elementwise("gelu_tanh", rows, columns),
    }
)


def vidur(columns: Columns) -> Judged:
    """Layers of language models in inference, by tokens and tensor-parallel width (kernel times)."""
    cases, latency = Cases(), columns.numbers("latency_ms_median") * 1e-3
    m, k, n = (columns.numbers(side) for side in "mkn")
    for row, (device, op, kind) in enumerate(
        zip(columns["device"], columns["op"], columns["kind"], strict=True)
    ):
        chip = chip_of(device)
        if chip is None:
            cases.drop(NO_TEMPLATE)
        elif kind == "gemm":
            cases.keep(chip, product(1, int(m[row]), int(k[row]), int(n[row])), float(latency[row]))
        elif op in _VIDUR_VECTOR:
            cases.keep(chip, _VIDUR_VECTOR[op](int(m[row]), int(n[row])), float(latency[row]))
        else:
            cases.drop(NOT_MODELLED)
    return cases.judge()


def llmcompass(columns: Columns) -> Judged:
    """Operators of A100 and MI210, launch overhead of the framework included."""
    cases, latency = Cases(), columns.numbers("latency_us") * 1e-6
    m, k, n = (columns.numbers(side) for side in "mkn")
    for row, (device, op) in enumerate(zip(columns["device"], columns["op"], strict=True)):
        chip = chip_of(device)
        if chip is None:
            cases.drop(NO_TEMPLATE)
        elif op == "matmul":
            cases.keep(chip, product(1, int(m[row]), int(k[row]), int(n[row])), float(latency[row]))
        elif op in _LLMCOMPASS_VECTOR:
            width = 1 if op == "gelu" else int(n[row])
            cases.keep(chip, _LLMCOMPASS_VECTOR[op](int(m[row]), width), float(latency[row]))
        else:
            cases.drop(NOT_MODELLED)
    return cases.judge()


def gpt3_layer(columns: Columns) -> Judged:
    """One layer of GPT-3 on four A100, prefill and decode, operator by operator."""
    cases, latency = Cases(), columns.numbers("latency_us") * 1e-6
    fields = ("tp", "batch", "seq_len", "kv_len", "hidden", "heads")
    numbers = {name: columns.numbers(name) for name in fields}
    for row, (device, phase, op) in enumerate(
        zip(columns["device"], columns["phase"], columns["op"], strict=True)
    ):
        chip = chip_of(device)
        sizes = {name: int(values[row]) for name, values in numbers.items()}
        tokens = sizes["batch"] * (sizes["seq_len"] if phase == "prefill" else 1)
        work = _gpt3_operator(op, tokens, sizes)
        if chip is None or work is None:
            cases.drop(NO_TEMPLATE if chip is None else NOT_MODELLED)
        else:
            cases.keep(chip, work, float(latency[row]))
    return cases.judge()


def _gpt3_operator(op: str, tokens: int, sizes: Mapping[str, int]) -> Work | None:
    """One operator of a layer on one of `tp` devices; `tokens` rows of activations."""
    h, share, batch = sizes["hidden"], sizes["hidden"] // sizes["tp"], sizes["batch"]
    heads, queries, keys = batch * sizes["heads"] // sizes["tp"], tokens // batch, sizes["kv_len"]
    head = h // sizes["heads"]
    makers: dict[str, Callable[[], Work]] = {
        "q_k_v_proj": lambda: product(1, tokens, h, 3 * share),
        "q_mul_k": lambda: product(heads, queries, head, keys),
        "a_mul_v": lambda: product(heads, queries, keys, head),
        "wo_proj": lambda: product(1, tokens, share, h),
        "w1_proj": lambda: product(1, tokens, h, 4 * share),
        "w2_proj": lambda: product(1, tokens, 4 * share, h),
        "softmax": lambda: softmax(heads * queries, keys),
        "layernorm_mha": lambda: norm("layer", tokens, h),
        "layernorm_ffn": lambda: norm("layer", tokens, h),
        "gelu": lambda: elementwise("gelu_tanh", tokens, 4 * share),
        "allreduce_mha": lambda: exchange(Collective.ALL_REDUCE, 2.0 * tokens * h, sizes["tp"]),
        "allreduce_ffn": lambda: exchange(Collective.ALL_REDUCE, 2.0 * tokens * h, sizes["tp"]),
    }
    return makers[op]() if op in makers else None
