"""Decoder-only language models: GPT, OPT, BLOOM, LLaMA, PaLM, Mistral, Mixtral, DeepSeek, ..."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from functools import partial
from math import lcm
from typing import Annotated, Self

from pydantic import Field, model_validator

from phaze.workload.families.latent_attention import Indexer, Latent, latent_attention
from phaze.workload.families.linear_attention import Delta, StateSpace, delta_rule, state_space
from phaze.workload.families.model_family import CountOrNone, Extent
from phaze.workload.families.transformer_blocks import (
    Experts,
    Transformer,
    mixture,
    parallel_block,
)
from phaze.workload.families.transformer_dimensions import NormPlace, Positions, TransformerDimensions
from phaze.workload.families.transformer_operators import embed, logits, look_up
from phaze.workload.operators.operator_graph import GraphBuilder, OperatorGraph, OpKind
from phaze.workload.sharding.shard_roles import Shard
from phaze.workload.workload import Attention


class Mixer(StrEnum):
    """Half of a block that lets tokens see each other."""

    ATTENTION = "attention"  # to all tokens before
    WINDOW = "window"  # to the last ones
    DELTA = "delta"  # a state, by the gated delta rule
    MAMBA = "mamba"  # a state, Mamba 2 or Mamba
    BESIDE = "beside"  # attention and Mamba on the same norm, added up (Falcon-H1)
    NONE = "none"  # the block has only its other half


class Feed(StrEnum):
    """Half of a block that works on each token alone."""

    MLP = "mlp"
    EXPERTS = "experts"
    NONE = "none"


class Decoder(TransformerDimensions):
    """A stack of causal blocks between a token table and logits.

    Halves may differ from block to block: `mixers` and `feeds` name them in order, and begin again after the last.
    """

    parallel: Annotated[
        bool, Field(description="attention and feed-forward side by side, from one norm (PaLM)")
    ] = False
    experts: Annotated[
        Experts | None, Field(description="mixture of experts in place of the feed-forward half")
    ] = None
    latent: Annotated[
        Latent | None, Field(description="multi-head latent attention (DeepSeek) in place of kv_heads")
    ] = None

    indexer: Annotated[
        Indexer | None, Field(description="chooses the keys of latent attention (DeepSeek-V3.2, GLM-5)")
    ] = None
    delta: Annotated[Delta | None, Field(description="layers with the gated delta rule, among mixers")] = None
    mamba: Annotated[StateSpace | None, Field(description="state-space layers, among mixers")] = None

    ahead: Annotated[
        CountOrNone, Field(description="modules that each predict one token more (DeepSeek-V3)")
    ] = 0

    mixers: Annotated[
        tuple[Mixer, ...],
        Field(
            description="first halves of the blocks in turn (default: attention, in a window where there is one)"
        ),
    ] = ()
    feeds: Annotated[
        tuple[Feed, ...],
        Field(
            description="second halves of the blocks in turn (default: experts where there are some, else mlp)"
        ),
    ] = ()

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
        """Blocks are alike, or come in turns, after the first ones without experts."""
        first = self.experts.dense_layers if self.experts else 0
        further = (self.layers - first) % self.period
        return {"layers": (min(self.layers, first + (further or self.period)), self.layers)}

    @property
    def period(self) -> int:
        """Blocks after which kinds of halves come again."""
        return lcm(len(self.mixers) or 1, len(self.feeds) or 1)

    def mixer(self, number: int) -> Mixer:
        """First half of a block."""
        if self.mixers:
            return self.mixers[number % len(self.mixers)]
        return Mixer.ATTENTION if self.window is None else Mixer.WINDOW

    def feed(self, number: int) -> Feed:
        """Second half of a block."""
        if self.experts and number < self.experts.dense_layers:
            return Feed.MLP
        if self.feeds:
            return self.feeds[number % len(self.feeds)]
        return Feed.EXPERTS if self.experts else Feed.MLP

    @property
    def uncommon(self) -> tuple[str, ...]:
        """Fields of forms that the options of training frameworks do not have."""
        names = "mixers", "feeds", "sinks", "attention_gate", "qk_norm_whole", "indexer"
        found = [name for name in names if getattr(self, name)]
        inside = ("bias", "shared_gate") if self.experts else ()
        found += [f"experts.{name}" for name in inside if getattr(self.experts, name)]
        common = self.norm_place in (NormPlace.PRE, NormPlace.POST)
        return (*found, *(() if common else (f"norm_place: {self.norm_place}",)))

    @model_validator(mode="after")
    def _forms_fit(self) -> Self:
        """Reject forms of a block that exclude each other."""
        post = self.norm_place is NormPlace.POST
        if self.parallel and (self.experts or self.latent or post or self.qkv_bias is not None):
            msg = "parallel goes with none of experts, latent, qkv_bias and norm_place: post"
            raise ValueError(msg)
        if self.parallel and (self.mixers or self.feeds or self.attention_gate):
            msg = "parallel goes with none of mixers, feeds and attention_gate"
            raise ValueError(msg)
        if self.ahead and self.embedding != self.hidden:
            msg = "ahead needs embeddings as wide as the blocks"
            raise ValueError(msg)
        own = self.kv_heads, self.head_size, self.qk_norm, self.qk_norm_whole, self.attention_gate, self.sinks
        if self.latent and any(own):
            msg = "latent has forms of its own: leave out kv_heads, head_size and qk_norm, attention_gate and sinks"
            raise ValueError(msg)
        if self.indexer and (self.latent is None or self.latent.q_lora_rank is None):
            msg = "indexer goes with latent attention whose queries have a rank (latent.q_lora_rank)"
            raise ValueError(msg)
        if self.latent and self.positions is not Positions.ROPE:
            msg = f"latent needs positions: rope, not {self.positions}"
            raise ValueError(msg)
        if self.experts and self.experts.dense_layers >= self.layers:
            msg = f"experts.dense_layers ({self.experts.dense_layers}) leaves none of {self.layers} layers"
            raise ValueError(msg)
        return self

    @model_validator(mode="after")
    def _halves_fit(self) -> Self:
        """Reject halves of which the sizes are missing, and blocks without any half."""
        kinds = [(self.mixer(n), self.feed(n)) for n in range(min(self.layers, self.period))]
        for wanted, sizes, name in (
            (Mixer.WINDOW, self.window, "window"),
            (Mixer.DELTA, self.delta, "delta"),
            (Mixer.MAMBA, self.mamba, "mamba"),
            (Mixer.BESIDE, self.mamba, "mamba"),
            (Feed.EXPERTS, self.experts, "experts"),
        ):
            if any(wanted in pair for pair in kinds) and sizes is None:
                msg = f"a half of a block is {wanted}, but {name} is missing"
                raise ValueError(msg)
        if (Mixer.NONE, Feed.NONE) in kinds:
            msg = "a block has neither a mixer nor a feed-forward half"
            raise ValueError(msg)
        if self.qk_norm and self.qk_norm_whole:
            msg = "qk_norm is of every head, qk_norm_whole of all: give one of them"
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
            x = self._block(t, self.layers - 1, x, name)
            found.append((k, x))
        return found

    def _scores(self, t: Transformer, name: str, x: str) -> str:
        """From the last block to scores of the vocabulary."""
        if self.final_norm and self.norm_place is not NormPlace.POST:
            x = t.norm(f"{name}.norm", x)
        if self.embedding != self.hidden:
            x = t.linear(f"{name}.project", x, self.embedding, Shard.NONE, bias=False)
        return logits(t, self, x, bias=False, name=name)

    def _block(self, t: Transformer, number: int, x: str, scope: str = "") -> str:
        """One block in the form that the dimensions choose."""
        name = scope or f"block{number}"
        if self.parallel:
            return parallel_block(t, name, x)
        mixer, feed = self.mixer(number), self.feed(number)
        if mixer is not Mixer.NONE:
            half = mixer if self.mixers else Mixer.ATTENTION
            x = t.half(f"{name}.{half}", x, partial(self._mixed, t, mixer))
        if feed is Feed.EXPERTS and self.experts is not None:
            return t.half(f"{name}.experts", x, partial(mixture, t, self.experts))
        return t.half(f"{name}.mlp", x, t.feed_forward) if feed is Feed.MLP else x

    def _mixed(self, t: Transformer, mixer: Mixer, name: str, x: str) -> str:
        if mixer is Mixer.DELTA and self.delta:
            return delta_rule(t, self.delta, name, x)
        if mixer is Mixer.MAMBA and self.mamba:
            return state_space(t, self.mamba, name, x)
        if mixer is Mixer.BESIDE and self.mamba:
            both = (
                t.attention(f"{name}.attention", x, causal=True),
                state_space(t, self.mamba, f"{name}.mamba", x),
            )
            return t.pointwise(f"{name}.both", "add", both)
        if self.latent:
            return latent_attention(t, self.latent, self.indexer, name, x, causal=True)
        return t.attention(name, x, causal=True, window=self.window if mixer is Mixer.WINDOW else None)
