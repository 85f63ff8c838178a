"""Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434), of all keys or of those that an indexer chooses
(DeepSeek-V3.2, arXiv 2512.02556)."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from pydantic import Field

from phaze.workload.families.model_family import Count, Strict
from phaze.workload.families.transformer_blocks import Transformer
from phaze.workload.families.transformer_operators import Heads, Mask, Parts, mix
from phaze.workload.operators.index_rules import CHOICE_BYTES
from phaze.workload.operators.operator_graph import OpKind
from phaze.workload.sharding.shard_roles import Shard
from phaze.workload.workload import Attention


class Latent(Strict):
    """Sizes of latent attention, by their names in DeepSeek's configurations."""

    kv_lora_rank: Annotated[Count, Field(description="width that keys and values are made from")]
    qk_nope_head_dim: Annotated[Count, Field(description="elements of a query's head without rotation")]
    qk_rope_head_dim: Annotated[Count, Field(description="elements with rotation; keys share them")]
    v_head_dim: Annotated[Count, Field(description="elements of a value's head")]
    q_lora_rank: Annotated[
        Count | None, Field(description="width that queries are made from (default: the hidden width)")
    ] = None

    @property
    def size(self) -> int:
        """Elements of a query's and a key's head."""
        return self.qk_nope_head_dim + self.qk_rope_head_dim

    def folds(self, tokens: int, context: int) -> bool:
        """Whether attention on latent vectors multiplies less than unfolding those of the context for it.

        Per head: tokens (tokens + context) (2 rank + rotated) against context rank (nope + value) + tokens
        (tokens + context) (nope + rotated + value).
        """
        made = self.qk_nope_head_dim + self.v_head_dim
        wider = 2 * self.kv_lora_rank - made
        return tokens * (tokens + context) * wider < context * self.kv_lora_rank * made


class Indexer(Strict):
    """Sizes of the indexer that chooses keys for every query, by their names in DeepSeek's configurations."""

    index_n_heads: Annotated[Count, Field(description="heads that score the keys")]
    index_head_dim: Annotated[Count, Field(description="elements of a head, and of a key")]
    index_topk: Annotated[Count, Field(description="keys that a query attends to")]


INDEX_SCALE_BYTES = (
    4  # of a key of the indexer in the cache, whose elements are fp8 (vLLM's deepseek_v2: 132 bytes)
)


def latent_attention(
    t: Transformer, sizes: Latent, indexer: Indexer | None, name: str, x: str, *, causal: bool
) -> str:
    """Attention over keys and values unfolded from their latent vector; rotation of a part of each head.

    The narrow products are the same on every device, those after them are divided by heads. A cache holds the latent
    vector and the rotated part of the keys, normed and rotated. Few tokens after a long context leave them folded:
    queries and results go through the matrices that unfold (DeepSeek-V2, arXiv 2405.04434, section 2.1.2). Where an
    indexer leaves keys out, they are folded always: every query has rows of its own (as in DeepSeek-V3.2).
    """
    heads = t.d.heads
    low = _low(t, sizes, name, x)
    plain, rotated = _queries(t, sizes, name, low)
    latent, shared = _latent(t, sizes, name, x)
    older = t.context if t.cache is not None else 0
    mask, sparse = t.mask(causal=causal), False
    if indexer is not None:
        sparse = older + t.sequence > indexer.index_topk
        mask = replace(mask, window=indexer.index_topk, chosen=_chosen(t, indexer, name, low, x))
    if t.cache is not None or sparse:
        width = sizes.kv_lora_rank + sizes.qk_rope_head_dim
        row = t.operator(f"{name}.row", OpKind.VIEW, (latent, shared), (*t.g.shape(x)[:-1], width))
        cache = row if t.cache is None else t.kept(f"{name}.cache", row)
        if t.attention_kind is Attention.FLASH and (sparse or sizes.folds(t.sequence, older)):
            return _on_latents(t, sizes, name, (plain, rotated), cache, mask)
    q = _join(t, f"{name}.q", plain, rotated, sizes.size)
    k, v = _keys_and_values(t, sizes, f"{name}.kv_up", latent, shared, f"{name}.k")
    if older:
        k, v = _with_older(t, sizes, name, cache, (k, v))
    shape = Heads(heads, heads, sizes.size, sizes.v_head_dim)
    mixed = mix(t, t.attention_kind, name, (q, k, v), shape, replace(mask, page=0))
    return t.linear(f"{name}.projection", mixed, t.d.hidden, Shard.ROW)


