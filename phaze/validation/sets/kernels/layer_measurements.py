"""Operators of transformer layers: products, norms, activations, softmax, and fused attention in prefill and decode."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from phaze.validation.measured.measured_cases import Cases, Judged, timer_of
from phaze.validation.measured.measured_systems import chip_of
from phaze.validation.measured.measurement_columns import Columns
from phaze.validation.measured.single_operators import (
    attention,
    elementwise,
    exchange,
    gated,
    norm,
    product,
    softmax,
)
from phaze.validation.sets.kernels.gemm_measurements import NO_TEMPLATE
from phaze.validation.sets.kernels.vector_measurements import NOT_MODELLED, compiled
from phaze.workload.work import Collective, Work

_VIDUR, _LLMCOMPASS = "op_llm_layer_vidur_fp16", "op_llmcompass_fp16"
Maker = Callable[[int, int], tuple[Work, ...]]
_SIXTEEN_BITS = 2.0


def _add(rows: int, columns: int) -> tuple[Work, ...]:
    return (elementwise("add", rows, columns, operands=2),)


def _by_element(make: Callable[[int, int], Work]) -> Maker:
    """A kernel of vLLM: one block of threads walks a row, each thread an element at a time."""

    def works(rows: int, columns: int) -> tuple[Work, ...]:
        return (replace(make(rows, columns), rows=rows, access_bytes=_SIXTEEN_BITS),)

    return works


# Kernels of a 16-bit operator of rows x columns, by the name that the set gives it.
_VIDUR_VECTOR: Mapping[str, Maker] = MappingProxyType(
    {
        "add": _add,
        **dict.fromkeys(
            ("input_layernorm", "post_attention_layernorm"), _by_element(lambda m, n: norm("rms", m, n))
        ),
        "mlp_act": _by_element(lambda m, n: gated("swiglu", m, n)),
        "attn_rope": _by_element(lambda m, n: elementwise("rope", m, n)),
    }
)
# Phi-2 computes attention and feed-forward side by side, from one layer norm, without a gate.
_VIDUR_PHI: Mapping[str, Maker] = MappingProxyType(
    {
        **_VIDUR_VECTOR,
        "add": lambda rows, columns: 2 * _add(rows, columns),
        "input_layernorm": lambda rows, columns: (norm("layer", rows, columns),),
        "mlp_act": lambda rows, columns: (elementwise("gelu", rows, columns),),
    }
)
# Rows x columns x bytes of an element.
_LLMCOMPASS_VECTOR: Mapping[str, Callable[[int, int, int], Work]] = MappingProxyType(
    {
        "softmax": softmax,
        "layernorm": lambda rows, columns, size: norm("layer", rows, columns, size),
        "gelu": lambda rows, columns, size: compiled("gelu_tanh", rows, columns, 1, size),
    }
)


# Operators of the GPT-3 layer are timed as those of the same authors' other set.
_TIMED_AS: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(("q_k_v_proj", "q_mul_k", "a_mul_v", "wo_proj", "w1_proj", "w2_proj"), "matmul"),
        **dict.fromkeys(("layernorm_mha", "layernorm_ffn"), "layernorm"),
    }
)


def vidur(columns: Columns) -> Judged:
    """Layers of language models in inference, by tokens and tensor-parallel width (kernel times)."""
    cases, latency = Cases(), columns.numbers("latency_ms_median") * 1e-3
    m, k, n = (columns.numbers(side) for side in "mkn")
    names = zip(columns["device"], columns["model"], columns["op"], columns["kind"], strict=True)
    for row, (device, model, op, kind) in enumerate(names):
        chip, measured, timer = chip_of(device), float(latency[row]), timer_of(_VIDUR, device, op)
        makers = _VIDUR_PHI if model.endswith("phi-2") else _VIDUR_VECTOR
        if chip is None:
            cases.drop(NO_TEMPLATE)
        elif kind == "gemm":
            cases.keep(chip, product(1, int(m[row]), int(k[row]), int(n[row])), measured, timer)
        elif op in makers:
            cases.keep(chip, makers[op](int(m[row]), int(n[row])), measured, timer)
        else:
            cases.drop(NOT_MODELLED)
    return cases.judge()


def llmcompass(columns: Columns) -> Judged:
    """Operators of A100 and MI210, launch overhead of the framework included."""
    cases, latency = Cases(), columns.numbers("latency_us") * 1e-6
    m, k, n = (columns.numbers(side) for side in "mkn")
    names = zip(columns["device"], columns["op"], columns["dtype"], strict=True)
    for row, (device, op, dtype) in enumerate(names):
        chip, measured, timer = chip_of(device), float(latency[row]), timer_of(_LLMCOMPASS, device, op)
        if chip is None:
            cases.drop(NO_TEMPLATE)
        elif op == "matmul":
            cases.keep(chip, product(1, int(m[row]), int(k[row]), int(n[row])), measured, timer)
        elif op in _LLMCOMPASS_VECTOR:
            width, size = 1 if op == "gelu" else int(n[row]), 4 if dtype.startswith("fp32") else 2
            cases.keep(chip, _LLMCOMPASS_VECTOR[op](int(m[row]), width, size), measured, timer)
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
            cases.keep(chip, work, float(latency[row]), timer_of(_LLMCOMPASS, device, _TIMED_AS.get(op, op)))
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
        "gelu": lambda: compiled("gelu_tanh", tokens, 4 * share, 1, 2),
        "allreduce_mha": lambda: exchange(Collective.ALL_REDUCE, 2.0 * tokens * h, sizes["tp"]),
        "allreduce_ffn": lambda: exchange(Collective.ALL_REDUCE, 2.0 * tokens * h, sizes["tp"]),
    }
    return makers[op]() if op in makers else None


_SIZES = ("batch", "q_len", "kv_len", "heads", "kv_heads", "head_dim")
# TensorRT-LLM takes projections as one tensor: a kernel before the first one of a sequence rotates queries and
# keys and sorts keys and values into the cache; vLLM's attention finds them there.
_SORTS_FIRST = "TRTLLM"


def sorts_first(framework: str) -> bool:
    """Whether an engine's attention over sequences begins with a kernel that rotates and sorts."""
    return framework.upper().startswith(_SORTS_FIRST)


