"""Hold fields of a design space at one value: `tensor_cores=8`, `global_buffer_bytes=64MiB`, `hbm=hbm3x6`."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping

from phaze.errors import InputError
from phaze.hardware.architecture_naming import value_text
from phaze.hardware.hardware_fields import FieldKind, FieldValue, field_named, field_table
from phaze.hardware.spaces.design_space import DesignSpace
from phaze.hardware.spaces.space_axis import Axis, Condition, Option

_MOST_SHOWN = 16
_CAPACITY = "hbm_capacity_bytes"
_HBM = re.compile(r"(hbm[0-9a-z]*?)(?:x([0-9]+))?", re.IGNORECASE)

Values = Mapping[str, FieldValue]


def fix(space: DesignSpace, texts: Iterable[str], where: str = "--fix") -> DesignSpace:
    """The space with some fields held at one value, each text `FIELD=VALUE` or `hbm=GENERATIONxSTACKS`.

    An axis keeps only the options that agree, and so do memory sizes searched beside the architecture; a field
    that does not vary is set in the base. Raises InputError, with the values there are, where nothing agrees.
    """
    wanted = _wanted(texts, where)
    narrowed = [_narrowed(space, axis, wanted, where) for axis in space.axes]
    capacities = _capacities(space, wanted, where)
    varied = {*space.fields_varied, *([_CAPACITY] if capacities else [])}
    rest = {name: value for name, value in wanted.items() if name not in varied}
    return dataclasses.replace(
        space,
        base=space.base.replace(space.base.name, **rest) if rest else space.base,
        axes=tuple(axis for axis, _ in narrowed),
        pins=(*space.pins, *(pin for _, pins in narrowed for pin in pins)),
        hbm_capacities_bytes=capacities,
    )


def _wanted(texts: Iterable[str], where: str) -> dict[str, FieldValue]:
    """Fields and their values from what was typed."""
    wanted: dict[str, FieldValue] = {}
    for text in texts:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not (name and equals and value):
            raise InputError(
                f"{where} {text!r} is not FIELD=VALUE, for instance tensor_cores=8 or hbm=hbm3x6"
            )
        found = (
            _memory(text, value, where) if name == "hbm" else {name: _value(name, value, f"{where} {text}")}
        )
        twice = sorted(set(found) & set(wanted))
        if twice:
            raise InputError(f"{where} {text!r} fixes {', '.join(twice)} a second time")
        wanted |= found
    return wanted


def _value(name: str, text: str, where: str) -> FieldValue:
    field = field_named(name, where)
    if field.kind is FieldKind.BOOLEAN:
        return field.parse({"true": True, "false": False}.get(text.lower(), text), where)
    return field.parse(text, where)


def _memory(text: str, value: str, where: str) -> dict[str, FieldValue]:
    """Generation, and number of stacks where given, from `hbm3x6`."""
    generations = {choice.lower(): choice for choice in field_table()["hbm_generation"].choices}
    match = _HBM.fullmatch(value)
    if match is None or match[1].lower() not in generations:
        known = ", ".join(generations)
        raise InputError(f"{where} {text!r} is not GENERATIONxSTACKS such as hbm3x6; generations: {known}")
    found: dict[str, FieldValue] = {"hbm_generation": generations[match[1].lower()]}
    if match[2] is not None:
        found["hbm_stacks"] = _value("hbm_stacks", match[2], f"{where} {text}")
    return found


def _narrowed(
    space: DesignSpace, axis: Axis, wanted: Values, where: str
) -> tuple[Axis, tuple[Condition, ...]]:
    """The axis with the options that agree, and what must be held besides where a conditional axis does not."""
    held = {name: value for name, value in wanted.items() if space.ties.get(name, name) in axis.fields}
    if not held:
        return axis, ()
    agreeing = tuple(option for option in axis.options if _agrees(space, axis, option, held))
    elsewhere = not axis.when or _agrees(space, axis, axis.otherwise, held)
    if not agreeing and not (axis.when and elsewhere):
        raise _nothing(space, axis, held, where)
    pins = () if agreeing and elsewhere else tuple(Condition(name, (value,)) for name, value in held.items())
    return dataclasses.replace(axis, options=agreeing or axis.options[:1]), pins


def _agrees(space: DesignSpace, axis: Axis, option: Option, held: Values) -> bool:
    values = dict(zip(axis.fields, option, strict=True))
    return all(_of(space, name, values) == value for name, value in held.items())


def _of(space: DesignSpace, name: str, values: Mapping[str, FieldValue | None]) -> FieldValue | None:
    """A field's value on an axis, or that of a field tied to the axis."""
    return space.tied_value(name, values[space.ties[name]]) if name in space.ties else values[name]


def _nothing(space: DesignSpace, axis: Axis, held: Values, where: str) -> InputError:
    def text(values: Mapping[str, FieldValue | None]) -> str:
        return " x ".join(value_text(name, _of(space, name, values)) for name in held)

    options = [text(dict(zip(axis.fields, option, strict=True))) for option in axis.every_option]
    offered = list(dict.fromkeys(options))
    more = ", ..." if len(offered) > _MOST_SHOWN else ""
    given = " x ".join(value_text(name, value) for name, value in held.items())
    return InputError(
        f"{where}: space {space.name} has no {', '.join(held)} = {given}; "
        f"it offers {', '.join(offered[:_MOST_SHOWN])}{more}"
    )


def _capacities(space: DesignSpace, wanted: Values, where: str) -> tuple[float, ...]:
    """The memory sizes beside the architecture that agree."""
    sizes = space.hbm_capacities_bytes
    if not sizes or _CAPACITY not in wanted:
        return sizes
    if wanted[_CAPACITY] not in sizes:
        offered = ", ".join(value_text(_CAPACITY, size) for size in sizes)
        given = value_text(_CAPACITY, wanted[_CAPACITY])
        raise InputError(f"{where}: space {space.name} has no {_CAPACITY} = {given}; it offers {offered}")
    return tuple(size for size in sizes if size == wanted[_CAPACITY])