def _chosen(t: Transformer, d: Indexer, name: str, low: str, x: str) -> str:
    """Places of the keys that every query attends to; the same on every device."""
    size = d.index_head_dim
    q = t.linear(f"{name}.index_q", low, d.index_n_heads * size, Shard.NONE, bias=False)
    q = t.pointwise(f"{name}.index_rotate_q", "rope", (q,))
    k = t.linear(f"{name}.index_k", x, size, Shard.NONE, bias=False)
    learned = tuple(t.g.parameter(f"{name}.index_norm.{what}", (size,)) for what in ("scale", "shift"))
    k = t.operator(f"{name}.index_norm", OpKind.NORM, (k, *learned), t.g.shape(k), function="layer")
    k = t.pointwise(f"{name}.index_rotate_k", "rope", (k,))
    weights = t.linear(f"{name}.index_weights", x, d.index_n_heads, Shard.NONE, bias=False, exact=True)
    kept: dict[str, object] = {}
    if t.cache is not None:
        k, kept = _index_cache(t, name, k), {"cached": True}
    top = min(d.index_topk, t.g.shape(k)[1])
    shape = (*t.g.shape(x)[:-1], top)
    inputs = q, k, weights
    return t.g.add(f"{name}.index", OpKind.INDEX, inputs, shape, CHOICE_BYTES, heads=d.index_n_heads, **kept)


def _index_cache(t: Transformer, name: str, k: str) -> str:
    """Keys of the indexer of all tokens, a byte for an element, and a scale of each key."""
    batch, tokens, size = t.g.shape(k)
    page = t.cache.page if t.cache else 0
    shape = (batch, t.context + tokens, size + INDEX_SCALE_BYTES)
    return t.g.add(f"{name}.index_cache", OpKind.CACHE, (k,), shape, 1, page=page)


def _low(t: Transformer, sizes: Latent, name: str, x: str) -> str:
    """What queries are made from."""
    if sizes.q_lora_rank is None:
        return x
    x = t.linear(f"{name}.q_down", x, sizes.q_lora_rank, Shard.NONE, bias=False)
    return t.norm(f"{name}.q_norm", x)


def _queries(t: Transformer, sizes: Latent, name: str, x: str) -> tuple[str, str]:
    """Both parts of every head, the second one rotated."""
    heads = t.d.heads
    parts = (heads, sizes.qk_nope_head_dim), (heads, sizes.qk_rope_head_dim)
    plain, rotated = _unfold(t, f"{name}.q_up", x, parts)
    return plain, t.rotate(f"{name}.rotate_q", rotated, heads)


def _latent(t: Transformer, sizes: Latent, name: str, x: str) -> tuple[str, str]:
    """The vector that keys and values are made from, normed, and the rotated part that all keys share."""
    rotated = sizes.qk_rope_head_dim
    narrow = t.linear(f"{name}.kv_down", x, sizes.kv_lora_rank + rotated, Shard.NONE, bias=False)
    cut = (1, sizes.kv_lora_rank), (1, rotated)
    latent, shared = t.split(
        f"{name}.kv_split", narrow, cut, (f"{name}.latent", f"{name}.k_shared"), Shard.NONE
    )
    return t.norm(f"{name}.kv_norm", latent), t.pointwise(f"{name}.rotate_k", "rope", (shared,))


def _keys_and_values(
    t: Transformer,
    sizes: Latent,
    name: str,
    latent: str,
    shared: str,
    keys: str,
    *,
    weight: str = "",
    cached: bool = False,
) -> tuple[str, str]:
    """Keys and values of every head; keys share their rotated elements, the rest comes from the latent vector."""
    heads = t.d.heads
    parts = (heads, sizes.qk_nope_head_dim), (heads, sizes.v_head_dim)
    plain, v = _unfold(t, name, latent, parts, weight=weight, cached=cached)
    return _join(t, keys, plain, shared, sizes.size), v


