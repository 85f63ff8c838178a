"""Errors of the model by kind of figure, pooled over all data sets of the kind: what stands beside an answer, and what
a reader of the validation page takes home.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources

from pydantic import Field, TypeAdapter

from phaze.cost.fidelity import Fidelity
from phaze.explore.documents.document_record import Record
from phaze.yaml_file import parse_yaml

FILE = "stated_errors.yaml"


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of figure: in words, what its cases are, and the sets that measure it: metric and beginning of names."""

    words: str
    counted: str
    metric: str
    names: tuple[str, ...]


KINDS: Mapping[str, Kind] = {
    "training_time": Kind("time of a training iteration", "published training runs", "time", ("e2e_",)),
    "peak_memory": Kind("peak memory of a training", "published training runs", "memory", ("e2e_",)),
    "chip_power": Kind("power of a chip", "chips", "power", ("chip_specs",)),
    "chip_area": Kind("area of a chip", "chips", "area", ("chip_specs",)),
    "collectives": Kind("time of a collective", "measured collectives", "latency", ("coll_",)),
    "kernels": Kind("time of an operator", "measured kernels", "latency", ("op_", "kernels_")),
}


class StatedError(Record):
    """Sizes of errors in percent of what was measured, of all rows together."""

    rows: int = Field(description="that were compared")
    sets: int = Field(description="data sets that they come from")
    median_pct: float = Field(description="half of the rows are closer")
    p90_pct: float = Field(description="nine of ten rows are closer")


Stated = Mapping[str, Mapping[Fidelity, StatedError]]
"""By name of a kind and rung; rungs that say nothing of it are not there."""


@lru_cache(maxsize=1)
def stated_errors() -> Stated:
    """The errors that this version ships with."""
    text = resources.files("phaze.validation").joinpath(FILE).read_text(encoding="utf-8")
    return TypeAdapter(dict[str, dict[Fidelity, StatedError]]).validate_python(
        parse_yaml(text, f"validation/{FILE}")
    )
