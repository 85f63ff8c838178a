"""Contents of a design space: its axes, how many architectures, and what the budgets leave of them."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from phaze.hardware.architecture_naming import value_text
from phaze.hardware.spaces.design_space import DesignSpace
from phaze.hardware.spaces.network_axes import NetworkAxes
from phaze.hardware.spaces.space_axis import Axis, Condition, Option
from phaze.hardware.spaces.space_census import Census, Extent
from phaze.report import number_format as fmt
from phaze.report.terminal.design_tables import plain_table


def document(space: DesignSpace, census: Census) -> dict[str, Any]:
    """The figures as a JSON document, values of fields in SI units."""
    return {
        "name": space.name,
        "description": space.description,
        "base": space.base.name,
        "grid_size": census.grid,
        "architectures": census.all.count,
        "within_budgets": census.within.count,
        "over_budget": {limit.value.replace(" ", "_"): count for limit, count in census.over.items()},
        "all": _extent(census.all),
        "within": _extent(census.within),
        "axes": [_axis(axis) for axis in space.axes],
        "ties": [
            {"field": name, "same_as": source, "times": space.multiples.get(name, 1.0)}
            for name, source in space.ties.items()
        ],
        "where": [constraint.text for constraint in space.constraints],
        "hbm_capacities_bytes": list(space.hbm_capacities_bytes),
        "networks": {name: list(values) for name, values in space.network_axes.axes.items()}
        if space.network_axes
        else {},
        "stages": "heterogeneous" if space.heterogeneous else "alike",
    }


def print_space(space: DesignSpace, census: Census, console: Console) -> None:
    """Axes, counts and ranges as tables."""
    console.print(f"[bold]{escape(space.name)}[/bold]  {escape(space.description)}")
    console.print(_axes_table(space))
    console.print(_counts_table(census))
    console.print(_ranges_table(census))
    if space.network_axes is not None:
        console.print(_networks_table(space.network_axes))
    if sizes := space.hbm_capacities_bytes:
        shown = ", ".join(value_text("hbm_capacity_bytes", size) for size in sizes)
        console.print(f"Each architecture is searched with {len(sizes)} memory sizes: {shown}.")


def _axes_table(space: DesignSpace) -> Table:
    table = plain_table("Axes", "fields", "options", "values")
    table.columns[2].justify = "left"
    for axis in space.axes:
        table.add_row(", ".join(axis.fields), str(len(axis.options)), escape(_values(axis)))
    for name, source in space.ties.items():
        times = f" x {space.multiples[name]:g}" if name in space.multiples else ""
        table.add_row(name, "", f"as {source}{times}")
    for constraint in space.constraints:
        table.add_row("where", "", escape(constraint.text))
    for pin in space.pins:
        table.add_row("held", "", escape(_condition(pin)))
    return table


def _networks_table(axes: NetworkAxes) -> Table:
    table = plain_table("Networks, each searched with every architecture", "axis", "options", "values")
    table.columns[2].justify = "left"
    for name, values in axes.axes.items():
        wide = name == "scale_out_bandwidth"
        told = (fmt.decimal(float(value), "B/s") if wide else str(value) for value in values)
        table.add_row(name, str(len(values)), escape(", ".join(told)))
    return table


def _counts_table(census: Census) -> Table:
    table = plain_table("Architectures", "", "")
    table.show_header = False
    table.add_row("combinations of all axes", f"{census.grid:,}")
    table.add_row("architectures of the space", f"{census.all.count:,}")
    for limit, count in census.over.items():
        if count:
            table.add_row(f"  over {limit.value}", f"{count:,}")
    table.add_row("within all limits", f"{census.within.count:,}")
    return table


def _ranges_table(census: Census) -> Table:
    table = plain_table("From smallest to largest", "", "area", "TDP")
    for name, extent in (("all", census.all), ("within all limits", census.within)):
        if extent.count:
            low, high = extent.area_mm2
            least, most = extent.tdp_w
            table.add_row(
                name,
                f"{fmt.number(low)} to {fmt.number(high)} mm2",
                f"{fmt.decimal(least, 'W')} to {fmt.decimal(most, 'W')}",
            )
    return table


def _values(axis: Axis) -> str:
    text = ", ".join(_option(axis, option) for option in axis.options)
    if not axis.when:
        return text
    return f"{text} where {' and '.join(map(_condition, axis.when))}, else {_option(axis, axis.otherwise)}"


def _option(axis: Axis, option: Option) -> str:
    return " x ".join(value_text(name, value) for name, value in zip(axis.fields, option, strict=True))


def _condition(condition: Condition) -> str:
    return f"{condition.field} = {' or '.join(value_text(condition.field, v) for v in condition.values)}"


def _axis(axis: Axis) -> dict[str, Any]:
    plain: dict[str, Any] = {
        "fields": list(axis.fields),
        "options": [list(option) for option in axis.options],
    }
    if axis.when:
        plain["when"] = {condition.field: list(condition.values) for condition in axis.when}
        plain["otherwise"] = list(axis.otherwise)
    return plain


def _extent(extent: Extent) -> dict[str, Any] | None:
    """Ranges of area and TDP; none where there is no architecture."""
    if not extent.count:
        return None
    ends = {"area_mm2": extent.area_mm2, "tdp_w": extent.tdp_w}
    return {name: {"smallest": low, "largest": high} for name, (low, high) in ends.items()}