def _with_older(
    t: Transformer, sizes: Latent, name: str, cache: str, newer: tuple[str, str]
) -> tuple[str, str]:
    """Keys and values of all tokens, those of the context unfolded from the cache by the same matrix."""
    batch, rows, _ = t.g.shape(cache)
    older, heads = rows - t.sequence, t.d.heads
    pieces = {
        f"{name}.latent_before": (batch, older, sizes.kv_lora_rank),
        f"{name}.k_shared_before": (batch, older, sizes.qk_rope_head_dim),
    }
    latent, shared = t.g.split_into(f"{name}.before", cache, pieces, tokens=1)
    weight = f"{name}.kv_up.weight"
    found = _keys_and_values(
        t, sizes, f"{name}.kv_up_before", latent, shared, f"{name}.k_before", weight=weight, cached=True
    )
    k, v = (
        t.operator(
            f"{name}.{letter}_all",
            OpKind.VIEW,
            pair,
            (batch, rows, heads * size),
            shard=Shard.HEADS,
            shard_parts=((heads, size),),
            tokens=1,
        )
        for letter, pair, size in zip(
            "kv", zip(found, newer, strict=True), (sizes.size, sizes.v_head_dim), strict=True
        )
    )
    return k, v


def _on_latents(
    t: Transformer, sizes: Latent, name: str, queries: tuple[str, str], cache: str, mask: Mask
) -> str:
    """Attention of all heads over the cache itself, one row per token; values are the latent part of it."""
    heads, rank = t.d.heads, sizes.kv_lora_rank
    folded = _by_head(t, f"{name}.k_up", queries[0], sizes.qk_nope_head_dim, rank)
    width = rank + sizes.qk_rope_head_dim
    q = _join(t, f"{name}.q", folded, queries[1], width)
    shape = Heads(heads, 1, width, rank)
    mixed = mix(t, Attention.FLASH, name, (q, cache, cache), shape, mask)
    values = _by_head(t, f"{name}.v_up", mixed, rank, sizes.v_head_dim)
    return t.linear(f"{name}.projection", values, t.d.hidden, Shard.ROW)


def _by_head(t: Transformer, name: str, x: str, size: int, result: int) -> str:
    """A product with a matrix (size, result) of its own for every head of x (batch, tokens, heads x size)."""
    (batch, tokens, _), heads = t.g.shape(x), t.d.heads
    role = {"shard": Shard.HEADS, "shard_axis": 0, "shard_parts": ((heads, 1),)}
    weight = t.g.parameter(f"{name}.weight", (heads, size, result))
    apart = t.operator(f"{name}.heads", OpKind.VIEW, (x,), (heads, batch * tokens, size), **role)
    y = t.operator(name, OpKind.MATMUL, (apart, weight), (heads, batch * tokens, result), **role)
    parts = ((heads, result),)
    flat = (batch, tokens, heads * result)
    return t.operator(f"{name}.join", OpKind.VIEW, (y,), flat, shard=Shard.HEADS, shard_parts=parts)


def _unfold(
    t: Transformer, name: str, x: str, parts: Parts, *, weight: str = "", cached: bool = False
) -> tuple[str, ...]:
    """One product, its result cut into two parts of every head; `weight`: of another product, which it shares."""
    width, shape = sum(units * size for units, size in parts), t.g.shape(x)
    matrix = t.g.parameter(weight or f"{name}.weight", (shape[-1], width))
    roles: dict[str, object] = {"shard": Shard.COLUMN, "shard_parts": parts}
    if cached:
        roles["cached"] = True
    joint = t.operator(name, OpKind.MATMUL, (x, matrix), (*shape[:-1], width), **roles)
    return t.split(f"{name}.split", joint, parts, (f"{name}.first", f"{name}.second"), Shard.HEADS)


def _join(t: Transformer, name: str, plain: str, rotated: str, size: int) -> str:
    """Both parts of every head side by side; a rotated part of one head is repeated."""
    shape = (*t.g.shape(plain)[:-1], t.d.heads * size)
    parts = ((t.d.heads, size),)
    return t.operator(name, OpKind.VIEW, (plain, rotated), shape, shard=Shard.HEADS, shard_parts=parts)
