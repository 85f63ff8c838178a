"""Report of a re-check of a run: `phaze-certify/1`."""

from __future__ import annotations

from pydantic import Field

from phaze.document_names import DocumentName
from phaze.explore.documents.document_record import Record

CERTIFY_SCHEMA = DocumentName.CERTIFY.version(1)


class Check(Record):
    """One statement of the result, worked out again."""

    name: str = Field(description="what is checked")
    passed: bool = Field(description="whether it holds")
    note: str = Field(description="what was found, against what was claimed")


class Sample(Record):
    """One architecture that was evaluated again, and the best value any of its points reached."""

    id: str
    stratum: str = Field(description="why it was picked")
    value: float = Field(description="the run's objective; 0 where the workload does not fit")
    tdp_w: float


class CertifyReport(Record):
    """The re-check of one run."""

    schema_version: str = Field(default=CERTIFY_SCHEMA, alias="schema", serialization_alias="schema")
    run: str = Field(description="the run directory")
    passed: bool = Field(description="whether all checks passed")
    checks: list[Check]
    samples: list[Sample]
    seed: int
    unchecked: list[str] = Field(
        default_factory=list, description="places of the document that no check speaks of"
    )
