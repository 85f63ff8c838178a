"""The published JSON Schemas: of what `--json` prints, of what run directories hold."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from phaze.document_names import DocumentName
from phaze.explore.documents.certify_document import CERTIFY_SCHEMA, CertifyReport
from phaze.explore.documents.explanation_document import EXPLANATION_SCHEMA, Explanation
from phaze.runs.design_table import designs_schema
from phaze.runs.document_formats import COMPARE, FLEET, PLAN, RESULT, SERVING, SWEEP, WHATIF
from phaze.runs.run_difference import Difference
from phaze.validation.validation_document import ValidationReport

if TYPE_CHECKING:
    from pydantic import BaseModel

    from phaze.runs.document_migration import Format

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


class Kind(StrEnum):
    """Documents with a schema."""

    RESULT = "result"
    SWEEP = "sweep"
    COMPARE = "compare"
    PLAN = "plan"
    SERVING = "serving"
    WHATIF = "whatif"
    FLEET = "fleet"
    DIFF = "diff"
    CERTIFY = "certify"
    EXPLANATION = "explanation"
    VALIDATE = "validate"
    DESIGNS = "designs"


def schema(kind: Kind) -> dict[str, Any]:
    """The JSON Schema of a document; its `$id` is what the documents themselves give as `schema`."""
    if kind is Kind.DESIGNS:
        return {"$schema": _DIALECT, **designs_schema()}
    name, model = _models()[kind]
    return {"$schema": _DIALECT, "$id": name, **model.model_json_schema(by_alias=True, mode="serialization")}


def _models() -> Mapping[Kind, tuple[str, type[BaseModel]]]:
    formats: dict[Kind, Format[BaseModel]] = {
        Kind.RESULT: RESULT,
        Kind.SWEEP: SWEEP,
        Kind.COMPARE: COMPARE,
        Kind.PLAN: PLAN,
        Kind.SERVING: SERVING,
        Kind.WHATIF: WHATIF,
        Kind.FLEET: FLEET,
    }
    kept: dict[Kind, tuple[str, type[BaseModel]]] = {
        kind: (form.schema, form.model) for kind, form in formats.items()
    }
    return kept | {
        Kind.DIFF: (DocumentName.DIFF.version(1), Difference),
        Kind.CERTIFY: (CERTIFY_SCHEMA, CertifyReport),
        Kind.EXPLANATION: (EXPLANATION_SCHEMA, Explanation),
        Kind.VALIDATE: (DocumentName.VALIDATE.version(1), ValidationReport),
    }
