"""One plan as the options of a training framework, what of it the framework has no option for, and the architecture
of a built-in decoder for recipes that name it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

from phaze.errors import InputError
from phaze.explore.documents.plan_document import PlanDocument
from phaze.explore.documents.plan_record import StrategyRecord
from phaze.workload.families.decoder_family import Decoder
from phaze.workload.workload_library import known_name, named_spec


@dataclass(frozen=True, slots=True)
class Recipe:
    """The text of a script or configuration, and sentences about what it could not say."""

    text: str
    remarks: tuple[str, ...]


def heading(document: PlanDocument) -> list[str]:
    """Comment lines that say what the recipe is of, and what its plan takes under the framework it was timed under."""
    best, request = document.best, document.request
    name = ", ".join(request["workloads"])
    return [
        f"# {name} on {request['devices']} x {request['architecture']}",
        f"# expected under framework {request['framework']}: {best.iteration_time_s:.4g} s per iteration, "
        f"{100 * best.mfu:.1f} % MFU, {best.memory_bytes / 2**30:.1f} GiB per device",
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


def recomputes_alike(s: StrategyRecord, software: str) -> Iterator[str]:
    """That no option says which layers of which blocks recompute, where the plan tells each block's."""
    if s.layers:
        yield (
            f"no option of {software} says what of each block runs again: the recipe recomputes whole blocks, which "
            "takes longer than planned and may keep more"
        )


def device_batch(document: PlanDocument) -> int:
    """Samples that one replica works on in an iteration, rounded up."""
    return ceil(int(document.request["global_batch"]) / document.best.strategy.data_parallel)


@dataclass(frozen=True, slots=True)
class Model:
    """A built-in decoder by its name, and the `tokens` of a sample."""

    name: str
    decoder: Decoder
    tokens: int


def model_of(document: PlanDocument) -> Model | None:
    """Of the planned workload; None where it is no built-in decoder."""
    try:
        name = known_name(document.request["workloads"][0])
        spec = named_spec(name)
    except InputError:
        return None
    d = spec.dimensions
    return Model(name, d, spec.sequence_length or 1) if isinstance(d, Decoder) else None


NO_MODEL = "the workload is not a built-in decoder: add the architecture of the model"
