"""Architectures side by side, and two runs side by side, as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rich.console import Console, RenderableType
from rich.markup import escape
from rich.table import Table

from phaze.explore.documents.result_document import Design, SampleCost
from phaze.report import number_format as fmt
from phaze.report.cost_words import UnitCost, counted
from phaze.report.plan_words import degrees_beside
from phaze.report.terminal.design_tables import plain_table
from phaze.runs.run_difference import Change, Difference


def print_comparison(rows: Mapping[str, Design | str], console: Console) -> None:
    """One table per workload, the fastest first; below it, why an architecture is missing."""
    for block in comparison_blocks(rows):
        console.print(block)
        if not isinstance(block, str):
            console.print()


def comparison_blocks(rows: Mapping[str, Design | str]) -> Iterator[RenderableType]:
    """The same as tables and sentences."""
    designs = {name: row for name, row in rows.items() if not isinstance(row, str)}
    for workload in next(iter(designs.values())).workloads if designs else ():
        table = plain_table(
            escape(workload),
            *("architecture", "samples/s", "MFU", "W", "mm2", "J/sample", "USD", "kg", "placement"),
        )
        costs = [design.workloads[workload].cost for design in designs.values()]
        told = next((cost for cost in costs if cost is not None), None)
        per = "" if told is None else f"; USD and kg CO2e per {UnitCost.of(told).unit}\n{counted(told)}"
        ordered = sorted(
            designs.items(), key=lambda item: -item[1].workloads[workload].throughput_samples_per_s
        )
        kinds, degrees = degrees_beside([design.workloads[workload].placement for _, design in ordered])
        table.caption = f"placement: {kinds} parallel{per}"
        table.caption_justify = "left"
        for (name, design), placement in zip(ordered, degrees, strict=True):
            result = design.workloads[workload]
            table.add_row(
                escape(name),
                fmt.number(result.throughput_samples_per_s),
                fmt.percent(result.mfu),
                fmt.number(design.tdp_w),
                fmt.number(design.area_mm2),
                fmt.number(result.energy_per_iteration_j / result.global_batch),
                *_money_and_carbon(result.cost),
                placement,
            )
        yield table
    for name, reason in rows.items():
        if isinstance(reason, str):
            yield f"{escape(name)}: {escape(reason.removeprefix(f'{name}: '))}"


def _money_and_carbon(cost: SampleCost | None) -> tuple[str, str]:
    if cost is None:
        return "-", "-"
    told = UnitCost.of(cost)
    return fmt.number(told.usd), fmt.number(told.kg)


MOST = 20  # changes that are listed of each kind


def print_difference(found: Difference, console: Console) -> None:
    """One sentence, then what differs."""
    sentence, *changes = difference_blocks(found)
    console.print(sentence)
    for block in changes:
        if not isinstance(block, str):
            console.print()
        console.print(block)


def difference_blocks(found: Difference) -> Iterator[RenderableType]:
    """One sentence, then what differs: a table of each kind."""
    yield _sentence(found)
    yield from _headlines(found.answer)
    for title, changes in (
        ("Asked", found.asked),
        ("Files read", found.inputs),
        ("Versions", found.versions),
        ("Answer", found.answer),
    ):
        if changes:
            yield _changes(title, changes)
            if rest := changes[MOST:]:
                yield f"and {len(rest)} more; --json lists all of them"


_TOLD = {"throughput_samples_per_s": "throughput", "tdp_w": "TDP", "area_mm2": "area"}


def _headlines(changes: Sequence[Change]) -> Iterator[str]:
    """What became of the winner, a sentence each: which chip it is, its throughput, power and area."""
    for change in changes:
        *path, last = change.name.split(".")
        if change.name == "best.id":
            yield escape(f"The winner is {change.second} instead of {change.first}.")
        elif (
            path[:1] == ["best"] and last in _TOLD and len(path) in (1, 3) and change.first and change.second
        ):
            on = f" on {path[2]}" if len(path) == 3 else ""
            first, second = (_figure(last, one) for one in (change.first, change.second))
            grown = 100 * (change.second / change.first - 1)
            yield escape(f"{_TOLD[last]}{on}: {first} -> {second} ({grown:+.3g} %)")


def _figure(name: str, value: float) -> str:
    """A figure of the winner with its unit; throughput without prefixes, as everywhere."""
    rate = name == "throughput_samples_per_s"
    return f"{fmt.number(value)} samples/s" if rate else fmt.field(name, value)


def _sentence(found: Difference) -> str:
    asked = "Same question" if found.same_question else "Different questions"
    return f"{asked}, {'the same answer' if found.same_answer else 'different answers'}."


def _changes(title: str, changes: Sequence[Change]) -> Table:
    table = plain_table(title, "", "first", "second")
    for change in changes[:MOST]:
        table.add_row(
            escape(change.name), *(_text(change.name, one) for one in (change.first, change.second))
        )
    return table


def _text(name: str, value: object) -> str:
    """A value with the unit that the last word of its name carries."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return fmt.field(name.rpartition(".")[2], value)
    text = str(value)
    return escape(text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "...")


_LONGEST = 24
