"""The answer in one sentence, and its figures at a glance."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from rich.text import Text

from phaze.explore.documents.result_document import ResultDocument, WorkloadResult
from phaze.report import format as fmt
from phaze.report.page.markup import Html, join, table, tag, text
from phaze.report.tables import answer

_BEFORE_UNIT = re.compile(r"(?<=\d) (?=(?:%|mm²|W|samples/s)(?!\w))")


def sentence(document: ResultDocument) -> Html:
    """The sentence that the terminal shows, its bold names strong."""
    return marked(answer(document))


def marked(words: str) -> Html:
    """A sentence with bold words, as rich marks them."""
    told = Text.from_markup(words)
    parts, at = [], 0
    for span in sorted(told.spans):
        parts += [_words(told.plain[at : span.start]), tag("strong", told.plain[span.start : span.end])]
        at = span.end
    return join([*parts, _words(told.plain[at:])], "")


def _words(plain: str) -> Html:
    """The words as a page has them; no line ends between a number and its unit."""
    return text(_BEFORE_UNIT.sub("\N{NO-BREAK SPACE}", plain.replace(" mm2", " mm²")))


def key_figures(document: ResultDocument) -> Html:
    """The chip and its workload as tiles; several workloads as a table."""
    best = document.best
    tiles = [("power", f"{fmt.number(best.tdp_w)} W", ""), ("area", f"{fmt.number(best.area_mm2)} mm²", "")]
    figures = {name: list(_figures(result)) for name, result in best.workloads.items()}
    each = list(figures.values())
    if len(each) == 1:
        tiles += each[0]
    drawn = tiled(tiles)
    if len(each) == 1:
        return drawn
    rows = [
        [name, *(tag("td", value, tag("small", below) if below else "") for _, value, below in own)]
        for name, own in figures.items()
    ]
    return join([drawn, table(("", *(name for name, _, _ in each[0])), rows)])


def _figures(result: WorkloadResult) -> Iterator[tuple[str, str, str]]:
    """Name, value, and what belongs below it."""
    tokens = result.throughput_tokens_per_s
    below = f"{fmt.count(round(tokens))} tokens/s" if tokens else ""
    yield "throughput", f"{fmt.number(result.throughput_samples_per_s)} samples/s", below
    yield "one iteration", fmt.duration(result.iteration_time_s), f"of {result.global_batch:,} samples"
    yield "MFU", fmt.percent(result.mfu), ""
    yield "devices", f"{result.devices_used:,}", f"of {result.devices:,}"
    energy = result.energy_per_iteration_j / result.global_batch
    yield "energy per sample", fmt.decimal(energy, "J"), "on all devices"
    yield "peak memory", fmt.memory(result.memory_bytes), "of one device"


def tiled(tiles: Iterable[tuple[str, str, str]]) -> Html:
    """Figures at a glance: name, value, and what belongs below it."""
    return tag("dl", *(_tile(*tile) for tile in tiles), look="numbers")


def _tile(name: str, value: str, below: str) -> Html:
    return tag("div", tag("dt", name), tag("dd", value, tag("small", below) if below else ""))
