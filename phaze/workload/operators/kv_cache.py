"""The key-value cache of inference: what is appended, what it holds, what reading it moves.

A contiguous cache has one run of memory for each sequence. A paged one (PagedAttention, Kwon et al., arXiv
2309.06180) hands out pages of some tokens: the last page of a sequence is as long as the others, in memory and
when it is read, and whoever reads looks the pages up in a table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum

from phaze.workload.operators.operator_graph import Operator, OpKind
from phaze.workload.operators.operator_steps import OperatorContext, Step, integer, vector_step
from phaze.workload.operators.state_rules import state_bytes

PAGE_TOKENS = 16  # vLLM's default block size (arXiv 2309.06180, section 7.2)
PAGE_ENTRY_BYTES = 4  # a page number, int32


class KvCache(StrEnum):
    """Layout of the key-value cache in memory."""

    CONTIGUOUS = "contiguous"
    PAGED = "paged"

    @property
    def page(self) -> int:
        """Tokens of a page; 0 where there are no pages."""
        return PAGE_TOKENS if self is KvCache.PAGED else 0


class CacheFormat(StrEnum):
    """Format of keys and values in the cache, where it is not that of the workload; one scale per tensor."""

    FP8 = "fp8"
    INT8 = "int8"

    @property
    def element_bytes(self) -> int:
        """Bytes of a value."""
        return 1


def cache_forward(op: Operator, ctx: OperatorContext) -> Step:
    """Move the new tokens' entries to their place, one cycle each; older entries stay where they are.

    Whoever makes the entries can write them there, in the format of the cache.
    """
    (x, *_), (cache, *_) = op.inputs, op.outputs
    cycles = float(ctx.elements(x))
    written = cycles * ctx.tensors[cache].element_bytes
    return vector_step(op.name, op.kind, cycles, {x: ctx.bytes(x)}, {cache: written}, epilogue=True)


def cache_backward(op: Operator, ctx: OperatorContext, gradients: Mapping[str, str]) -> tuple[Step, ...]:
    """Raise ValueError: a cache belongs to inference."""
    msg = f"operator {op.name!r}: a key-value cache has no gradient"
    raise ValueError(msg)


def cache_bytes(operators: Iterable[Operator], ctx: OperatorContext) -> float:
    """Bytes that the caches among the operators take in device memory, whole pages and the new entries included.

    States of recurrences, and the last tokens that a convolution sees, are of one size whatever went before.
    """
    return sum(_kept(op, ctx) for op in operators)


def _kept(op: Operator, ctx: OperatorContext) -> float:
    if op.kind is OpKind.CACHE:
        return _in_pages(op.outputs[0], integer(op, "page", 0), ctx)
    return state_bytes(op, ctx) if op.kind is OpKind.RECURRENCE else history_bytes(op, ctx)


def history_bytes(op: Operator, ctx: OperatorContext) -> float:
    """Bytes of the last tokens that an operator keeps (`history`) for the next ones; 0 where it keeps none."""
    tokens = integer(op, "history", 0)
    return ctx.bytes(op.outputs[0]) / ctx.shape(op.outputs[0])[1] * tokens if tokens else 0.0


def cache_reads(tensors: Iterable[str], page: int, ctx: OperatorContext) -> float:
    """Bytes moved beyond the tensors' own when an operator reads a paged cache: page tails and page tables."""
    if not page:
        return 0.0
    beyond = 0.0
    for t in tensors:
        batch, tokens, *_ = ctx.shape(t)
        table = PAGE_ENTRY_BYTES * batch * -(-tokens // page)
        beyond += _in_pages(t, page, ctx) - ctx.bytes(t) + table
    return beyond


def _in_pages(tensor: str, page: int, ctx: OperatorContext) -> float:
    """Bytes of a cache (batch, tokens, width) in whole pages."""
    tokens = ctx.shape(tensor)[1]
    return ctx.bytes(tensor) / tokens * (-(-tokens // page) * page) if page else ctx.bytes(tensor)
