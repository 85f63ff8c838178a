"""Recurrent translation: stacks of LSTM layers with attention between them (GNMT)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field

from phaze.workload.families.model_family import Count, Extent, FamilyDimensions, Probability, together
from phaze.workload.operators.operator_graph import GraphBuilder, OperatorGraph, OpKind
from phaze.workload.operators.recurrent_layers import (
    Cell,
    bidirectional_layer,
    recurrent_layer,
    recurrent_weights,
)
from phaze.workload.workload import Attention

RESIDUAL_FROM = 2  # the first two layers of a stack have no shortcut


class RecurrentTranslator(FamilyDimensions):
    """GNMT (Wu et al., arXiv 1609.08144) in the form of MLPerf's reference.

    The encoder's first layer goes both ways. The decoder's first layer asks additive attention (Bahdanau et
    al., arXiv 1409.0473, normalised) for a context, which every further layer reads beside its input; so all
    time steps of a layer are known before the next one. Source and target sentences are equally long.
    """

    layers: Annotated[int, Field(strict=True, gt=1, le=1000, description="of the encoder, of the decoder")]
    hidden: Annotated[Count, Field(description="width of states, embeddings and attention")]
    vocabulary: Annotated[Count, Field(description="rows of the one table of both languages")]
    max_positions: Annotated[Count, Field(description="no sentence may be longer")]
    dropout: Annotated[Probability, Field(description="before every layer")] = 0.0

    @property
    def heads_to_divide(self) -> None:
        """None: states are not divided over devices."""
        return

    @property
    def depth(self) -> int:
        """Layers of both stacks."""
        return 2 * self.layers

    @property
    def repeats(self) -> Mapping[str, tuple[int, int]]:
        """From the third one on, layers of a stack are alike."""
        return {"layers": (min(RESIDUAL_FROM + 1, self.layers), self.layers)}

    @property
    def longest_sequence(self) -> int:
        """Longest sentence."""
        return self.max_positions

    def graph(self, name: str, extent: Extent, attention: Attention) -> OperatorGraph:
        """Forward graph from token ids to logits (batch, tokens, vocabulary), the target given."""
        net = _Translation(GraphBuilder(name), self, extent)
        source, target = net.embedded()
        for number in range(1, self.layers + 1):
            layer = f"encoder.layer{number}"
            source, target = together(net.g, layer, net.encoder_layer(layer, number, source), target)
        x, context = net.attended(target, source)
        for number in range(2, self.layers + 1):
            layer = f"decoder.layer{number}"
            x, context = together(net.g, f"{layer}.in", x, context)
            x = net.decoder_layer(layer, number, x, context)
        return net.g.build((net.linear("head.logits", x, self.vocabulary, bias=True),))


class _Translation:
    """Grows the graph; sequences are (batch, tokens, width)."""

    def __init__(self, builder: GraphBuilder, dimensions: RecurrentTranslator, extent: Extent) -> None:
        self.g = builder
        self.d = dimensions
        self.batch, self.tokens = extent.batch, extent.tokens

    def embedded(self) -> tuple[str, ...]:
        """Source and target from the same table."""
        table = self.g.parameter("embedding.table", (self.d.vocabulary, self.d.hidden))
        shape = (self.batch, self.tokens, self.d.hidden)
        ids = [self.g.input(f"{side}_ids", shape[:2], 8) for side in ("source", "target")]
        source, target = (
            self.g.add(f"embedding.{side}", OpKind.EMBEDDING, (tokens, table), shape)
            for side, tokens in zip(("source", "target"), ids, strict=True)
        )
        return together(self.g, "embedding", source, target)

    def encoder_layer(self, name: str, number: int, x: str) -> str:
        """Both ways in the first layer, then forward."""
        fed = self._dropped(f"{name}.dropout", x)
        if number > 1:
            return self._with_shortcut(name, number, self._lstm(f"{name}.lstm", fed), x)
        sizes = (self.d.hidden, self.d.hidden)
        ways = [
            recurrent_weights(self.g, f"{name}.lstm.{way}", Cell.LSTM, sizes, biases=2)
            for way in ("forward", "backward")
        ]
        return bidirectional_layer(self.g, f"{name}.lstm", Cell.LSTM, fed, ways).sequence

    def attended(self, target: str, memory: str) -> tuple[str, str]:
        """The decoder's first layer, and the context that each of its time steps asks the encoder for."""
        name = "decoder.layer1"
        x = self._lstm(f"{name}.lstm", self._dropped(f"{name}.dropout", target))
        return x, self._context(f"{name}.attention", x, memory)

    def decoder_layer(self, name: str, number: int, x: str, context: str) -> str:
        """A layer over its input and the context side by side."""
        fed = self._dropped(f"{name}.dropout", x)
        wide = (self.batch, self.tokens, 2 * self.d.hidden)
        fed = self.g.add(f"{name}.fed", OpKind.VIEW, (fed, context), wide)
        return self._with_shortcut(name, number, self._lstm(f"{name}.lstm", fed), x)

    def linear(self, name: str, x: str, width: int, *, bias: bool = False) -> str:
        """Product with a parameter over the last axis."""
        *rest, inner = self.g.shape(x)
        weight = self.g.parameter(f"{name}.weight", (inner, width))
        y = self.g.add(name, OpKind.MATMUL, (x, weight), (*rest, width))
        return self._added(f"{name}.add_bias", y, (width,)) if bias else y

    def _context(self, name: str, x: str, memory: str) -> str:
        """Softmax over v tanh(W q + U k + b) g, times what the encoder made."""
        batch, steps, hidden = self.g.shape(x)
        square = (batch, steps, steps)
        query = self.linear(f"{name}.query", x, hidden)
        key = self.linear(f"{name}.key", memory, hidden)
        query = self.g.add(f"{name}.rows", OpKind.VIEW, (query,), (batch, steps, 1, hidden))
        key = self.g.add(f"{name}.columns", OpKind.VIEW, (key,), (batch, 1, steps, hidden))
        both = self._pointwise(f"{name}.add", "add", (query, key), (*square, hidden))
        both = self._added(f"{name}.add_bias", both, (hidden,))
        both = self._pointwise(f"{name}.tanh", "tanh", (both,), (*square, hidden))
        scores = self.linear(f"{name}.score", both, 1)
        scores = self.g.add(f"{name}.scores", OpKind.VIEW, (scores,), square)
        scale = self.g.parameter(f"{name}.scale", (1,))
        scores = self._pointwise(f"{name}.scaled", "mul", (scores, scale), square)
        weights = self.g.add(f"{name}.softmax", OpKind.SOFTMAX, (scores,), square, axis=-1)
        return self.g.add(f"{name}.mix", OpKind.MATMUL, (weights, memory), (batch, steps, hidden))

    def _lstm(self, name: str, x: str) -> str:
        sizes = (self.g.shape(x)[-1], self.d.hidden)
        weights = recurrent_weights(self.g, name, Cell.LSTM, sizes, biases=2)
        return recurrent_layer(self.g, name, Cell.LSTM, x, weights).sequence

    def _with_shortcut(self, name: str, number: int, y: str, x: str) -> str:
        if number <= RESIDUAL_FROM:
            return y
        return self._pointwise(f"{name}.residual", "add", (y, x), self.g.shape(y))

    def _dropped(self, name: str, x: str) -> str:
        return self._pointwise(name, "dropout", (x,), self.g.shape(x)) if self.d.dropout else x

    def _added(self, name: str, x: str, shape: tuple[int, ...]) -> str:
        """Sum with a parameter of that shape."""
        return self._pointwise(name, "add", (x, self.g.parameter(f"{name}.bias", shape)), self.g.shape(x))

    def _pointwise(self, name: str, function: str, inputs: tuple[str, ...], shape: tuple[int, ...]) -> str:
        return self.g.add(name, OpKind.ELEMENTWISE, inputs, shape, function=function)
