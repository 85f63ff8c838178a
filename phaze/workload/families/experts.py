"""Mixture of experts in place of the feed-forward half (Mixtral, arXiv 2401.04088; DeepSeek, 2401.06066)."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from phaze.workload.families.choices import Scores
from phaze.workload.families.family import Count, CountOrNone, Strict
from phaze.workload.families.primitives import Primitives
from phaze.workload.ir import OpKind
from phaze.workload.sharding import Shard

ROUTE_BYTES = 8  # of a chosen expert: its number (int32) and its weight (fp32)


class Experts(Strict):
    """Experts of a block. Loads are taken as balanced."""

    number: Annotated[Count, Field(description="experts per block")]
    per_token: Annotated[Count, Field(description="experts that a token is sent to")]
    hidden: Annotated[Count, Field(description="width inside one expert")]
    shared: Annotated[CountOrNone, Field(description="experts more that every token passes")] = 0
    dense_layers: Annotated[CountOrNone, Field(description="first blocks, which have none")] = 0
    scores: Annotated[Scores, Field(description="of the router: softmax or sigmoid")] = Scores.SOFTMAX

    @model_validator(mode="after")
    def _enough(self) -> Self:
        """A token cannot be sent to more experts than there are."""
        if self.per_token > self.number:
            msg = f"per_token ({self.per_token}) exceeds number ({self.number})"
            raise ValueError(msg)
        return self


def mixture(p: Primitives, e: Experts, name: str, x: str) -> str:
    """Send every token to its experts, and add up what they and the shared ones make of it."""
    routes = _routes(p, e, name, x)
    batch, tokens, hidden = p.g.shape(x)
    rows = -(-batch * tokens * e.per_token // e.number)
    sent = (e.number, rows, hidden)
    y = p.operator(f"{name}.dispatch", OpKind.DISPATCH, (x, routes), sent, shard=Shard.COLUMN)
    y = _inside(p, e, name, y)
    y = p.operator(f"{name}.combine", OpKind.COMBINE, (y, routes), p.g.shape(x), shard=Shard.ROW)
    if not e.shared:
        return y
    beside = p.feed_forward(f"{name}.shared", x, e.shared * e.hidden)
    return p.pointwise(f"{name}.add_shared", "add", (y, beside))


def _routes(p: Primitives, e: Experts, name: str, x: str) -> str:
    """The router: a product, weights of the experts, and the largest few (batch, tokens, chosen)."""
    found = p.linear(f"{name}.router", x, e.number, Shard.NONE, bias=False, exact=True)
    if e.scores is Scores.SOFTMAX:
        weights = p.operator(f"{name}.scores", OpKind.SOFTMAX, (found,), p.g.shape(found), axis=-1)
    else:
        weights = p.pointwise(f"{name}.scores", "sigmoid", (found,))
    chosen = (*p.g.shape(x)[:-1], e.per_token)
    return p.g.add(f"{name}.routes", OpKind.REDUCE, (weights,), chosen, ROUTE_BYTES, function="top")


def _inside(p: Primitives, e: Experts, name: str, x: str) -> str:
    """Feed-forward halves side by side, (experts, rows, hidden), each divided as a dense one is."""
    parts = ((e.hidden, 1),) * (2 if p.d.gated else 1)
    y = _products(
        p, f"{name}.up", x, len(parts) * e.hidden, shard=Shard.COLUMN, shard_parts=parts, experts=e.number
    )
    y = p.activate(name, y, shard=Shard.COLUMN, experts=e.number)
    return _products(p, f"{name}.down", y, p.g.shape(x)[-1], shard=Shard.ROW, experts=e.number)


def _products(p: Primitives, name: str, x: str, width: int, **roles: object) -> str:
    """One product per expert, each with its own matrix."""
    experts, rows, inner = p.g.shape(x)
    weight = p.g.parameter(f"{name}.weight", (experts, inner, width))
    return p.operator(name, OpKind.MATMUL, (x, weight), (experts, rows, width), **roles)
