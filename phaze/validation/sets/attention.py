"""Fused attention kernels, prefill and decode."""

from __future__ import annotations

from collections.abc import Sequence

from phaze.validation.cases import Cases, Judged
from phaze.validation.chips import chip_of
from phaze.validation.columns import Columns
from phaze.validation.operators import attention
from phaze.validation.sets.products import NO_TEMPLATE
from phaze.validation.timer import timer_of

_SIZES = ("batch", "q_len", "kv_len", "heads", "kv_heads", "head_dim")
# TensorRT-LLM takes projections as one tensor: a kernel before the first one of a sequence rotates queries and
# keys and sorts keys and values into the cache; vLLM's attention finds them there.
_SORTS_FIRST = "TRTLLM"


_CONTEXT, _GENERATION = (f"op_attention_{phase}_aiconfigurator" for phase in ("context", "generation"))


def aiconfigurator_context(columns: Columns) -> Judged:
    """Causal attention of whole sequences in bf16, with the kernel before it where the framework needs one."""
    return _judge(columns, _CONTEXT, [name.startswith(_SORTS_FIRST) for name in columns["framework"]])


def aiconfigurator_generation(columns: Columns) -> Judged:
    """One query per sequence on a key-value cache, in bf16."""
    return _judge(columns, _GENERATION, [False] * columns.rows)


def _judge(columns: Columns, data_set: str, staged: Sequence[bool]) -> Judged:
    cases, latency = Cases(), columns.numbers("latency_ms") * 1e-3
    sizes = [columns.numbers(name) for name in _SIZES]
    for row, device in enumerate(columns["device"]):
        chip = chip_of(device)
        if chip is None:
            cases.drop(NO_TEMPLATE)
            continue
        batch, queries, keys, heads, kv_heads, head = (int(values[row]) for values in sizes)
        work = attention(
            batch, queries, keys, heads, kv_heads, head, causal=True, staged=staged[row], warm=True
        )
        cases.keep(chip, work, float(latency[row]), timer_of(data_set, device))
    return cases.judge()
