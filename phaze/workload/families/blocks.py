"""Building blocks of transformer stacks, with their tensor-parallel roles (Megatron-LM, arXiv 1909.08053)."""

from __future__ import annotations

from phaze.workload.families.family import Extent
from phaze.workload.families.transformer import NormKind, NormPlace, Positions, TransformerDimensions
from phaze.workload.ir import GraphBuilder, OpKind
from phaze.workload.sharding import Shard
from phaze.workload.workload import Attention

ACTIVATION_BYTES = 2  # bf16 or fp16


class Transformer:
    """Grows a transformer's graph at one extent.

    Activations are (batch, sequence, width); each method appends operators and returns a tensor name.
    """

    def __init__(
        self, name: str, dimensions: TransformerDimensions, extent: Extent, attention: Attention
    ) -> None:
        """Start an empty graph of `extent.batch` sequences of `extent.tokens` tokens."""
        self.g = GraphBuilder(name)
        self.d = dimensions
        self.batch = extent.batch
        self.sequence = extent.tokens
        self.attention_kind = attention

    def operator(
        self, name: str, kind: OpKind, inputs: tuple[str, ...], shape: tuple[int, ...], **attributes: object
    ) -> str:
        """Append an operator with a 16-bit result."""
        return self.g.add(name, kind, inputs, shape, ACTIVATION_BYTES, **attributes)

    def linear(
        self,
        name: str,
        x: str,
        width: int,
        shard: Shard,
        *,
        bias: bool | None = None,
        parts: tuple[tuple[int, int], ...] | None = None,
    ) -> str:
        """x W, plus a bias where the model has biases (after the sum of a row-parallel product)."""
        shape = self.g.shape(x)
        weight = self.g.parameter(f"{name}.weight", (shape[-1], width))
        roles: dict[str, object] = {"shard": shard}
        if parts is not None:
            roles["shard_parts"] = parts
        y = self.operator(name, OpKind.MATMUL, (x, weight), (*shape[:-1], width), **roles)
        if not (self.d.bias if bias is None else bias):
            return y
        offset = self.g.parameter(f"{name}.bias", (width,))
        after = {"shard": Shard.NONE} if shard is Shard.ROW else roles
        return self.pointwise(f"{name}.add_bias", "add", (y, offset), **after)

    def pointwise(self, name: str, function: str, inputs: tuple[str, ...], **attributes: object) -> str:
        """Element-wise operator with the shape of its first input."""
        shape = self.g.shape(inputs[0])
        return self.operator(name, OpKind.ELEMENTWISE, inputs, shape, function=function, **attributes)

    def norm(self, name: str, x: str) -> str:
        """Layer or RMS normalisation over the last axis."""
        width = self.g.shape(x)[-1]
        parameters = [self.g.parameter(f"{name}.scale", (width,))]
        if self.d.norm is NormKind.LAYER:
            parameters.append(self.g.parameter(f"{name}.shift", (width,)))
        return self.operator(name, OpKind.NORM, (x, *parameters), self.g.shape(x), function=self.d.norm.value)

    def dropout(self, name: str, x: str, probability: float, **attributes: object) -> str:
        """Dropout where its probability is not zero."""
        return self.pointwise(name, "dropout", (x,), **attributes) if probability else x

    def embedding(self) -> str:
        """Token, position and segment tables, as far as the model has them."""
        g, d = self.g, self.d
        tokens = g.input("token_ids", (self.batch, self.sequence), 8)
        table = g.parameter("embedding.table", (d.vocabulary, d.embedding))
        shape = (self.batch, self.sequence, d.embedding)
        x = self.operator("embedding.tokens", OpKind.EMBEDDING, (tokens, table), shape, shard=Shard.VOCAB)
        if d.embedding != d.hidden:
            x = self.linear("embedding.project", x, d.hidden, Shard.NONE, bias=False)
        if d.positions is Positions.LEARNED:
            places = g.parameter("embedding.position_table", (d.position_rows or d.max_positions, d.hidden))
            used = self.operator("embedding.positions", OpKind.VIEW, (places,), (self.sequence, d.hidden))
            x = self.pointwise("embedding.add_positions", "add", (x, used))
        if d.token_types:
            types = g.input("token_types", (self.batch, self.sequence), 8)
            segments = g.parameter("embedding.type_table", (d.token_types, d.hidden))
            wide = self.operator("embedding.types", OpKind.EMBEDDING, (types, segments), g.shape(x))
            x = self.pointwise("embedding.add_types", "add", (x, wide))
        return x

    def block(self, number: int, x: str, *, causal: bool) -> str:
        """One transformer block: attention half, feed-forward half."""
        x = self._half(f"block{number}.attention", x, causal=causal)
        return self._half(f"block{number}.mlp", x)

    def _half(self, name: str, x: str, *, causal: bool | None = None) -> str:
        """Norm, attention or feed-forward, dropout and residual sum, in the model's order."""
        pre = self.d.norm_place is NormPlace.PRE
        y = self.norm(f"{name}.norm", x) if pre else x
        y = self._feed_forward(name, y) if causal is None else self._attention(name, y, causal=causal)
        y = self.dropout(f"{name}.dropout", y, self.d.dropout)
        y = self.pointwise(f"{name}.residual", "add", (y, x))
        return y if pre else self.norm(f"{name}.norm", y)

    def _attention(self, name: str, x: str, *, causal: bool) -> str:
        d = self.d
        parts = ((d.heads, d.head), (d.kv, d.head), (d.kv, d.head))
        widths = [units * size for units, size in parts]
        joint = self.linear(f"{name}.qkv", x, sum(widths), Shard.COLUMN, parts=parts)
        pieces = {
            f"{name}.{letter}": (self.batch, self.sequence, width)
            for letter, width in zip("qkv", widths, strict=True)
        }
        q, k, v = self.g.split_into(f"{name}.split", joint, pieces, shard=Shard.HEADS, shard_parts=parts)
        if d.positions is Positions.ROPE:
            q = self.pointwise(f"{name}.rotate_q", "rope", (q,), shard=Shard.HEADS, shard_parts=parts[:1])
            k = self.pointwise(f"{name}.rotate_k", "rope", (k,), shard=Shard.HEADS, shard_parts=parts[1:2])
        flash = self.attention_kind is Attention.FLASH
        mix = self._flash(name, q, k, v, causal=causal) if flash else self._unfused(name, q, k, v)
        return self.linear(f"{name}.projection", mix, d.hidden, Shard.ROW)

    def _flash(self, name: str, q: str, k: str, v: str, *, causal: bool) -> str:
        d = self.d
        return self.operator(
            f"{name}.flash",
            OpKind.ATTENTION,
            (q, k, v),
            self.g.shape(q),
            heads=d.heads,
            kv_heads=d.kv,
            head_size=d.head,
            causal=causal,
            dropout=d.attention_dropout > 0,
            shard=Shard.HEADS,
            shard_parts=((d.heads, d.head),),
        )

    def _unfused(self, name: str, q: str, k: str, v: str) -> str:
        """Scores, softmax, dropout and the weighted sum as separate operators, (batch, heads, ...) each."""
        d = self.d
        role = {"shard": Shard.HEADS, "shard_axis": 1, "shard_parts": ((d.heads, 1),)}
        by_head = (self.batch, d.heads, self.sequence, d.head)
        q, k, v = (
            self.operator(f"{name}.{letter}_heads", OpKind.VIEW, (t,), by_head, **role)
            for letter, t in (("q", q), ("k", k), ("v", v))
        )
        square = (*by_head[:3], self.sequence)
        scores = self.operator(f"{name}.scores", OpKind.MATMUL, (q, k), square, transpose_b=True, **role)
        # one multiply-add per score: times 1 / sqrt(head size), plus the causal mask where there is one
        scaled = self.pointwise(f"{name}.scale", "scale", (scores,), **role)
        weights = self.operator(f"{name}.softmax", OpKind.SOFTMAX, (scaled,), square, axis=-1, **role)
        weights = self.dropout(f"{name}.softmax_dropout", weights, d.attention_dropout, **role)
        mixed = self.operator(f"{name}.mix", OpKind.MATMUL, (weights, v), by_head, **role)
        flat = (self.batch, self.sequence, d.heads * d.head)
        parts = ((d.heads, d.head),)
        return self.operator(
            f"{name}.join", OpKind.VIEW, (mixed,), flat, shard=Shard.HEADS, shard_parts=parts
        )

    def _feed_forward(self, name: str, x: str) -> str:
        d = self.d
        if d.gated:
            parts = ((d.ffn, 1), (d.ffn, 1))
            y = self.linear(f"{name}.gate_up", x, 2 * d.ffn, Shard.COLUMN, parts=parts)
            shape = (*self.g.shape(x)[:-1], d.ffn)
            y = self.operator(
                f"{name}.swiglu", OpKind.ELEMENTWISE, (y,), shape, function="swiglu", shard=Shard.COLUMN
            )
        else:
            y = self.linear(f"{name}.up", x, d.ffn, Shard.COLUMN)
            y = self.pointwise(f"{name}.{d.activation}", d.activation.value, (y,), shard=Shard.COLUMN)
        return self.linear(f"{name}.down", y, d.hidden, Shard.ROW)

    def logits(self, x: str, *, bias: bool) -> str:
        """Scores of the vocabulary, by the token table or a matrix of their own."""
        d, g = self.d, self.g
        name = "embedding.table" if d.tied_embeddings else "head.table"
        table = g.parameter(name, (d.vocabulary, d.embedding))
        shape = (*g.shape(x)[:-1], d.vocabulary)
        y = self.operator(
            "head.logits", OpKind.MATMUL, (x, table), shape, transpose_b=True, shard=Shard.VOCAB
        )
        if not bias:
            return y
        offset = g.parameter("head.logits.bias", (d.vocabulary,))
        return self.pointwise("head.logits.add_bias", "add", (y, offset), shard=Shard.COLUMN)