_CONTEXT, _GENERATION = (f"op_attention_{phase}_aiconfigurator" for phase in ("context", "generation"))


def aiconfigurator_context(columns: Columns) -> Judged:
    """Causal attention of whole sequences in bf16, with the kernel before it where the framework needs one."""
    return _judge(columns, _CONTEXT, [sorts_first(name) for name in columns["framework"]])


def aiconfigurator_generation(columns: Columns) -> Judged:
    """One query per sequence on a key-value cache, in bf16."""
    return _judge(columns, _GENERATION, [False] * columns.rows)


# Long caches in 16 and in 8 bits alike are read 1.65 times (A100) and 1.73 times (GB200) as fast as memory can; kernels
# of other chips reach 0.86 to 0.91 of it, and those two as much where one byte of two comes from memory.
_ALIASED = re.compile("B[23]00")
_ALIASED_GROUPS = re.compile("A100")


def aliased_cache(device: str, framework: str, heads: int, kv_heads: int) -> bool:
    """Whether keys and values of a decoding row were the same bytes: TensorRT-LLM's kernels for Blackwell in data
    centres, and those for grouped heads on A100.
    """
    return sorts_first(framework) and bool(
        _ALIASED.search(device) or (heads > kv_heads and _ALIASED_GROUPS.search(device))
    )


def _judge(columns: Columns, data_set: str, staged: Sequence[bool]) -> Judged:
    cases, latency = Cases(), columns.numbers("latency_ms") * 1e-3
    sizes = [columns.numbers(name) for name in _SIZES]
    for row, (device, framework) in enumerate(zip(columns["device"], columns["framework"], strict=True)):
        chip = chip_of(device)
        if chip is None:
            cases.drop(NO_TEMPLATE)
            continue
        batch, queries, keys, heads, kv_heads, head = (int(values[row]) for values in sizes)
        aliased = queries == 1 and aliased_cache(device, framework, heads, kv_heads)
        work = attention(
            *(batch, queries, keys, heads, kv_heads, head),
            causal=True,
            staged=staged[row],
            warm=True,
            aliased=aliased,
        )
        cases.keep(chip, work, float(latency[row]), timer_of(data_set, device))
    return cases.judge()
