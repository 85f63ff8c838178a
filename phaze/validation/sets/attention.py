"""Fused attention kernels, prefill and decode."""

from __future__ import annotations

from phaze.validation.cases import Cases, Judged
from phaze.validation.chips import chip_of
from phaze.validation.columns import Columns
from phaze.validation.operators import attention
from phaze.validation.sets.products import NO_TEMPLATE

_SIZES = ("batch", "q_len", "kv_len", "heads", "kv_heads", "head_dim")


def aiconfigurator(columns: Columns) -> Judged:
    """Causal attention in bf16: whole sequences, or one query per sequence on a key-value cache."""
    cases, latency = Cases(), columns.numbers("latency_ms") * 1e-3
    sizes = [columns.numbers(name) for name in _SIZES]
    for row, device in enumerate(columns["device"]):
        chip = chip_of(device)
        if chip is None:
            cases.drop(NO_TEMPLATE)
            continue
        batch, queries, keys, heads, kv_heads, head = (int(values[row]) for values in sizes)
        work = attention(batch, queries, keys, heads, kv_heads, head, causal=queries > 1)
        cases.keep(chip, work, float(latency[row]))
    return cases.judge()
