"""Multi-head latent attention: keys and values from one narrow vector per token (DeepSeek-V2, arXiv 2405.04434)."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from phaze.workload.families.attention import Heads, mix
from phaze.workload.families.blocks import Transformer
from phaze.workload.families.family import Count, Strict
from phaze.workload.families.primitives import Parts
from phaze.workload.ir import OpKind
from phaze.workload.sharding import Shard


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


def latent_attention(t: Transformer, sizes: Latent, name: str, x: str, *, causal: bool) -> str:
    """Attention over keys and values unfolded from their latent vector; rotation of a part of each head.

    The narrow products are the same on every device, those after them are divided by heads.
    """
    heads = t.d.heads
    q = _queries(t, sizes, name, x)
    k, v = _keys_and_values(t, sizes, name, x)
    shape = Heads(heads, heads, sizes.size, sizes.v_head_dim)
    mixed = mix(t, t.attention_kind, name, (q, k, v), shape, t.mask(causal=causal))
    return t.linear(f"{name}.projection", mixed, t.d.hidden, Shard.ROW)


def _queries(t: Transformer, sizes: Latent, name: str, x: str) -> str:
    if sizes.q_lora_rank is not None:
        x = t.linear(f"{name}.q_down", x, sizes.q_lora_rank, Shard.NONE, bias=False)
        x = t.norm(f"{name}.q_norm", x)
    heads = t.d.heads
    parts = (heads, sizes.qk_nope_head_dim), (heads, sizes.qk_rope_head_dim)
    plain, rotated = _unfold(t, f"{name}.q_up", x, parts)
    return _join(t, f"{name}.q", plain, t.rotate(f"{name}.rotate_q", rotated, heads), sizes.size)


def _keys_and_values(t: Transformer, sizes: Latent, name: str, x: str) -> tuple[str, str]:
    """Keys share their rotated elements; the rest of them, and the values, come from the latent vector."""
    heads, rotated = t.d.heads, sizes.qk_rope_head_dim
    narrow = t.linear(f"{name}.kv_down", x, sizes.kv_lora_rank + rotated, Shard.NONE, bias=False)
    cut = (1, sizes.kv_lora_rank), (1, rotated)
    latent, shared = t.split(
        f"{name}.kv_split", narrow, cut, (f"{name}.latent", f"{name}.k_shared"), Shard.NONE
    )
    parts = (heads, sizes.qk_nope_head_dim), (heads, sizes.v_head_dim)
    plain, v = _unfold(t, f"{name}.kv_up", t.norm(f"{name}.kv_norm", latent), parts)
    shared = t.pointwise(f"{name}.rotate_k", "rope", (shared,))
    return _join(t, f"{name}.k", plain, shared, sizes.size), v


def _unfold(t: Transformer, name: str, x: str, parts: Parts) -> tuple[str, ...]:
    """One product, its result cut into two parts of every head."""
    width = sum(units * size for units, size in parts)
    joint = t.linear(name, x, width, Shard.COLUMN, bias=False, parts=parts)
    return t.split(f"{name}.split", joint, parts, (f"{name}.first", f"{name}.second"), Shard.HEADS)


def _join(t: Transformer, name: str, plain: str, rotated: str, size: int) -> str:
    """Both parts of every head side by side; a rotated part of one head is repeated."""
    shape = (*t.g.shape(plain)[:-1], t.d.heads * size)
    parts = ((t.d.heads, size),)
    return t.operator(name, OpKind.VIEW, (plain, rotated), shape, shard=Shard.HEADS, shard_parts=parts)
