"""The documents that are kept in files, and how they are read back."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel

from phaze.document_names import DocumentName
from phaze.errors import InputError
from phaze.explore.documents.compare_document import CompareDocument
from phaze.explore.documents.fleet_document import FleetDocument
from phaze.explore.documents.plan_document import PlanDocument, WhatIfDocument
from phaze.explore.documents.result_document import ResultDocument
from phaze.explore.documents.serving_document import ServingDocument
from phaze.explore.documents.sweep_document import SweepDocument
from phaze.runs.atomic_files import LARGEST_BYTES, parse_json, read_json
from phaze.runs.document_migration import (
    Format,
    as_is,
    never_kept,
    same_but_for_the_manifest,
    version_of,
    whatif_2,
    whatif_3,
)
from phaze.text_file import MIB

Answer = (
    ResultDocument
    | SweepDocument
    | CompareDocument
    | PlanDocument
    | ServingDocument
    | WhatIfDocument
    | FleetDocument
)
"""Content of `result.json` in a run directory, by the verb that made it."""

RESULT = Format(DocumentName.RESULT, ResultDocument, [same_but_for_the_manifest, as_is, as_is])
SWEEP = Format(DocumentName.SWEEP, SweepDocument, [never_kept, as_is, as_is])
COMPARE = Format(DocumentName.COMPARE, CompareDocument, [as_is, as_is])
PLAN = Format(DocumentName.PLAN, PlanDocument, [same_but_for_the_manifest, as_is])
SERVING = Format(DocumentName.SERVING, ServingDocument, [same_but_for_the_manifest])
WHATIF = Format(DocumentName.WHATIF, WhatIfDocument, [whatif_2, whatif_3])
FLEET = Format(DocumentName.FLEET, FleetDocument)
ANSWERS: tuple[Format[Answer], ...] = (RESULT, SWEEP, COMPARE, PLAN, SERVING, WHATIF, FLEET)

_Model = TypeVar("_Model", bound=BaseModel)
_FILE = "result.json"


def load_document(form: Format[_Model], path: Path) -> _Model:
    """The document of a format in a run directory (or in a file).

    Raises InputError where there is none, it is not JSON, of another format, newer, or not valid.
    """
    file = answer_file(path)
    return form.read(read_json(file), str(file))


def load_answer(path: Path) -> Answer:
    """The answer in a run directory (or in a file), whichever verb it is of. Raises InputError."""
    file = answer_file(path)
    content = read_json(file)
    document = content if isinstance(content, dict) else {}
    for form in ANSWERS:
        if version_of(document, form.name) is not None:
            return form.read(content, str(file))
    known = ", ".join(form.schema for form in ANSWERS)
    if "schema" not in document:
        raise InputError(f"{file} is no answer of dse: it names no schema, such as {ANSWERS[0].schema!r}")
    raise InputError(f"{file} has schema {document.get('schema')!r}; this version reads {known}")


def read_plan(path: Path) -> PlanDocument:
    """The plan in a file or a run directory, or on standard input (`-`). Raises InputError where there is none."""
    if str(path) != "-":
        return load_document(PLAN, path)
    text = sys.stdin.read(LARGEST_BYTES)
    if len(text) == LARGEST_BYTES:
        raise InputError(f"standard input: longer than the {LARGEST_BYTES // MIB} MiB that a plan may have")
    return PLAN.read(parse_json(text, "standard input"), "standard input")


def answer_file(path: Path) -> Path:
    """The file of an answer. Raises InputError where there is none."""
    file = path / _FILE if path.is_dir() else path
    if not file.is_file():
        why = f"{file} is missing" if path.exists() else "nothing is there; dse runs lists what there is"
        raise InputError(f"no run at {path}: {why}")
    return file
