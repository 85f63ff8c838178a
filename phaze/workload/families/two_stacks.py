"""A stack that works on one of two sequences and passes the other on beside it."""

from __future__ import annotations

from collections.abc import Callable

from phaze.workload.families.attention import Heads, Mask, mix
from phaze.workload.families.blocks import Transformer
from phaze.workload.families.family import Extent
from phaze.workload.families.stack import StackDimensions
from phaze.workload.ir import GraphBuilder, OpKind
from phaze.workload.sharding import Shard
from phaze.workload.workload import Attention


class SourceAndTarget(Transformer):
    """Blocks over tensors (batch, source + target, width), of which each half of a block changes one part.

    So one tensor passes between any two halves, and the model is a chain of layers.
    """

    def __init__(
        self,
        graph: GraphBuilder,
        dimensions: StackDimensions,
        extent: Extent,
        attention: Attention,
        scope: str,
        target: int,
    ) -> None:
        """`extent.tokens` of the source, `target` of the target."""
        super().__init__(graph, dimensions, extent, attention, scope)
        self.target = target

    def encoder_block(self, number: int, both: str) -> str:
        """Self-attention and feed-forward of the source."""
        name = f"{self.scope}block{number}"
        both = self.on_source(f"{name}.attention", both, lambda n, x: self.half(n, x, self._see_all))
        return self.on_source(f"{name}.mlp", both, lambda n, x: self.half(n, x, self.feed_forward))

    def decoder_block(self, number: int, both: str) -> str:
        """Causal self-attention of the target, its attention to the source, its feed-forward."""
        name = f"{self.scope}block{number}"
        both = self._on_target(f"{name}.attention", both, lambda _: self._see_past)
        both = self._on_target(
            f"{name}.cross", both, lambda source: lambda n, x: self.cross_attention(n, x, source)
        )
        return self._on_target(f"{name}.mlp", both, lambda _: self.feed_forward)

    def apart(self, name: str, both: str) -> tuple[str, str]:
        """Source and target."""
        batch, _, width = self.g.shape(both)
        shapes = {
            f"{name}.source": (batch, self.sequence, width),
            f"{name}.target": (batch, self.target, width),
        }
        source, target = self.g.split_into(f"{name}.apart", both, shapes)
        return source, target

    def on_source(self, name: str, both: str, change: Callable[[str, str], str]) -> str:
        """Change the source, pass the target on."""
        source, target = self.apart(name, both)
        return self._beside(name, both, change(name, source), target)

    def _on_target(self, name: str, both: str, body: Callable[[str], Callable[[str, str], str]]) -> str:
        """A half of a block on the target, which `body` gives for the source, passed on."""
        source, target = self.apart(name, both)
        return self._beside(name, both, source, self.half(name, target, body(source)))

    def _beside(self, name: str, both: str, source: str, target: str) -> str:
        return self.operator(f"{name}.both", OpKind.VIEW, (source, target), self.g.shape(both))

    def _see_all(self, name: str, x: str) -> str:
        return self.attention(name, x, causal=False)

    def _see_past(self, name: str, x: str) -> str:
        return self.attention(name, x, causal=True)

    def cross_attention(self, name: str, x: str, source: str) -> str:
        """Queries of x (batch, target, width) to keys and values of the source; no positions."""
        d = self.d
        queries, *others = self.head_parts
        q = self.linear(f"{name}.q", x, d.heads * d.head, Shard.COLUMN, parts=(queries,), bias=d.query_bias)
        parts = tuple(others)
        width = sum(units * size for units, size in parts)
        joint = self.linear(f"{name}.kv", source, width, Shard.COLUMN, parts=parts, bias=d.query_bias)
        k, v = self.split(f"{name}.split", joint, parts, (f"{name}.k", f"{name}.v"), Shard.HEADS)
        heads = Heads(d.heads, d.kv, d.head, d.head)
        mixed = mix(self, self.attention_kind, name, (q, k, v), heads, Mask(causal=False))
        return self.linear(f"{name}.projection", mixed, d.hidden, Shard.ROW)
