"""What every part of a result document is made of."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Record(BaseModel):
    """Frozen, closed: an unknown key is an error, not a silent loss."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)
