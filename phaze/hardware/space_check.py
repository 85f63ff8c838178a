"""What a design space must not ask for: more than can be counted, or what the model would answer wrongly."""

from __future__ import annotations

from phaze.errors import InputError
from phaze.hardware.axis import Axis
from phaze.hardware.constants import constants
from phaze.hardware.fields import FieldValue
from phaze.hardware.space import DesignSpace

LARGEST = 1 << 60
"""Combinations that can be numbered."""

LARGEST_FILTERED = 1_000_000_000
"""Combinations of which conditions and constraints can pick, at one bit of memory each."""


def check_space(space: DesignSpace, where: str) -> None:
    """Raises InputError, with the path in the file `where`, for what cannot be searched."""
    for axis in space.axes:
        _check_precision(axis, where)
    _check_constraints(space, where)
    limit = LARGEST_FILTERED if space.is_filtered else LARGEST
    if space.grid_size > limit:
        raise InputError(
            f"{where}: axes: {space.grid_size:.3g} combinations are more than the {limit:.3g} that can be "
            + ("filtered; drop conditions and constraints, or values" if space.is_filtered else "numbered")
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
            "have; bf16+fp8 has both, and wider formats go under `fixed`, one space per format"
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
