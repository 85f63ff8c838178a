"""One plan as the options of a training framework, what of it the framework has no option for, and the sizes of a
built-in decoder for recipes that name them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

from phaze.errors import InputError
from phaze.explore.documents.plan_document import PlanDocument
from phaze.explore.documents.plan_record import StrategyRecord
from phaze.workload.families.decoder_family import Decoder
from phaze.workload.workload_library import builtin_spec, known_name


@dataclass(frozen=True, slots=True)
class Recipe:
    """The text of a script or configuration, and sentences about what it could not say."""

    text: str
    remarks: tuple[str, ...]


def heading(document: PlanDocument) -> list[str]:
    """Comment lines that say what the recipe is of."""
    best, request = document.best, document.request
    name = ", ".join(request["workloads"])
    return [
        f"# {name} on {request['devices']} x {request['architecture']}, planned under framework "
        f"{request['framework']}",
        f"# expected: {best.iteration_time_s:.4g} s per iteration, {100 * best.mfu:.1f} % MFU, "
        f"{best.memory_bytes / 2**30:.1f} GiB per device",
    ]


def most_recomputed(s: StrategyRecord) -> int | None:
    """Blocks that recompute in the part with most of them; None where all do."""
    return max(s.recomputed_blocks) if s.recomputed_blocks is not None else None


def uneven(s: StrategyRecord) -> bool:
    """Whether stages have numbers of blocks of their own."""
    return s.blocks is not None and len(set(s.blocks)) > 1


def divides_all(s: StrategyRecord, software: str) -> Iterator[str]:
    """That software divides the weights of every layer alike, where the plan keeps some whole."""
    if s.whole_layers:
        named = ", ".join(s.whole_layers)
        yield f"{software} divides the weights of every layer: the recipe does so with those that stay whole ({named})"


def device_batch(document: PlanDocument) -> int:
    """Samples that one replica works on in an iteration, rounded up."""
    return ceil(int(document.request["global_batch"]) / document.best.strategy.data_parallel)


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
