"""The document of a comparison: what `dse compare --json` prints."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pydantic import Field

from phaze.document_names import DocumentName
from phaze.explore.documents.document_record import Record
from phaze.explore.documents.result_document import Design, Manifest
from phaze.explore.documents.result_manifest import describe_task, manifest

if TYPE_CHECKING:
    from phaze.explore.request.explore_request import Task

COMPARE_SCHEMA = DocumentName.COMPARE.version(3)


class CompareDocument(Record):
    """Architectures side by side, each under its own best placement, by what they were asked as."""

    schema_: str = Field(default=COMPARE_SCHEMA, alias="schema")
    request: dict[str, Any] = Field(description="what was asked, every default spelled out")
    designs: dict[str, Design]
    infeasible: dict[str, str] = Field(description="why the others cannot run the workload")
    manifest: Manifest


def compare_document(task: Task, rows: Mapping[str, Design | str], started: datetime) -> CompareDocument:
    """A comparison that began at `started`; a row is a design, or why there is none."""
    return CompareDocument(
        request=describe_task(task) | {"architectures": list(rows)},
        designs={name: row for name, row in rows.items() if not isinstance(row, str)},
        infeasible={name: row for name, row in rows.items() if isinstance(row, str)},
        manifest=manifest(started, (datetime.now(UTC) - started).total_seconds(), seed=0),
    )
