"""Both ends of a language model: tables of tokens and positions, and scores of the vocabulary."""

from __future__ import annotations

from phaze.workload.families.choices import Positions
from phaze.workload.families.primitives import Primitives
from phaze.workload.families.transformer import TransformerDimensions
from phaze.workload.ir import OpKind
from phaze.workload.sharding import Shard

TABLE = "embedding.table"


def embed(p: Primitives, d: TransformerDimensions, batch: int, tokens: int) -> str:
    """Token, position and segment tables, as far as the model has them; (batch, tokens, hidden)."""
    g = p.g
    x = look_up(p, d, "embedding.tokens", g.input("token_ids", (batch, tokens), 8))
    if d.embedding != d.hidden:
        x = p.linear("embedding.project", x, d.hidden, Shard.NONE, bias=False)
    if d.positions is Positions.LEARNED:
        x = add_positions(p, x, d.position_rows or d.max_positions)
    if d.token_types:
        types = g.input("token_types", (batch, tokens), 8)
        segments = g.parameter("embedding.type_table", (d.token_types, d.hidden))
        wide = p.operator("embedding.types", OpKind.EMBEDDING, (types, segments), g.shape(x))
        x = p.pointwise("embedding.add_types", "add", (x, wide))
    if d.embedding_norm:
        x = p.norm("embedding.norm", x)
    return x


def look_up(p: Primitives, d: TransformerDimensions, name: str, ids: str) -> str:
    """Rows of the token table, (batch, tokens, embedding)."""
    table = p.g.parameter(TABLE, (d.vocabulary, d.embedding))
    shape = (*p.g.shape(ids), d.embedding)
    return p.operator(name, OpKind.EMBEDDING, (ids, table), shape, shard=Shard.VOCAB)


def add_positions(p: Primitives, x: str, rows: int) -> str:
    """Add the first rows of a learned table, one per element of the sequence."""
    places = p.g.parameter("embedding.position_table", (rows, p.d.hidden))
    used = p.operator("embedding.positions", OpKind.VIEW, (places,), p.g.shape(x)[1:])
    return p.pointwise("embedding.add_positions", "add", (x, used))


def logits(p: Primitives, d: TransformerDimensions, x: str, *, bias: bool, name: str = "head") -> str:
    """Scores of the vocabulary, by the token table or a matrix of their own, which all heads share."""
    g = p.g
    table = g.parameter(TABLE if d.tied_embeddings else "head.table", (d.vocabulary, d.embedding))
    shape = (*g.shape(x)[:-1], d.vocabulary)
    y = p.operator(
        f"{name}.logits", OpKind.MATMUL, (x, table), shape, transpose_b=True, shard=Shard.VOCAB, exact=True
    )
    if not bias:
        return y
    offset = g.parameter("head.logits.bias", (d.vocabulary,))
    return p.pointwise("head.logits.add_bias", "add", (y, offset), shard=Shard.COLUMN)
