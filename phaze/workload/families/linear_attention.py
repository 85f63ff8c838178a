"""Halves of blocks that keep a state in place of a cache: the gated delta rule, Mamba 2 and Mamba.

As the published models have them (github huggingface/transformers: qwen3_next, mamba2, jamba). A product makes all that
the state needs and a gate of the result, a convolution over the last four tokens mixes neighbours, the state is
gone through, its result normed and gated, and a product puts the heads together.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from phaze.workload.families.model_family import Count, Strict
from phaze.workload.families.transformer_blocks import Transformer
from phaze.workload.families.transformer_operators import Parts
from phaze.workload.operators.operator_graph import OpKind
from phaze.workload.sharding.shard_roles import Shard

TAPS = 4
"""Tokens that the convolutions of all published models see."""


class Delta(Strict):
    """Sizes of layers with the gated delta rule (Gated DeltaNet, arXiv 2412.06464)."""

    key_heads: Annotated[Count, Field(description="heads of queries and keys")]
    value_heads: Annotated[Count, Field(description="heads of values, and of states")]
    key_size: Annotated[Count, Field(description="elements of a query and a key")]
    value_size: Annotated[Count, Field(description="elements of a value")]
    chunk: Annotated[Count, Field(description="tokens that are worked on at once, beside decode")] = 64


class StateSpace(Strict):
    """Sizes of state-space layers: Mamba 2, or Mamba where `rank` is given."""

    heads: Annotated[Count, Field(description="heads, of Mamba its channels")]
    head_size: Annotated[Count, Field(description="elements of a head, of Mamba 1")]
    state: Annotated[Count, Field(description="elements of the state for each of them")]
    groups: Annotated[Count, Field(description="of heads that share what writes and reads the state")] = 1
    chunk: Annotated[Count, Field(description="tokens that are worked on at once, beside decode")] = 256
    norm: Annotated[bool, Field(description="a norm of the gated result")] = True
    rank: Annotated[
        Count | None,
        Field(description="width that the steps are made from, which makes it Mamba (default: Mamba 2)"),
    ] = None

    @property
    def width(self) -> int:
        """Elements of all heads."""
        return self.heads * self.head_size


def delta_rule(t: Transformer, d: Delta, name: str, x: str) -> str:
    """Gated delta rule over a sequence."""
    keys, values, single = (d.key_heads, d.key_size), (d.value_heads, d.value_size), (d.value_heads, 1)
    parts = keys, keys, values, values, single, single
    letters = tuple(
        f"{name}.{letter}" for letter in ("q_new", "k_new", "v_new", "gate", "beta_new", "step_new")
    )
    joint = t.linear(f"{name}.in", x, _width(parts), Shard.COLUMN, parts=parts, bias=False)
    q, k, v, gate, beta, step = t.split(f"{name}.split", joint, parts, letters, Shard.HEADS)
    q, k, v = _convolved(t, name, (q, k, v), parts[:3], bias=False)
    one: dict[str, object] = {"shard": Shard.HEADS, "shard_parts": (single,)}
    beta = t.pointwise(f"{name}.beta", "sigmoid", (beta,), **one)
    inputs = q, k, v, _decay(t, name, step, d.value_heads, one), beta
    y = _through(t, name, inputs, keys, values, chunk=d.chunk, delta=True)
    y = t.head_norm(f"{name}.out_norm", y, d.value_heads)
    return _out(t, name, y, gate, values)


def state_space(t: Transformer, d: StateSpace, name: str, x: str) -> str:
    """Mamba 2 over a sequence, or Mamba."""
    return _mamba(t, d, name, x) if d.rank is not None else _mamba2(t, d, name, x)


def _mamba2(t: Transformer, d: StateSpace, name: str, x: str) -> str:
    values, groups, single = (d.heads, d.head_size), (d.groups, d.state), (d.heads, 1)
    parts = values, values, groups, groups, single
    letters = tuple(f"{name}.{letter}" for letter in ("gate", "x_new", "b_new", "c_new", "step_new"))
    joint = t.linear(f"{name}.in", x, _width(parts), Shard.COLUMN, parts=parts, bias=False)
    gate, v, b, c, step = t.split(f"{name}.split", joint, parts, letters, Shard.HEADS)
    v, b, c = _convolved(t, name, (v, b, c), parts[1:4], bias=True)
    one: dict[str, object] = {"shard": Shard.HEADS, "shard_parts": (single,)}
    skip = t.g.parameter(f"{name}.skip", (d.heads,))
    inputs = c, b, v, _decay(t, name, step, d.heads, one), skip
    y = _through(t, name, inputs, groups, values, chunk=d.chunk)
    role = {"shard": Shard.HEADS, "shard_parts": (values,)}
    if not d.norm:
        return _out(t, name, y, gate, values)
    y = t.norm(f"{name}.out_norm", t.pointwise(f"{name}.gated", "swiglu", (gate, y), **role), **role)
    return t.linear(f"{name}.projection", y, t.d.hidden, Shard.ROW, bias=False)


def _mamba(t: Transformer, d: StateSpace, name: str, x: str) -> str:
    """Every channel has a state; steps, and what writes and reads it, come from the channels, normed (Jamba)."""
    rank, values = d.rank or 1, (d.heads, 1)
    parts = values, values
    joint = t.linear(f"{name}.in", x, 2 * d.heads, Shard.COLUMN, parts=parts, bias=False)
    v, gate = t.split(f"{name}.split", joint, parts, (f"{name}.x_new", f"{name}.gate"), Shard.HEADS)
    (v,) = _convolved(t, name, (v,), parts[:1], bias=True)
    cut = (1, rank), (1, d.state), (1, d.state)
    narrow = t.linear(f"{name}.narrow", v, _width(cut), Shard.ROW, bias=False)
    letters = tuple(f"{name}.{letter}" for letter in ("step_low", "b_new", "c_new"))
    low, b, c = t.split(f"{name}.narrow_split", narrow, cut, letters, Shard.NONE)
    low, b, c = (t.norm(f"{piece}.norm", piece) for piece in (low, b, c))
    step = t.linear(f"{name}.step", low, d.heads, Shard.COLUMN, bias=True)
    decays = t.g.parameter(f"{name}.decays", (d.heads, d.state))
    skip = t.g.parameter(f"{name}.skip", (d.heads,))
    y = _through(t, name, (c, b, v, step, decays, skip), (1, d.state), values, chunk=0)
    return _out(t, name, y, gate, values)


def _width(parts: Parts) -> int:
    return sum(units * size for units, size in parts)


def _convolved(
    t: Transformer, name: str, pieces: tuple[str, ...], parts: Parts, *, bias: bool
) -> tuple[str, ...]:
    """The pieces after a convolution over the last tokens of each of their channels, and a swish."""
    width = _width(parts)
    role: dict[str, object] = {"shard": Shard.HEADS, "shard_parts": parts}
    shape = (*t.g.shape(pieces[0])[:-1], width)
    joint = t.operator(f"{name}.joint", OpKind.VIEW, pieces, shape, **role) if len(pieces) > 1 else pieces[0]
    learned = [t.g.parameter(f"{name}.conv.weight", (TAPS, width))]
    if bias:
        learned.append(t.g.parameter(f"{name}.conv.bias", (width,)))
    kept = {} if t.cache is None else {"history": TAPS - 1}
    y = t.pointwise(f"{name}.conv", "short_conv", (joint, *learned), **role, **kept)
    y = t.pointwise(f"{name}.conv_swish", "silu", (y,), **role)
    if len(pieces) == 1:
        return (y,)
    return t.split(f"{name}.conv_split", y, parts, (f"{piece}.mixed" for piece in pieces), Shard.HEADS)


def _decay(t: Transformer, name: str, step: str, heads: int, role: dict[str, object]) -> str:
    """How much of the state each token leaves, from its step: softplus(step + offset) times a rate."""
    learned = (t.g.parameter(f"{name}.{what}", (heads,)) for what in ("step_offset", "rate"))
    return t.pointwise(f"{name}.decay", "softplus", (step, *learned), **role)


def _through(
    t: Transformer,
    name: str,
    inputs: tuple[str, ...],
    keys: tuple[int, int],
    values: tuple[int, int],
    *,
    chunk: int,
    delta: bool = False,
) -> str:
    """The results of all tokens (batch, tokens, values) as the state goes along."""
    kept = {} if t.cache is None else {"kept": True, "older": t.context > 0}
    return t.operator(
        f"{name}.state",
        OpKind.RECURRENCE,
        inputs,
        t.g.shape(inputs[2]),
        key_heads=keys[0],
        key_size=keys[1],
        heads=values[0],
        value_size=values[1],
        chunk=chunk,
        delta=delta,
        shard=Shard.HEADS,
        shard_parts=(values,),
        **kept,
    )


def _out(t: Transformer, name: str, y: str, gate: str, values: tuple[int, int]) -> str:
    """The result times the swish of its gate, and the heads put together."""
    role = {"shard": Shard.HEADS, "shard_parts": (values,)}
    y = t.pointwise(f"{name}.gated", "swiglu", (gate, y), **role)
    return t.linear(f"{name}.projection", y, t.d.hidden, Shard.ROW, bias=False)
