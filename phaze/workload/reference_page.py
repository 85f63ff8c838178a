"""The reference page of workload files, generated from the fields of the families."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from phaze.workload.families.family import FamilyDimensions
from phaze.workload.families.registry import FAMILIES
from phaze.workload.new_file import nested_model, plain
from phaze.workload.workload_file import WorkloadSpec

_HEAD = """# Workload files

Generated from the fields of `phaze/workload/families` and `workload_file.py`; change those, not this page.

Under `dimensions` stand the fields of the file's family. A field whose default is "-" must be given, one
whose default is "none" is left out or as its meaning says.
`dse workloads new` writes a file with all of them.
"""


def reference_page() -> str:
    """The page as Markdown text."""
    lines = [_HEAD, "## The file", "", *_table(WorkloadSpec[FamilyDimensions])]
    for family, dimensions in FAMILIES.items():
        about = (dimensions.__doc__ or "").partition("\n")[0]
        lines += ["", f"## dimensions of family `{family}`", "", about, "", *_table(dimensions)]
    return "\n".join(lines) + "\n"


def _table(model: type[BaseModel]) -> Iterator[str]:
    yield "| field | default | meaning |"
    yield "|---|---|---|"
    yield from _rows(model, "")


def _rows(model: type[BaseModel], path: str) -> Iterator[str]:
    """One row per field; those of a part of a file by their path."""
    for name, field in model.model_fields.items():
        yield f"| `{path}{name}` | {_default(field)} | {field.description or ''} |"
        inner = nested_model(field)
        if inner is not None and inner is not FamilyDimensions:
            yield from _rows(inner, f"{path}{name}.")


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "-"
    value = plain(field.default)
    return "none" if value is None else str(value).lower()
