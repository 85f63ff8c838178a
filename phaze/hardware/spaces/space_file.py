"""Design spaces from YAML, packaged ones by name, a user's own by path, and what they must not ask for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

from phaze.errors import InputError
from phaze.hardware.architecture import Architecture, load_architecture, to_table
from phaze.hardware.catalogue import Catalogue, find, packaged
from phaze.hardware.hardware_fields import FieldValue, default_values, field_named, still_valid
from phaze.hardware.physical_constants import constants
from phaze.hardware.silicon.die_area import area_mm2
from phaze.hardware.spaces.axis_file import AxisFile, read_axis, read_tie
from phaze.hardware.spaces.design_space import AreaFilter, DesignSpace
from phaze.hardware.spaces.network_axes import NetworkFile, read_network_axes
from phaze.hardware.spaces.space_axis import Axis, Condition, Override
from phaze.hardware.spaces.space_constraint import Constraint, parse_constraint
from phaze.quantity import si_value
from phaze.ranges import Line, Share
from phaze.yaml_file import checked, parse_yaml, read_yaml

LARGEST = 1 << 60
"""Combinations that can be numbered."""

LARGEST_FILTERED = 1_000_000_000
"""Combinations of which conditions and constraints can pick, at one bit of memory each."""


def check_space(space: DesignSpace, where: str) -> None:
    """Raises InputError, with the path in the file `where`, for what cannot be searched."""
    for axis in space.axes:
        _check_precision(axis, where)
    _check_facts(space.fields_varied, where)
    _check_constraints(space, where)
    limit = LARGEST_FILTERED if space.is_filtered else LARGEST
    if space.grid_size > limit:
        raise InputError(
            f"{where}: axes: {space.grid_size:.3g} combinations are more than the {limit:.3g} that can be "
            + ("filtered; drop conditions and constraints, or values" if space.is_filtered else "numbered")
        )


def _check_facts(varied: Iterable[str], where: str) -> None:
    """A search would choose the best of them, for nothing."""
    facts = [name for name in varied if field_named(name, where).fact]
    if facts:
        raise InputError(
            f"{where}: axes: {', '.join(facts)} costs neither area nor power, so no space can choose it; "
            "give it in the base chip or with --fix"
        )


def _check_precision(axis: Axis, where: str) -> None:
    """Bytes and rates follow the workload's precision, so the narrowest format alone would win whatever it costs."""
    if "precision" not in axis.fields:
        return
    bits = constants().tables["precision"].rows
    formats = {str(option[axis.fields.index("precision")]) for option in axis.every_option}
    if len({bits[name]["operand_bits"] for name in formats}) > 1:
        raise InputError(
            f"{where}: axes: precision cannot range over formats of different width ({', '.join(sorted(formats))}): "
            "attention and all else outside linear layers stay in 16 bits, which an array of fewer bits alone does not "
            "have; bf16+fp8 and bf16+fp8+fp4 have them, and wider formats go under `fixed`, one space per format"
        )


def _check_constraints(space: DesignSpace, where: str) -> None:
    """A constraint on a field that may be absent would silently rule architectures out."""
    for k, constraint in enumerate(space.constraints):
        for name in constraint.fields:
            if None in _values(space, space.ties.get(name, name)):
                raise InputError(
                    f"{where}: where.{k}: some architectures have no {name}; set it under `fixed` or on an axis"
                )


def _values(space: DesignSpace, name: str) -> set[FieldValue | None]:
    """Every value a field has in the space, None where it may be absent."""
    for axis in space.axes:
        if name in axis.fields:
            return {option[axis.fields.index(name)] for option in axis.every_option}
    return {space.base.fields.get(name)}


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class _AreaFilterFile(_Record):
    limit: str
    floor: Share


