"""What other models score on the same data sets."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from functools import lru_cache
from importlib import resources

from pydantic import Field, TypeAdapter

from phaze.explore.documents.document_record import Record
from phaze.yaml_file import parse_yaml


class Source(StrEnum):
    """Where a peer's figure comes from."""

    CLAIMED = "claimed"
    RECOMPUTED = "recomputed"
    RUN = "run"


class Peer(Record):
    """Mean absolute percentage errors of another model on the published and on the held-out half of a set."""

    peer: str = Field(description="its name")
    kind: Source = Field(description="where the errors come from")
    published: float | None = Field(
        default=None, description="percent, on the half of the rows that is published"
    )
    held_out: float | None = Field(default=None, description="percent, on the other half")


@lru_cache(maxsize=1)
def peers() -> Mapping[str, tuple[Peer, ...]]:
    """Peers by data set."""
    text = resources.files("phaze.validation").joinpath("peers.yaml").read_text(encoding="utf-8")
    content = parse_yaml(text, "validation/peers.yaml")
    return TypeAdapter(dict[str, tuple[Peer, ...]]).validate_python(content)
