"""The axes of a design space as a sampler wants them: exponents, steps, positions and words.

A range of powers of two becomes its integer exponents, so that the sampler works on the logarithm; evenly spaced
whole numbers stay what they are; words, and values of fields that vary together, become categories, which have no order
and show in dashboards as what they are. Other lists become positions, and are
expected to ascend. A conditional axis is asked only where it varies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution

from phaze.hardware.architecture_naming import value_text
from phaze.hardware.hardware_fields import FieldKind, FieldValue, field_table
from phaze.hardware.spaces.design_space import DesignSpace
from phaze.hardware.spaces.space_axis import Axis, Option

CAPACITY = "hbm_capacity_bytes"  # searched beside the architecture where a space says so
Fields = dict[str, FieldValue | None]
_NUMBERS = (FieldKind.INTEGER, FieldKind.NUMBER)


@dataclass(frozen=True)
class Parameter:
    """One parameter of a study: `values[k]` stands for option k of its axis."""

    name: str
    axis: Axis
    values: Option
    distribution: BaseDistribution

    @property
    def conditional(self) -> bool:
        """Whether it is asked only for some architectures."""
        return bool(self.axis.when)

    def suggest(self, trial: optuna.Trial) -> Option:
        """The option a trial suggests."""
        match self.distribution:
            case CategoricalDistribution(choices=choices):
                value = trial.suggest_categorical(self.name, choices)
            case IntDistribution(low=low, high=high, step=step):
                value = trial.suggest_int(self.name, low, high, step=step)
        return self.axis.options[self.values.index(value)]


def parameters(space: DesignSpace) -> tuple[Parameter, ...]:
    """The parameters of a space in the order in which they are asked; tied and pinned fields are none."""
    axes = [_pinned(axis, space) for axis in space.axes]
    if space.hbm_capacities_bytes:
        axes.append(Axis((CAPACITY,), tuple((size,) for size in space.hbm_capacities_bytes)))
    return tuple(_parameter(axis) for axis in axes)


def suggested(parameters: Sequence[Parameter], trial: optuna.Trial) -> Fields:
    """The fields of all axes in one trial; where a conditional axis does not vary, nothing is asked."""
    chosen: Fields = {}
    for parameter in parameters:
        axis = parameter.axis
        option = parameter.suggest(trial) if axis.varies_for(chosen) else axis.otherwise
        chosen |= zip(axis.fields, option, strict=True)
    return chosen


def described(parameters: Sequence[Parameter]) -> dict[str, Mapping[str, object]]:
    """The parameters as plain data, to tell whether two studies have the same."""
    return {
        p.name: {
            "fields": p.axis.fields,
            "options": p.axis.options,
            "values": p.values,
            "when": [[c.field, c.values] for c in p.axis.when],
            "otherwise": p.axis.otherwise,
        }
        for p in parameters
    }


def _parameter(axis: Axis) -> Parameter:
    name = "+".join(axis.fields)
    if len(axis.fields) == 1 and field_table()[name].kind not in _NUMBERS:
        words = tuple(option[0] for option in axis.options)
        return Parameter(name, axis, words, CategoricalDistribution(words))
    if len(axis.fields) > 1:  # no order among pairs of values: words, as dashboards show them
        words = tuple(_words(axis, option) for option in axis.options)
        if len({*words}) == len(words):  # digits that words leave out may be all that differs
            return Parameter(name, axis, words, CategoricalDistribution(words))
    if (exponents := _exponents(axis)) is not None:
        return _ranged(f"log2_{name}", axis, exponents)
    if (whole := _evenly_spaced(axis)) is not None:
        return _ranged(name, axis, whole)
    return _ranged(name, axis, range(len(axis.options)))


def _words(axis: Axis, option: Option) -> str:
    """Values of several fields in words: `HBM3 x 4`."""
    return " x ".join(value_text(name, value) for name, value in zip(axis.fields, option, strict=True))


def _ranged(name: str, axis: Axis, values: range) -> Parameter:
    return Parameter(name, axis, tuple(values), IntDistribution(values[0], values[-1], step=values.step))


def _exponents(axis: Axis) -> range | None:
    """Logarithms to base 2 where the options of a field are consecutive powers of two."""
    values = _numbers(axis)
    if len(values) < 2 or any(v < 1 or v != int(v) or int(v).bit_count() != 1 for v in values):
        return None
    first = int(values[0]).bit_length() - 1
    found = range(first, first + len(values))
    return found if values == [2.0**k for k in found] else None


def _evenly_spaced(axis: Axis) -> range | None:
    """The values themselves where the options of a field are whole numbers at equal steps, ascending."""
    values = _numbers(axis)
    if not values or any(v != int(v) for v in values):
        return None
    step = int(values[1] - values[0]) if len(values) > 1 else 1
    found = range(int(values[0]), int(values[-1]) + 1, max(1, step))
    return found if values == list(found) else None


def _numbers(axis: Axis) -> list[float]:
    """The values of an axis of one numeric field; none for other axes or where the field may be absent."""
    if len(axis.fields) > 1 or field_table()[axis.fields[0]].kind not in _NUMBERS:
        return []
    values = [option[0] for option in axis.options]
    return [] if None in values else [float(value) for value in values if value is not None]


def _pinned(axis: Axis, space: DesignSpace) -> Axis:
    """The axis with only those options in which its own fields have the values they are pinned to."""
    pins = [pin for pin in space.pins if pin.field in axis.fields]
    kept = tuple(
        option
        for option in axis.options
        if all(pin.holds_for(dict(zip(axis.fields, option, strict=True))) for pin in pins)
    )
    return Axis(axis.fields, kept or axis.options, axis.when, axis.otherwise)
