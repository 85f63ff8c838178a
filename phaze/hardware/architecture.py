"""One architecture: a value for every hardware field, each with its source; to and from YAML and tables."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import yaml
from pydantic import BaseModel, ConfigDict

from phaze.errors import InputError
from phaze.hardware.architecture_naming import decoded
from phaze.hardware.architecture_table import ArchitectureTable
from phaze.hardware.catalogue import Catalogue, find, packaged, registry
from phaze.hardware.hardware_fields import (
    FieldValue,
    default_values,
    field_named,
    field_table,
    grown,
    still_valid,
)
from phaze.quantity import si_value
from phaze.ranges import Line, Positive
from phaze.yaml_file import checked, parse_yaml, read_yaml

PUBLISHED = ("published_area_mm2", "published_tdp_w")
"""The vendor's figures an architecture may carry."""
_HIGHER, _REFERENCE = {"peak_clock_hz", "boost_clock_hz"}, "boost_reference_clock_hz"
FROM_LIMIT = "highest at full load within"
"""How the source of a sustained clock begins that follows from a power limit."""


class Architecture(BaseModel):
    """A named architecture.

    `fields` holds every field that has a default and the optional ones that are set, in SI units; `sources`
    tells where a value comes from (fields left at their default are not listed). The published figures are
    the vendor's, not the model's.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    schema_version: Literal[1] = 1
    name: Line
    description: str = ""
    aliases: tuple[str, ...] = ()
    fields: Mapping[str, FieldValue]
    sources: Mapping[str, str] = {}
    published_area_mm2: Positive | None = None
    published_tdp_w: Positive | None = None

    def value(self, field: str) -> FieldValue | None:
        """Value of a field in SI units, None where an optional one is absent. Raises InputError."""
        return self.fields.get(field_named(field, self.name).name)

    def replace(self, name: str, **fields: FieldValue) -> Architecture:
        """The same architecture with some fields changed (checked) and without published figures.

        What overrules a changed field goes, too: other stacks have another bandwidth. Totals grow with what they are
        made of: twice as many tensor cores have twice the local buffers.
        """
        new = {key: field_named(key, name).parse(value, f"{name}: {key}") for key, value in fields.items()}
        held = still_valid(self.fields, _other(self.fields, new))
        new = grown(held, {**held, **new}, new) | new
        kept = {key: text for key, text in self.sources.items() if key in held and key not in new}
        return Architecture(name=name, description=self.description, fields={**held, **new}, sources=kept)


class _ArchitectureFile(BaseModel):
    """Shape of an architecture file; a field is a bare value or `{value: ..., source: ...}`.

    Fields of the packaged architecture `base` count where the file gives none; its published figures do not.
    `power_limit_w`: what the board may draw, from which the sustained clock follows where the file gives none.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    schema_version: Literal[1]
    name: str
    description: str = ""
    aliases: tuple[str, ...] = ()
    base: str | None = None
    fields: Mapping[str, object] = {}
    published_area_mm2: object = None
    published_tdp_w: object = None
    power_limit_w: object = None


def list_architectures() -> tuple[str, ...]:
    """Names of the packaged architectures."""
    return tuple(packaged(Catalogue.ARCHITECTURE))


def load_architecture(name_or_path: str | Path) -> Architecture:
    """An architecture by packaged name (`a100`), alias (`A100-SXM`) or file. Raises InputError."""
    path = architecture_path(name_or_path)
    return _from_content(read_yaml(path), str(path))


def architecture_path(name_or_path: str | Path) -> Path:
    """The file behind a packaged name, an alias or a path. Raises InputError."""
    return find(Catalogue.ARCHITECTURE, name_or_path, _aliases)


def parse_architecture(text: str, where: str) -> Architecture:
    """An architecture from YAML text; `where` names it in errors. Raises InputError."""
    return _from_content(parse_yaml(text, where), where)


def dump_yaml(architecture: Architecture) -> str:
    """YAML text that `load_architecture` reads back to an equal architecture, numbers in plain SI units.

    A comment after each field tells its unit and, where it is at its default, what the default rests on.
    """
    head: dict[str, object] = {"schema_version": architecture.schema_version, "name": architecture.name}
    if architecture.description:
        head["description"] = architecture.description
    if architecture.aliases:
        head["aliases"] = list(architecture.aliases)
    lines = [yaml.safe_dump(head, sort_keys=False, allow_unicode=True, width=110).rstrip(), "fields:"]
    sources = architecture.sources
    for name, value in architecture.fields.items():
        field = field_table()[name]
        rest = "" if name in sources or value != field.default else f", default: {field.source}"
        lines.append(f"  {name}: {_entry(value, sources.get(name))}  # {field.unit}{rest}")
    given = {name: getattr(architecture, name) for name in PUBLISHED}
    lines += [f"{name}: {_entry(v, sources.get(name))}" for name, v in given.items() if v is not None]
    return "\n".join(lines) + "\n"


def _entry(value: FieldValue, source: str | None) -> str:
    """A value, with its source where it has one, on one line of YAML."""
    content = [value] if source is None else {"value": value, "source": source}
    text = yaml.safe_dump(
        content, default_flow_style=True, sort_keys=False, allow_unicode=True, width=math.inf
    ).strip()
    return text[1:-1] if source is None else text


