"""Read design spaces from YAML: packaged ones by name, a user's own by path."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

from phaze.errors import InputError
from phaze.hardware.architecture import Architecture, load_architecture, to_table
from phaze.hardware.area import area_mm2
from phaze.hardware.catalogue import Catalogue, find, packaged
from phaze.hardware.fields import FieldValue, default_values, field_named
from phaze.hardware.space import AreaFilter, Axis, DesignSpace, filtered
from phaze.quantity import si_value
from phaze.yaml_file import checked, read_yaml


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class _AxisFile(_Record):
    """One axis: fields with exactly one of the three ways to list their values."""

    fields: tuple[str, ...]
    values: tuple[object, ...] | None = None
    powers_of_two: tuple[object, object] | None = None
    same_as: str | None = None


class _AreaFilterFile(_Record):
    limit: str
    floor: float


class _SpaceFile(_Record):
    """Shape of a space file. `base` names an architecture, `fixed` sets fields over it."""

    schema_version: Literal[1]
    name: str
    description: str = ""
    source: str = ""
    base: str | None = None
    fixed: Mapping[str, object] = {}
    axes: tuple[_AxisFile, ...]
    area_filter: _AreaFilterFile | None = None
    hbm_capacities: tuple[object, ...] = ()


def list_spaces() -> tuple[str, ...]:
    """Names of the packaged design spaces."""
    return tuple(packaged(Catalogue.SPACE))


def load_space(name_or_path: str | Path = "default") -> DesignSpace:
    """A design space by packaged name or file. Raises InputError."""
    path = find(Catalogue.SPACE, name_or_path)
    file = checked(_SpaceFile, read_yaml(path), str(path))
    ties = {
        _tied(axis, f"{path}: axes.{k}"): axis.same_as for k, axis in enumerate(file.axes) if axis.same_as
    }
    axes = tuple(_axis(axis, f"{path}: axes.{k}") for k, axis in enumerate(file.axes) if not axis.same_as)
    _check_fields(axes, ties, str(path))
    space = DesignSpace(
        name=file.name,
        description=file.description,
        base=_base(file, str(path)),
        axes=axes,
        ties=ties,
        area_filter=_area_filter(file.area_filter),
        hbm_capacities_bytes=tuple(
            si_value(size, "byte", f"{path}: hbm_capacities.{k}")
            for k, size in enumerate(file.hbm_capacities)
        ),
    )
    return filtered(space)


def _base(file: _SpaceFile, where: str) -> Architecture:
    base = load_architecture(file.base) if file.base else Architecture(name="base", fields=default_values())
    fixed = {
        name: field_named(name, f"{where}: fixed").parse(value, f"{where}: fixed.{name}")
        for name, value in file.fixed.items()
    }
    return base.replace(base.name, **fixed)


def _area_filter(file: _AreaFilterFile | None) -> AreaFilter | None:
    if file is None:
        return None
    limit = area_mm2(to_table([load_architecture(file.limit)]))
    return AreaFilter(limit_mm2=float(limit[0]), floor=file.floor)


def _tied(axis: _AxisFile, where: str) -> str:
    if len(axis.fields) != 1 or axis.values is not None or axis.powers_of_two is not None:
        raise InputError(f"{where}: same_as ties exactly one field and takes no other values")
    return field_named(axis.fields[0], where).name


def _axis(axis: _AxisFile, where: str) -> Axis:
    for name in axis.fields:
        field_named(name, f"{where}.fields")
    if not axis.fields or (axis.values is None) == (axis.powers_of_two is None):
        raise InputError(f"{where}: give fields and exactly one of values, powers_of_two, same_as")
    if axis.powers_of_two is not None:
        options = _powers_of_two(axis, f"{where}.powers_of_two")
    else:
        options = tuple(_option(axis, raw, f"{where}.values.{k}") for k, raw in enumerate(axis.values or ()))
    if not options or len(set(options)) < len(options):
        raise InputError(f"{where}: values are missing or given twice")
    return Axis(fields=axis.fields, options=options)


def _powers_of_two(axis: _AxisFile, where: str) -> tuple[tuple[FieldValue, ...], ...]:
    if len(axis.fields) != 1 or axis.powers_of_two is None:
        raise InputError(f"{where}: a range of powers of two is for exactly one field")
    field = field_named(axis.fields[0], where)
    first, last = (si_value(end, field.unit, where) for end in axis.powers_of_two)
    values = [first]
    while first > 0 and values[-1] < last:
        values.append(2.0 * values[-1])
    if values[-1] != last:
        raise InputError(f"{where}: {list(axis.powers_of_two)} is not [first, first x a power of two]")
    return tuple((field.parse(value, where),) for value in values)


def _option(axis: _AxisFile, raw: object, where: str) -> tuple[FieldValue, ...]:
    values = raw if isinstance(raw, list | tuple) else (raw,)
    if len(values) != len(axis.fields):
        raise InputError(f"{where}: {raw!r} does not give one value for each of {', '.join(axis.fields)}")
    pairs = zip(axis.fields, values, strict=True)
    return tuple(field_named(name, where).parse(value, where) for name, value in pairs)


def _check_fields(axes: tuple[Axis, ...], ties: Mapping[str, str], where: str) -> None:
    free = [name for axis in axes for name in axis.fields]
    twice = {name for name in [*free, *ties] if [*free, *ties].count(name) > 1}
    if twice:
        raise InputError(f"{where}: axes: {', '.join(sorted(twice))} appears more than once")
    for name, source in ties.items():
        if source not in free:
            raise InputError(f"{where}: axes: {name} is tied to {source}, which is not a field of an axis")
        if field_named(name, where).kind is not field_named(source, where).kind:
            raise InputError(f"{where}: axes: {name} and {source} hold values of different kinds")
