"""One axis of a space file: the ways to list its values, ties, and conditions on earlier axes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from pydantic import BaseModel, ConfigDict, Field

from phaze.errors import InputError
from phaze.hardware.hardware_fields import FieldKind, FieldValue, field_named
from phaze.hardware.spaces.space_axis import Axis, Condition, Option
from phaze.quantity import si_value

MOST_OPTIONS = 10_000
"""More options on one axis are taken for a slip of the step."""

_FORMS = ("values", "powers_of_two", "range", "geometric")


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class LinearFile(_Record):
    """`from`, `from` + `step`, ... up to `to`, which must be one of them."""

    first: object = Field(alias="from")
    last: object = Field(alias="to")
    step: object


class GeometricFile(_Record):
    """`from`, `from` x `factor`, ... up to `to`, which must be one of them."""

    first: object = Field(alias="from")
    last: object = Field(alias="to")
    factor: float = Field(gt=1.0, allow_inf_nan=False)


class AxisFile(_Record):
    """Fields with exactly one way to list their values, or one field tied to another."""

    fields: tuple[str, ...]
    values: tuple[object, ...] | None = None
    powers_of_two: tuple[object, object] | None = None
    range: LinearFile | None = None
    geometric: GeometricFile | None = None
    same_as: str | None = None
    times: float | None = Field(None, gt=0.0, allow_inf_nan=False)
    when: Mapping[str, tuple[object, ...]] = {}
    otherwise: object = None

    @property
    def forms(self) -> list[str]:
        """The ways to list values that are used."""
        return [form for form in _FORMS if getattr(self, form) is not None]


def read_axis(file: AxisFile, earlier: Sequence[Axis], base: Mapping[str, FieldValue], where: str) -> Axis:
    """The axis, checked. `base` has the values of fields where a conditional axis does not vary."""
    for name in file.fields:
        field_named(name, f"{where}.fields")
    if not file.fields or len(file.forms) != 1 or file.times is not None:
        raise InputError(f"{where}: give fields and exactly one of {', '.join(_FORMS)}, same_as (with times)")
    options = _options(file, where)
    if not options or len(set(options)) < len(options):
        raise InputError(f"{where}: values are missing or given twice")
    if not file.when:
        if file.otherwise is not None:
            raise InputError(f"{where}.otherwise: it belongs to a condition; there is no `when`")
        return Axis(file.fields, options)
    when = tuple(
        _condition(name, values, earlier, f"{where}.when.{name}") for name, values in file.when.items()
    )
    return Axis(file.fields, options, when, _otherwise(file, base, f"{where}.otherwise"))


def read_tie(file: AxisFile, axes: Sequence[Axis], where: str) -> str:
    """The tied field, checked to be able to follow every value of its source."""
    if len(file.fields) != 1 or file.forms or file.when or file.otherwise is not None:
        raise InputError(f"{where}: same_as ties exactly one field and takes no values and no condition")
    field, source = field_named(file.fields[0], where), field_named(str(file.same_as), f"{where}.same_as")
    if field.name == source.name or source.name not in {name for axis in axes for name in axis.fields}:
        raise InputError(
            f"{where}: {field.name} is tied to {source.name}, which is not a field of another axis"
        )
    numbers = (FieldKind.INTEGER, FieldKind.NUMBER)
    if field.kind not in numbers or source.kind not in numbers:
        raise InputError(
            f"{where}: {field.name} and {source.name} are not both numbers, so they cannot be tied"
        )
    for value in _values_of(source.name, axes):
        multiple = value if file.times is None or value is None else float(value) * file.times
        field.parse(multiple, f"{where}: {field.name}, {file.times or 1:g} x {source.name}")
    return field.name


def _options(file: AxisFile, where: str) -> tuple[Option, ...]:
    (form,) = file.forms
    inner = f"{where}.{form}"
    if file.values is not None:
        return tuple(_option(file.fields, raw, f"{inner}.{k}") for k, raw in enumerate(file.values))
    if len(file.fields) != 1:
        raise InputError(f"{inner}: a range is for exactly one field")
    field = field_named(file.fields[0], inner)
    return tuple((field.parse(value, inner),) for value in _sequence(file, field.unit, inner))


def _sequence(file: AxisFile, unit: str, where: str) -> list[float]:
    """The numbers of a linear, geometric or power-of-two range."""
    if file.range is not None:
        ends = (file.range.first, file.range.last)
        step = si_value(file.range.step, unit, f"{where}.step")
        first, last = _ends(ends, unit, where)
        if step <= 0:
            raise InputError(f"{where}.step: {file.range.step!r} is not above 0")
        return _steps(lambda k: first + k * step, (last - first) / step, ends, last, where)
    if file.geometric is not None:
        ends, factor = (file.geometric.first, file.geometric.last), file.geometric.factor
    else:
        ends, factor = file.powers_of_two or (None, None), 2.0
    first, last = _ends(ends, unit, where)
    if first <= 0:
        raise InputError(f"{where}: {list(ends)} does not start above 0")
    return _steps(lambda k: first * factor**k, math.log(last / first, factor), ends, last, where)


def _ends(ends: tuple[object, object], unit: str, where: str) -> tuple[float, float]:
    first, last = (si_value(end, unit, where) for end in ends)
    if last < first:
        raise InputError(f"{where}: {list(ends)} does not go upwards")
    return first, last


def _steps(
    value: Callable[[int], float], steps: float, ends: tuple[object, object], last: float, where: str
) -> list[float]:
    """The values of steps 0, 1, ..., of which the last must be the end that was given."""
    count = round(steps) if steps < MOST_OPTIONS else MOST_OPTIONS
    if count >= MOST_OPTIONS:
        raise InputError(f"{where}: {list(ends)} has more than {MOST_OPTIONS} values")
    if not math.isclose(value(count), last, rel_tol=1e-9):
        raise InputError(f"{where}: {list(ends)} is not a range whose last step meets its end")
    # Fifteen digits: 0.1 + 2 x 0.1 is 0.3, as in the file.
    return [float(f"{value(k):.15g}") for k in range(count)] + [last]


def _option(fields: tuple[str, ...], raw: object, where: str) -> Option:
    values = raw if isinstance(raw, list | tuple) else (raw,)
    if len(values) != len(fields):
        raise InputError(f"{where}: {raw!r} does not give one value for each of {', '.join(fields)}")
    pairs = zip(fields, values, strict=True)
    return tuple(field_named(name, where).parse(value, where) for name, value in pairs)


def _condition(name: str, values: Sequence[object], earlier: Sequence[Axis], where: str) -> Condition:
    """The condition that an earlier field has one of some values, each of which it can have."""
    field = field_named(name, where)
    possible = _values_of(name, earlier)
    if not possible:
        raise InputError(f"{where}: {name} is not a field of an earlier axis")
    wanted = tuple(field.parse(value, f"{where}.{k}") for k, value in enumerate(values))
    missing = [value for value in wanted if value not in possible]
    if missing or not wanted:
        raise InputError(
            f"{where}: {list(values)} is not a list of values that {name} takes: {', '.join(map(str, possible))}"
        )
    return Condition(name, wanted)


def _otherwise(file: AxisFile, base: Mapping[str, FieldValue], where: str) -> Option:
    if file.otherwise is None:
        return tuple(base.get(name) for name in file.fields)
    return _option(file.fields, file.otherwise, where)


def _values_of(name: str, axes: Sequence[Axis]) -> Option:
    """Every value a field of an axis can take; none where no axis has it."""
    found: list[FieldValue | None] = []
    for axis in axes:
        if name in axis.fields:
            found += [option[axis.fields.index(name)] for option in axis.every_option]
    return tuple(dict.fromkeys(found))
