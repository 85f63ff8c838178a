"""Sizes of a built-in decoder, for recipes that name them."""

from __future__ import annotations

from dataclasses import dataclass

from phaze.errors import InputError
from phaze.explore.documents.plan_document import PlanDocument
from phaze.workload.families.decoder_family import Decoder
from phaze.workload.workload_library import builtin_spec, known_name


@dataclass(frozen=True, slots=True)
class Sizes:
    """Of a decoder: `experts` per block, 0 where there are none; `tokens` of a sample."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    ffn_hidden: int
    vocabulary: int
    tokens: int
    experts: int
    experts_per_token: int


def sizes_of(document: PlanDocument) -> Sizes | None:
    """Of the planned workload; None where it is no built-in decoder."""
    try:
        spec = builtin_spec(known_name(document.request["workloads"][0]))
    except InputError:
        return None
    d = spec.dimensions
    if not isinstance(d, Decoder):
        return None
    return Sizes(
        d.layers,
        d.hidden,
        d.heads,
        d.kv_heads or d.heads,
        d.ffn_hidden or 4 * d.hidden,
        d.vocabulary,
        spec.sequence_length or 1,
        d.experts.number if d.experts else 0,
        d.experts.per_token if d.experts else 0,
    )