class _SpaceFile(_Record):
    """Shape of a space file. `base` names an architecture, `fixed` sets fields over it, `network` varies beside it."""

    schema_version: Literal[1]
    name: Line
    description: str = ""
    source: str = ""
    base: str | None = None
    fixed: Mapping[str, object] = {}
    axes: tuple[AxisFile, ...]
    where: tuple[object, ...] = ()
    area_filter: _AreaFilterFile | None = None
    hbm_capacities: tuple[object, ...] = ()
    network: NetworkFile | None = None
    stages: Literal["alike", "heterogeneous"] = "alike"


def list_spaces() -> tuple[str, ...]:
    """Names of the packaged design spaces."""
    return tuple(packaged(Catalogue.SPACE))


def load_space(name_or_path: str | Path = "default") -> DesignSpace:
    """A design space by packaged name or file. Raises InputError."""
    path = find(Catalogue.SPACE, name_or_path)
    return _from_content(read_yaml(path), str(path))


def parse_space(text: str, where: str) -> DesignSpace:
    """A design space from YAML text; `where` names it in errors. Raises InputError."""
    return _from_content(parse_yaml(text, where), where)


def new_space_text(name: str) -> str:
    """A commented space file with every form of axis, to start a space of that name from. Raises InputError."""
    if not re.fullmatch(r"[A-Za-z][\w.-]*", name):
        raise InputError(f"{name!r} is not a name of letters, digits, - and _")
    text = files("phaze.hardware").joinpath("space_template.yaml").read_text(encoding="utf-8")
    return text.replace("name: myspace", f"name: {name}", 1)


def _from_content(content: object, where: str) -> DesignSpace:
    file = checked(_SpaceFile, content, where)
    base = _base(file, where)
    axes = _axes(file, base, where)
    ties = {
        read_tie(axis, axes, f"{where}: axes.{k}"): axis
        for k, axis in enumerate(file.axes)
        if axis.same_as is not None
    }
    varied = [*(name for axis in axes for name in axis.fields), *ties]
    _check_once(varied, where)
    # A figure of the base chip says nothing of other values of what it stands for.
    kept = still_valid(base.fields, varied)
    overrides = tuple(_override(base, name) for name in base.fields if name not in {*kept, *varied})
    base = base.model_copy(update={"fields": kept})
    space = DesignSpace(
        name=file.name,
        description=file.description,
        base=base,
        axes=axes,
        ties={name: str(tie.same_as) for name, tie in ties.items()},
        multiples={name: tie.times for name, tie in ties.items() if tie.times is not None},
        constraints=_constraints(file, where),
        area_filter=_area_filter(file.area_filter),
        hbm_capacities_bytes=tuple(
            si_value(size, "byte", f"{where}: hbm_capacities.{k}")
            for k, size in enumerate(file.hbm_capacities)
        ),
        heterogeneous=file.stages == "heterogeneous",
        overrides=overrides,
        network_axes=None if file.network is None else read_network_axes(file.network, f"{where}: network"),
    )
    check_space(space, where)
    return space


def _override(base: Architecture, name: str) -> Override:
    """A figure of a chip, which holds where what it overrules is as in that chip."""
    like = (Condition(other, (base.fields.get(other),)) for other in field_named(name, base.name).overrules)
    return Override(name, base.fields[name], tuple(like), field_named(name, base.name).counts(base.fields))


def _axes(file: _SpaceFile, base: Architecture, where: str) -> tuple[Axis, ...]:
    axes: list[Axis] = []
    for k, axis in enumerate(file.axes):
        if axis.same_as is None:
            axes.append(read_axis(axis, axes, base.fields, f"{where}: axes.{k}"))
    return tuple(axes)


def _constraints(file: _SpaceFile, where: str) -> tuple[Constraint, ...]:
    return tuple(parse_constraint(text, f"{where}: where.{k}") for k, text in enumerate(file.where))


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


def _check_once(names: list[str], where: str) -> None:
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise InputError(f"{where}: axes: {', '.join(sorted(twice))} appears more than once")