def to_table(architectures: Sequence[Architecture]) -> ArchitectureTable:
    """One row per architecture, one column per hardware field."""
    return ArchitectureTable(
        {
            name: np.array(
                [field.encode(a.fields.get(name, field.default)) for a in architectures], dtype=field.dtype
            )
            for name, field in field_table().items()
        }
    )


def from_table(table: ArchitectureTable, row: int, name: str) -> Architecture:
    """The architecture in one row of a table."""
    cells = {key: field.decode(table[key][row]) for key, field in field_table().items()}
    return Architecture(name=name, fields={key: value for key, value in cells.items() if value is not None})


def from_rows(table: ArchitectureTable, names: Sequence[str]) -> list[Architecture]:
    """The architectures of all rows of a table, with a name each; much faster than one by one."""
    columns = [decoded(table, key) for key in field_table()]
    present = [
        {k: v for k, v in zip(field_table(), cells, strict=True) if v is not None}
        for cells in zip(*columns, strict=True)
    ]
    return [Architecture(name=name, fields=fields) for name, fields in zip(names, present, strict=True)]


def _aliases() -> dict[str, str]:
    """Every alias with the name it stands for."""
    return {
        alias: name
        for name, path in registry(Catalogue.ARCHITECTURE).all().items()
        for alias in checked(_ArchitectureFile, read_yaml(path), str(path)).aliases
    }


def _from_content(content: object, where: str) -> Architecture:
    file = checked(_ArchitectureFile, content, where)
    values, sources = _inherited(file.base, where)
    own: dict[str, FieldValue] = {}
    for name, raw in file.fields.items():
        place = f"{where}: fields.{name}"
        field = field_named(name, place)
        value, source = _split(raw, place)
        own[name] = field.parse(value, place)
        sources.pop(name, None)
        sources |= {name: source} if source else {}
    values = still_valid(values, _other(values, own))
    totals = grown(values, values | own, own)
    values = values | totals | own
    sources = {name: text for name, text in sources.items() if name in values and name not in totals}
    if file.power_limit_w is not None:
        values, sources = _at_its_limit(file, values, sources, where)
    # A file that tells these clocks is of a board of its own; one that does not is a board of the base, held lower.
    if values["simt"] and _REFERENCE not in own and own.keys() & _HIGHER:
        values = values | {_REFERENCE: values["clock_hz"]}
    published: dict[str, float] = {}
    for name in PUBLISHED:
        value, source = _split(getattr(file, name), f"{where}: {name}")
        if value is not None:
            published[name] = si_value(value, "the unit of its name", f"{where}: {name}")
            sources |= {name: source} if source else {}
    content = file.model_dump(include={"name", "description", "aliases"}) | published
    order = {name: values[name] for name in field_table() if name in values}
    return checked(Architecture, content | {"fields": order, "sources": sources}, where)


def _at_its_limit(
    file: _ArchitectureFile, values: dict[str, FieldValue], sources: dict[str, str], where: str
) -> tuple[dict[str, FieldValue], dict[str, str]]:
    """Values and sources with the sustained clock that the board's limit leaves at full load. Raises InputError."""
    # Here, as the laws of power ask for the table of an architecture.
    from phaze.hardware.silicon.dvfs import fit_clock

    place = f"{where}: power_limit_w"
    if "clock_hz" in file.fields:
        raise InputError(
            f"{place}: the sustained clock follows from it; give one of power_limit_w and clock_hz"
        )
    value, source = _split(file.power_limit_w, place)
    limit_w = si_value(value, "W", place)
    free = values | {"clock_hz": values.get("peak_clock_hz", values["clock_hz"])}
    clock = float(fit_clock(to_table([Architecture(name=file.name, fields=free)]), limit_w)[0])
    if math.isnan(clock):
        raise InputError(f"{place}: at {limit_w:g} W the chip has no sensible clock")
    told = f"{FROM_LIMIT} {limit_w:g} W" + (f" ({source})" if source else "")
    return values | {"clock_hz": clock}, sources | {"clock_hz": told}


def _inherited(base: str | None, where: str) -> tuple[dict[str, FieldValue], dict[str, str]]:
    """Values and sources that a file starts from: the defaults, or what its base holds. Raises InputError."""
    if base is None:
        return default_values(), {}
    if base not in list_architectures():
        raise InputError(f"{where}: base: {base!r} is not a built-in architecture (`dse archs` lists them)")
    built_on = load_architecture(base)
    fields = {name: text for name, text in built_on.sources.items() if name not in PUBLISHED}
    return dict(built_on.fields), fields


def _other(values: Mapping[str, FieldValue], new: Mapping[str, FieldValue]) -> set[str]:
    """Fields to which something else is given than they have."""
    return {name for name, value in new.items() if values.get(name) != value}


def _split(raw: object, where: str) -> tuple[object, str]:
    """Value and source of an entry; the source is empty where none is given."""
    if not isinstance(raw, dict):
        return raw, ""
    if set(raw) != {"value", "source"} or not isinstance(raw["source"], str):
        raise InputError(f"{where}: give a value, or a mapping of exactly value and source")
    return raw["value"], raw["source"]
