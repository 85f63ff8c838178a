"""The chip of a service as text: a sentence with its proof, the plan, the chips after it, and the certificate."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from rich.console import Console, RenderableType
from rich.markup import escape
from rich.table import Table

from phaze.explore.documents.result_document import Certificate
from phaze.explore.documents.serving_document import ServedChip, ServingDocument
from phaze.explore.services.found_service import FoundService
from phaze.report import number_format as fmt
from phaze.report.terminal.design_tables import plain_table
from phaze.report.terminal.plans.serving_tables import serving_tables
from phaze.report.terminal.plans.two_chips_tables import (
    pair_table,
    second_design_table,
    two_chips_sentence,
)

_WORTH = {
    "throughput": ("{} output tokens/s", False),
    "tokens_per_s_per_w": ("{} output tokens/s per W", False),
    "cost_per_million_tokens": ("{} USD per million output tokens", True),
}


def worth(objective: str, value: float) -> str:
    """The objective of a service in its own unit; a cost is there as its reciprocal."""
    words, reciprocal = _WORTH[objective]
    return words.format(fmt.number(1 / value if reciprocal else value, 4))


def print_service(document: ServingDocument, found: FoundService, console: Console) -> None:
    """The whole answer, most important first."""
    chip, proof = document.chip, document.certificate
    if chip is None or proof is None:
        msg = "a service without a chip"
        raise ValueError(msg)
    console.print(service_sentence(document, chip, proof), highlight=False)
    console.print()
    tables = [
        *serving_tables(found.plan, found.space, None, document.cost),
        *_others(document, proof),
        _certificate(proof),
    ]
    for table in (*tables, *two_chips_blocks(document, found, proof)):
        console.print(table, highlight=False)
        console.print()


def two_chips_blocks(
    document: ServingDocument, found: FoundService, proof: Certificate
) -> Iterator[RenderableType]:
    """What a second chip buys, and where it buys anything its plan and its price; nothing if it was not asked for."""
    told = document.two_chips
    if told is None:
        return
    yield two_chips_sentence(told, partial(worth, proof.objective))
    if found.pair is None:
        return
    yield pair_table(told)
    yield from serving_tables(found.pair.plan, found.pair.space, None, told.cost)
    if told.second_design is not None:
        yield second_design_table(told.second_design)


def service_sentence(document: ServingDocument, chip: ServedChip, proof: Certificate) -> str:
    """The answer in one sentence (rich markup)."""
    best, found = document.best, "best accelerator" if proof.optimal else "best accelerator found"
    told = (
        "no other design or plan of this space is better, according to the model"
        if proof.optimal
        else f"none is better by more than {fmt.percent(proof.gap)}, according to the model"
    )
    rate = f"{fmt.number(best.tokens_per_s)} output tokens/s"
    figures = (
        [rate] if proof.objective == "throughput" else [worth(proof.objective, proof.objective_value), rate]
    )
    return (
        f"The {found} to serve [bold]{escape(str(document.request['workload']))}[/bold] is "
        f"[bold]{escape(chip.id)}[/bold]: {', '.join(figures)} on {best.devices:,} devices of "
        f"{fmt.number(chip.area_mm2)} mm2 and {fmt.number(chip.tdp_w)} W; {told}."
    )


def _others(document: ServingDocument, proof: Certificate) -> list[Table]:
    if not document.next_best:
        return []
    table = plain_table(
        "Next best chips of those evaluated", "architecture", "W", "mm2", "devices", "tokens/s", ""
    )
    for other in document.next_best:
        told = worth(proof.objective, other.objective_value)
        table.add_row(
            escape(other.id),
            fmt.number(other.tdp_w),
            fmt.number(other.area_mm2),
            f"{other.devices:,}",
            fmt.number(other.tokens_per_s),
            "" if proof.objective == "throughput" else told,
        )
    return [table]


def _certificate(proof: Certificate) -> Table:
    table = plain_table("Certificate", "", "")
    table.show_header = False
    table.columns[1].justify = "left"
    undecided = proof.pruned_by.get("open", 0)
    by = ", ".join(
        f"{count:,} by {name}" for name, count in proof.pruned_by.items() if count and name != "open"
    )
    for name, value in (
        ("objective", worth(proof.objective, proof.objective_value)),
        (
            "no point is better than",
            f"{worth(proof.objective, proof.upper_bound)} (gap {100 * proof.gap:.3g} %)",
        ),
        ("architectures of the space", f"{proof.space_size:,}"),
        ("  ways to serve on each", f"{proof.plans_per_architecture or 0:,}"),
        ("  over budget", f"{proof.over_budget:,}"),
        ("  pruned by a bound", f"{proof.pruned - undecided:,}" + (f" ({by})" if by else "")),
        *((("  not decided", f"{undecided:,}"),) if undecided else ()),
        ("  evaluated", f"{proof.evaluated:,}"),
        ("holds within", "; ".join(proof.scope)),
    ):
        table.add_row(name, escape(value))
    return table
