"""What a second chip for one phase of a service buys, and what its design must save, in words and as a table."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from rich.markup import escape
from rich.table import Table

from phaze.explore.documents.serving_document import SecondDesign, TwoChips
from phaze.report import number_format as fmt
from phaze.report.terminal.design_tables import plain_table

Rows = list[tuple[str, str]]


def two_chips_sentence(told: TwoChips, worth: Callable[[float], str]) -> str:
    """The answer in one sentence (rich markup)."""
    proof = "proven" if told.optimal else f"no pair reaches more than {worth(told.upper_bound)}"
    looked = " and ".join(f"{count:,} {role} chips" for role, count in told.worked_out.items())
    work = f"{looked} worked out, {told.pairs_worked_out:,} pairs of pools"
    if not told.chips:
        return f"A second chip, one for prefill and one for decode, buys nothing ({proof}; {work})."
    names = " and ".join(f"[bold]{escape(chip.id)}[/bold] for {chip.role}" for chip in told.chips)
    return (
        f"A second chip buys {fmt.number(100 * told.gain, 3)} %: {names}, {worth(told.objective_value)} "
        f"({proof}; {work})."
    )


def pair_table(told: TwoChips) -> Table:
    """The chips of a pair."""
    table = plain_table("Two chips", "pool", "chip", "devices", "W", "mm2")
    for chip in told.chips:
        figures = f"{chip.devices:,}", fmt.number(chip.tdp_w), fmt.number(chip.area_mm2)
        table.add_row(chip.role, escape(chip.id), *figures)
    return table


def second_design_rows(told: SecondDesign) -> Rows:
    """What the second design costs, saves and must save, by label."""
    return list(_money(told))


def _money(told: SecondDesign) -> Iterator[tuple[str, str]]:
    per = "USD per million output tokens"
    yield "its design and mask sets", f"{fmt.number(told.extra_usd / 1e6)} million USD more than one chip"
    yield (
        "it must save to pay",
        f"{fmt.number(told.must_save_per_million_tokens_usd)} {per}, in the place of "
        f"{told.volume_chips:,.0f} of the one chip",
    )
    yield "it saves", f"{fmt.number(told.saved_per_million_tokens_usd)} {per}, designs aside"
    yield "so it", "pays" if told.pays else "does not pay"
    least = told.pays_from_chips
    yield "it pays", "never" if least is None else f"from {least:,.0f} of the one chip on"


def second_design_table(told: SecondDesign) -> Table:
    """The same as a table."""
    table = plain_table("The second design", "", "")
    table.show_header = False
    table.columns[1].justify = "left"
    for label, value in second_design_rows(told):
        table.add_row(label, value)
    return table
