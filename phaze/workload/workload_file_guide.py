"""A commented workload file to start from and the reference page, both generated from the fields of the families."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import yaml
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from phaze.errors import InputError
from phaze.workload.families.family_registry import FAMILIES, Family
from phaze.workload.families.model_family import FamilyDimensions
from phaze.workload.workload_file import WorkloadSpec
from phaze.workload.workload_library import builtin_workloads, known_name, named_spec

COMMENT_COLUMN = 32


def new_workload_text(name: str, family: Family = Family.DECODER, like: str | None = None) -> str:
    """A workload file of that name with the numbers of `like`, by default the family's smallest built-in model.

    Fields that `like` leaves out stand as comments with their defaults. Raises InputError for a name that
    no workload can have, and for an unknown `like`.
    """
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
        raise InputError(f"{name!r} is not a name of letters, digits, - and _")
    origin = known_name(like) if like else _smallest(family)
    spec = named_spec(origin)
    given = spec.model_dump(mode="json", exclude_unset=True)
    source = {"dimensions": f"the numbers of {origin}, until they are replaced"}
    given |= {"name": name, "source": source}
    head = (
        f"# {name}: a {spec.family} to start from, with the numbers of the built-in {origin}.",
        "# Every field is here; those behind a # have the value that stands there, or none.",
    )
    return "\n".join((*head, *_fields(type(spec), given, ""))) + "\n"


def _smallest(family: Family) -> str:
    """The built-in workload of the family with the fewest parameters."""
    return min((s for s in builtin_workloads() if s.family == family), key=lambda s: s.parameters).name


def _fields(model: type[BaseModel], given: Mapping[str, Any] | None, margin: str) -> Iterator[str]:
    """Lines of a model's fields; without `given`, all of them as comments."""
    for name, field in model.model_fields.items():
        inner = nested_model(field)
        written = given is not None and name in given
        value = given[name] if given is not None and written else None
        lead = margin if written or "#" in margin else f"{margin}# "
        if inner is not None and (value is None or isinstance(value, dict)):
            yield _commented(f"{lead}{name}:", field)
            yield from _fields(inner, value, f"{lead}  ")
        elif written:
            yield from _entry(lead, name, value, field)
        elif not field.is_required():
            yield from _entry(lead, name, plain(field.default), field)
        else:
            yield _commented(f"{lead}{name}:", field)


def nested_model(field: FieldInfo) -> type[BaseModel] | None:
    """The model of a nested part."""
    kinds = getattr(field.annotation, "__args__", (field.annotation,))
    found = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)]
    return found[0] if len(found) == 1 else None


def _entry(lead: str, name: str, value: object, field: FieldInfo) -> Iterator[str]:
    """Lines of one field, what it means behind the first; a list or mapping on lines of its own."""
    if isinstance(value, list | dict):
        yield _commented(f"{lead}{name}:", field)
        style = None if isinstance(value, list) else False
        text = yaml.safe_dump(value, default_flow_style=style, sort_keys=False, width=100)
        yield from (f"{lead}  {line}" for line in text.splitlines())
    else:
        shown = "" if value is None else yaml.safe_dump(value).removesuffix("...\n").strip()
        yield _commented(f"{lead}{name}: {shown}".rstrip(), field)


def plain(value: object) -> object:
    """A default as YAML has it."""
    return getattr(value, "value", value)


def _commented(text: str, field: FieldInfo) -> str:
    return f"{text:<{COMMENT_COLUMN}}# {field.description}" if field.description else text


_HEAD = """# Workload files

<!-- Generated from the fields of `phaze/workload/families` and `workload_file.py`; change those, not this page. -->

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
