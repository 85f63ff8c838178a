"""Request of a run, its assumptions, and how to repeat it; the answer in one sentence, and its figures at a
glance.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping

from rich.text import Text

from phaze.explore.documents.result_document import Manifest, ResultDocument, WorkloadResult
from phaze.report import number_format as fmt
from phaze.report.cost_words import UnitCost
from phaze.report.figures.report_contents import Contents
from phaze.report.html_markup import Html, Section, join, paragraph, table, tag, text
from phaze.report.terminal.search_tables import answer_sentence

_ASSUMPTIONS = (
    "Tensor cores are systolic arrays; an operator takes the largest of compute, on-chip traffic and HBM traffic, plus "
    "the fill of the arrays.",
    "Operators of a layer may run side by side; a layer is never faster than its bytes through HBM and global buffer.",
    "Stages are contiguous runs of layers, and a device works on one layer at a time.",
    "Collectives are rings on a network of two tiers. Gradient reduction and stage transfers are not hidden behind "
    "compute; transfers count at both ends.",
    "Kernel launches, compiler quality, cache misses, congestion and failures are not in the model.",
)


def inputs(contents: Contents) -> Iterator[Section]:
    """The request, the assumptions, and the manifest."""
    yield Section("assumptions", "Inputs and assumptions", join(_asked(contents)))
    yield repeat(contents.document.manifest)


def repeat(manifest: Manifest) -> Section:
    """Versions needed to reproduce a run."""
    return Section("repeat", "Versions", join(_manifest(manifest)))


def request_table(request: Mapping[str, object]) -> Html:
    """Table of the request's options, without those that are unset."""
    rows = [
        (fmt.label(name), _value(name, value))
        for name, value in request.items()
        if value not in (None, {}, [], False)
    ]
    return table(("", ""), rows, look="facts")


def _asked(contents: Contents) -> Iterator[Html]:
    yield request_table(contents.document.request)
    yield tag("h3", "What the model assumes")
    yield tag("ul", *(tag("li", line) for line in _ASSUMPTIONS))
    yield paragraph(
        "So compare architectures and placements with these figures; the times of a real system are others. How far "
        "off they are against measurements is told by dse validate."
    )
    if contents.left_out:
        yield paragraph(
            "Sections on the iteration, operators, memory and sensitivity are left out: ", contents.left_out
        )


def _value(name: str, value: object) -> object:
    if isinstance(value, bool):
        return "yes"
    if isinstance(value, list):
        return ", ".join(map(str, value))
    if isinstance(value, dict):
        return tag("code", json.dumps(value, ensure_ascii=False))
    return fmt.field(name, value)


def _manifest(manifest: Manifest) -> Iterator[Html]:
    if manifest.command:
        yield paragraph(tag("code", shlex.join(manifest.command)))
    rows = [
        ("started", manifest.started_utc),
        ("took", f"{fmt.duration(manifest.wall_time_s)}"),
        ("seed", f"{manifest.seed}"),
        *((name, version) for name, version in manifest.versions.items()),
        *((f"SHA-256 of {name}", tag("code", sha)) for name, sha in manifest.inputs_sha256.items()),
    ]
    yield table(("", ""), rows, look="facts")


_BEFORE_UNIT = re.compile(r"(?<=\d) (?=(?:%|mm²|W|samples/s)(?!\w))")


def sentence(document: ResultDocument) -> Html:
    """The sentence that the terminal shows, its bold names strong."""
    return marked(answer_sentence(document))


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


Tile = tuple[str, str, str]
"""Name, value, and what belongs below it."""


def key_figures(document: ResultDocument) -> list[Tile]:
    """Figures of the one workload; of several `key_tables` holds them."""
    results = list(document.best.workloads.values())
    return list(_figures(results[0])) if len(results) == 1 else []


def key_tables(document: ResultDocument) -> Iterator[Html]:
    """Figures of several workloads, a row each."""
    figures = {name: list(_figures(result)) for name, result in document.best.workloads.items()}
    if len(figures) > 1:
        rows = [
            [name, *(tag("td", value, tag("small", below) if below else "") for _, value, below in own)]
            for name, own in figures.items()
        ]
        yield table(("", *(name for name, _, _ in next(iter(figures.values())))), rows)


def _figures(result: WorkloadResult) -> Iterator[Tile]:
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
    if result.cost is not None:
        told = UnitCost.of(result.cost)
        yield "cost", f"{fmt.number(told.usd)} USD", f"per {told.unit}"
        yield "carbon", f"{fmt.number(told.kg)} kg CO2e", f"per {told.unit}"


def tiled(tiles: Iterable[Tile]) -> Html:
    """Figures at a glance: name, value, and what belongs below it."""
    return tag("dl", *(_tile(*tile) for tile in tiles), look="numbers")


def _tile(name: str, value: str, below: str) -> Html:
    told = below if isinstance(below, Html) else tag("small", below) if below else ""
    return tag("div", tag("dt", name), tag("dd", value, told))
