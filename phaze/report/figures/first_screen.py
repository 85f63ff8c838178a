"""The first screen of a run's report: budgets used, the nearest known chip, error bars, what limits the winner, the
frontier, and the command to copy.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator

from phaze.cost.fidelity import Fidelity
from phaze.explore.documents.result_document import Comparison, Manifest, ResultDocument
from phaze.report import number_format as fmt
from phaze.report.figures.frontier_glance import frontier_glance
from phaze.report.figures.question_and_answer import Tile, key_figures, key_tables, marked, tiled
from phaze.report.figures.report_contents import Contents
from phaze.report.html_markup import Bar, Html, bar, join, tag
from phaze.validation.stated_errors import KINDS, StatedError, stated_errors


def first_screen(contents: Contents) -> Html:
    """Figures and frontier side by side, the sentence on what limits, the command."""
    document = contents.document
    figures = [tiled(_tiles(document)), *key_tables(document)]
    picture = frontier_glance(contents, time_error(document))
    beside = tag("div", *figures, look="figures")
    parts = [tag("div", beside, picture, look="glance") if picture else join(figures)]
    if contents.explanation is not None:
        words = marked(f"{contents.explanation.summary}.")
        parts.append(tag("p", tag("strong", "What limits it: "), words, look="limits"))
    return join([*parts, *_how_far_off(document), *command(document.manifest)])


def command(manifest: Manifest) -> Iterator[Html]:
    """The command as it was typed, with a button that copies it; nothing where it was asked from Python."""
    if manifest.command:
        words = shlex.join(manifest.command)
        button = tag("button", "Copy", type="button", look="copy", data_copy=words)
        yield tag("p", tag("code", words), " ", button, look="command")


def _tiles(document: ResultDocument) -> Iterator[Tile]:
    """Budgets first, then what is reached, what is known beside it, how far off it may be."""
    request, best = document.request, document.best
    if request.get("power_means") == "sustained":
        drawn_w = max(result.drawn_w for result in best.workloads.values())
        yield _of_budget("power drawn", drawn_w, request.get("power_w"), "W")
    else:
        yield _of_budget("power", best.tdp_w, request.get("power_w"), "W")
    yield _of_budget("area", best.area_mm2, request.get("area_mm2"), "mm²")
    if limit := request.get("power_density_w_per_mm2"):
        yield _of_budget("power density", best.tdp_w / best.area_mm2, limit, "W/mm²")
    figures = key_figures(document)
    yield from figures[:1]
    yield from _errors(document)
    if near := nearest_chip(document):
        yield _against(near, document)
    yield from figures[1:]


def _of_budget(name: str, value: float, limit: float | None, unit: str) -> Tile:
    """A figure of the winner, and how much of its budget that is."""
    told = f"{fmt.number(value)} {unit}"
    if limit is None:
        return name, told, "no budget given"
    used = tag("span", bar([Bar(value / limit, "c1")]), look="used")
    return (
        name,
        told,
        join([tag("small", f"{fmt.percent(value / limit)} of {fmt.number(limit)} {unit}"), used]),
    )


def nearest_chip(document: ResultDocument) -> Comparison | None:
    """The known chip whose throughput on the first workload is nearest to the winner's, by their ratio."""
    best = document.best
    own = next(iter(best.workloads.values())).throughput_samples_per_s
    others = [
        row
        for row in document.comparison
        if row.result is not None and (row.tdp_w, row.area_mm2) != (best.tdp_w, best.area_mm2)
    ]
    speeds = {row.name: row.result.throughput_samples_per_s for row in others if row.result is not None}
    return min(others, key=lambda row: abs(math.log(own / speeds[row.name])), default=None)


def _against(chip: Comparison, document: ResultDocument) -> Tile:
    own = next(iter(document.best.workloads.values())).throughput_samples_per_s
    speed = chip.result.throughput_samples_per_s if chip.result else math.nan
    nodes = f"{chip.node}; the winner {document.best.architecture.get('node', '')}".removesuffix(
        "; the winner "
    )
    below = f"as {chip.name}, the nearest known chip" + (f" ({nodes})" if chip.node else "")
    return "against known chips", f"{fmt.number(own / speed)} x as fast", below


def _errors(document: ResultDocument) -> Iterator[Tile]:
    """Where the throughput may really be, by the errors that the model made on what others measured."""
    if (error := time_error(document)) is not None:
        speed = next(iter(document.best.workloads.values())).throughput_samples_per_s
        low, high = (fmt.number(speed * (1 + sign * error.p90_pct / 100)) for sign in (-1, 1))
        words = (
            f"nine of ten of {error.rows:,} {KINDS[_kind(document)].counted} are within ±{error.p90_pct:g} %, half "
            f"within ±{error.median_pct:g} %"
        )
        yield "error bars", f"{low} to {high} samples/s", words


def _how_far_off(document: ResultDocument) -> Iterator[Html]:
    """The errors of every figure of the answer that others measured, in a sentence."""
    named = {"time": _kind(document), "memory": "peak_memory", "power": "chip_power", "area": "chip_area"}
    told = {
        name: (kind, error) for name, kind in named.items() if (error := _error(document, kind)) is not None
    }
    if told:
        words = ", ".join(
            f"±{error.median_pct:g} % in {name} ({error.rows:,} {KINDS[kind].counted})"
            for name, (kind, error) in told.items()
        )
        yield tag(
            "p",
            tag("strong", "How far off it may be: "),
            f"half of the measured cases are within {words} of what the model says.",
            look="limits",
        )


def _kind(document: ResultDocument) -> str:
    return "training_time" if document.request.get("mode", "training") == "training" else "kernels"


def time_error(document: ResultDocument) -> StatedError | None:
    """Error of times under the rung of the run; None under ideal hardware, which nobody has measured."""
    return _error(document, _kind(document))


def _error(document: ResultDocument, kind: str) -> StatedError | None:
    rung = next(iter(document.best.workloads.values())).rung
    if rung is Fidelity.IDEAL:
        return None
    told = stated_errors().get(kind, {})
    return told.get(rung) or told.get(Fidelity.ANALYTIC)
