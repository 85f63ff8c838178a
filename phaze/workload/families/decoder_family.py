"""Decoder-only language models: GPT, OPT, BLOOM, LLaMA, PaLM, Mistral, Mixtral, DeepSeek, ..."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Annotated, Self

from pydantic import Field, model_validator

from phaze.workload.families.model_family import CountOrNone, Extent
from phaze.workload.families.transformer_blocks import (
    Experts,
    Latent,
    Transformer,
    latent_attention,
    mixture,
    parallel_block,
)
from phaze.workload.families.transformer_dimensions import NormPlace, Positions, TransformerDimensions
from phaze.workload.families.transformer_operators import embed, logits, look_up
from phaze.workload.operators.operator_graph import GraphBuilder, OperatorGraph, OpKind
from phaze.workload.sharding.shard_roles import Shard
from phaze.workload.workload import Attention


class Decoder(TransformerDimensions):
    """A stack of causal blocks between a token table and logits."""

    parallel: Annotated[
        bool, Field(description="attention and feed-forward side by side, from one norm (PaLM)")
    ] = False
    experts: Annotated[
        Experts | None, Field(description="mixture of experts in place of the feed-forward half")
    ] = None
    latent: Annotated[
        Latent | None, Field(description="multi-head latent attention (DeepSeek) in place of kv_heads")
    ] = None

    ahead: Annotated[
        CountOrNone, Field(description="modules that each predict one token more (DeepSeek-V3)")
    ] = 0

    @property
    def autoregressive(self) -> bool:
        """One token after another."""
        return True

    @property
    def rotated(self) -> int:
        """Elements per head that rotation turns."""
        return self.latent.qk_rope_head_dim if self.latent else self.head

    @property
    def repeats(self) -> Mapping[str, tuple[int, int]]:
        """Blocks are alike after the first ones without experts."""
        return {"layers": (1 + (self.experts.dense_layers if self.experts else 0), self.layers)}

    @model_validator(mode="after")
    def _forms_fit(self) -> Self:
        """Reject forms of a block that exclude each other."""
        post = self.norm_place is NormPlace.POST
        if self.parallel and (self.experts or self.latent or post or self.qkv_bias is not None):
            msg = "parallel goes with none of experts, latent, qkv_bias and norm_place: post"
            raise ValueError(msg)
        if self.ahead and self.embedding != self.hidden:
            msg = "ahead needs embeddings as wide as the blocks"
            raise ValueError(msg)
        if self.latent and (self.kv_heads or self.head_size or self.qk_norm):
            msg = "latent has sizes and norms of its own: leave out kv_heads, head_size and qk_norm"
            raise ValueError(msg)
        if self.latent and self.positions is not Positions.ROPE:
            msg = f"latent needs positions: rope, not {self.positions}"
            raise ValueError(msg)
        if self.experts and self.experts.dense_layers >= self.layers:
            msg = f"experts.dense_layers ({self.experts.dense_layers}) leaves none of {self.layers} layers"
            raise ValueError(msg)
        return self

    def graph(self, name: str, extent: Extent, attention: Attention) -> OperatorGraph:
        """Forward graph from token ids to logits (batch, sequence, vocabulary)."""
        t = Transformer(GraphBuilder(name), self, extent, attention)
        x = t.dropout("embedding.dropout", embed(t, self, t.batch, t.sequence), self.dropout)
        for number in range(self.layers):
            x = self._block(t, number, x)
        further = self._further(t, x)
        return t.g.build((self._scores(t, "head", x), *(self._scores(t, f"head{k}", y) for k, y in further)))

    def _further(self, t: Transformer, x: str) -> list[tuple[int, str]]:
        """Multi-token prediction (arXiv 2412.19437, section 2.2): what every module makes of the one before.

        A block each, on that joined with the embedding of one token further. Inference that does not speculate leaves
        them out.
        """
        found = []
        for k in range(1, self.ahead + 1) if t.cache is None else ():
            name = f"ahead{k}"
            ids = t.g.input(f"{name}.token_ids", t.g.shape(x)[:-1], 8)
            token = t.norm(f"{name}.token_norm", look_up(t, self, f"{name}.token", ids))
            joint = (*t.g.shape(x)[:-1], 2 * self.hidden)
            pair = t.operator(f"{name}.join", OpKind.VIEW, (t.norm(f"{name}.norm", x), token), joint)
            x = t.linear(f"{name}.project", pair, self.hidden, Shard.NONE, bias=False)
            x = self._block(t, self.layers, x, name)
            found.append((k, x))
        return found

    def _scores(self, t: Transformer, name: str, x: str) -> str:
        """From the last block to scores of the vocabulary."""
        if self.final_norm and self.norm_place is NormPlace.PRE:
            x = t.norm(f"{name}.norm", x)
        if self.embedding != self.hidden:
            x = t.linear(f"{name}.project", x, self.embedding, Shard.NONE, bias=False)
        return logits(t, self, x, bias=False, name=name)

    def _block(self, t: Transformer, number: int, x: str, scope: str = "") -> str:
        """One block in the form that the dimensions choose."""
        name = scope or f"block{number}"
        if self.parallel:
            return parallel_block(t, name, x)
        x = t.half(f"{name}.attention", x, partial(self._attention, t))
        if self.experts is None or number < self.experts.dense_layers:
            return t.half(f"{name}.mlp", x, t.feed_forward)
        return t.half(f"{name}.experts", x, partial(mixture, t, self.experts))

    def _attention(self, t: Transformer, name: str, x: str) -> str:
        if self.latent:
            return latent_attention(t, self.latent, name, x, causal=True)
        return t.attention(name, x, causal=True)
