"""Recommendation models that look up categories and cross them with dense features: DLRM."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Self

from pydantic import Field, model_validator

from phaze.workload.families.model_family import Count, Extent, FamilyDimensions
from phaze.workload.operators.operator_graph import GraphBuilder, OperatorGraph, OpKind
from phaze.workload.sharding.shard_roles import Shard
from phaze.workload.workload import Attention

Widths = Annotated[list[Count], Field(min_length=1)]


class Recommender(FamilyDimensions):
    """Deep learning recommendation model (Naumov et al., arXiv 1906.00091, figure 1).

    Dense features go through the bottom layers, each categorical feature through its table; the products
    of all pairs of the vectors so made, with the dense vector, go through the top layers. Tensor
    parallelism divides the tables row by row; the layers are repeated on every device.
    """

    dense_features: Annotated[Count, Field(description="numbers per sample")]
    bottom: Annotated[Widths, Field(description="widths of the layers over them; the last: embedding_size")]
    tables: Annotated[Widths, Field(description="rows of each embedding table")]
    embedding_size: Annotated[Count, Field(description="width of a row")]
    lookups: Annotated[Count, Field(description="rows added up per table and sample")] = 1
    top: Annotated[Widths, Field(description="widths of the layers after the products; the last: results")]

    @model_validator(mode="after")
    def _meet(self) -> Self:
        """Dense features end as wide as a row, so that products with rows exist."""
        if self.bottom[-1] != self.embedding_size:
            msg = f"bottom ends at width {self.bottom[-1]}, embedding_size is {self.embedding_size}"
            raise ValueError(f"{msg}; the pairwise products need the same")
        return self

    @property
    def heads_to_divide(self) -> int:
        """Parts that tables may be divided into: a power of two up to the width of a row."""
        return 1 << (self.embedding_size.bit_length() - 1)

    @property
    def depth(self) -> int:
        """Layers on the way of a dense feature, the pairwise products one of them."""
        return len(self.bottom) + 1 + len(self.top)

    @property
    def longest_sequence(self) -> None:
        """None: a sample has its features."""
        return

    def graph(self, name: str, extent: Extent, attention: Attention) -> OperatorGraph:
        """Forward graph from features to logits (batch, results)."""
        net = _Recommendation(GraphBuilder(name), self, extent.batch)
        dense = net.g.input("dense", (extent.batch, self.dense_features))
        dense = net.layers("bottom", dense, self.bottom)
        rows = [net.looked_up(f"table{i}", size) for i, size in enumerate(self.tables, 1)]
        dense = net.activate(dense)
        return net.g.build((net.layers("top", net.crossed(dense, rows), self.top),))


class _Recommendation:
    """Grows the graph of one recommender; vectors are (batch, width)."""

    def __init__(self, builder: GraphBuilder, dimensions: Recommender, batch: int) -> None:
        self.g = builder
        self.d = dimensions
        self.batch = batch

    def layers(self, name: str, x: str, widths: list[int]) -> str:
        """Products with bias, and a ReLU between them."""
        sizes = [self.g.shape(x)[1], *widths]
        for number, (width, out) in enumerate(pairwise(sizes), 1):
            x = self.activate(x) if number > 1 else x
            layer = f"{name}.linear{number}"
            weight = self.g.parameter(f"{layer}.weight", (width, out))
            bias = self.g.parameter(f"{layer}.bias", (out,))
            x = self.g.add(layer, OpKind.MATMUL, (x, weight), (self.batch, out))
            x = self.g.add(
                f"{layer}.add_bias", OpKind.ELEMENTWISE, (x, bias), (self.batch, out), function="add"
            )
        return x

    def activate(self, x: str) -> str:
        """ReLU after the layer that made `x`."""
        name = x.replace("add_bias", "relu")
        return self.g.add(name, OpKind.ELEMENTWISE, (x,), self.g.shape(x), function="relu")

    def looked_up(self, name: str, rows: int) -> str:
        """Rows of one table, added up where a sample has several."""
        width, count = self.d.embedding_size, self.d.lookups
        ids = self.g.input(f"{name}.ids", (self.batch, count), 8)
        table = self.g.parameter(f"{name}.rows", (rows, width))
        found = self.g.add(
            f"tables.{name}", OpKind.EMBEDDING, (ids, table), (self.batch, count, width), shard=Shard.VOCAB
        )
        if count == 1:
            return found
        return self.g.add(f"tables.{name}.sum", OpKind.REDUCE, (found,), (self.batch, width), function="sum")

    def crossed(self, dense: str, rows: list[str]) -> str:
        """The dense vector, and beside it the product of every pair of vectors."""
        count, width = 1 + len(rows), self.d.embedding_size
        pairs = count * (count - 1) // 2
        vectors = self.g.add("interaction.vectors", OpKind.VIEW, (dense, *rows), (self.batch, count, width))
        turned = self.g.add("interaction.turned", OpKind.VIEW, (vectors,), (self.batch, width, count))
        square = self.g.add(
            "interaction.products", OpKind.MATMUL, (vectors, turned), (self.batch, count, count)
        )
        lower = self.g.add("interaction.pairs", OpKind.VIEW, (square,), (self.batch, pairs))
        return self.g.add("interaction.join", OpKind.VIEW, (dense, lower), (self.batch, width + pairs))
