"""What a re-check of a run says: `phaze-certify/1`."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

CERTIFY_SCHEMA = "phaze-certify/1"


class _Model(BaseModel):
    """Frozen, closed: an unknown key is an error, not a silent loss."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Check(_Model):
    """One statement of the result, worked out again."""

    name: str
    passed: bool
    note: str = Field(description="what was found, against what was claimed")


class Sample(_Model):
    """One architecture that was evaluated again, and the best value any of its points reached."""

    id: str
    stratum: str = Field(description="why it was picked")
    value: float = Field(description="the run's objective; 0 where the workload does not fit")
    tdp_w: float


class CertifyReport(_Model):
    """The re-check of one run."""

    schema_version: str = Field(default=CERTIFY_SCHEMA, alias="schema", serialization_alias="schema")
    run: str
    passed: bool
    checks: list[Check]
    samples: list[Sample]
    seed: int

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)
