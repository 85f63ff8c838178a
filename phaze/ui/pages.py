"""Pages of the local page: the list of runs, one run with its frontier, a command at work, and messages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from urllib.parse import quote

from phaze.explore.documents.fleet_document import FleetDocument
from phaze.explore.documents.plan_document import PlanDocument, WhatIfDocument
from phaze.explore.documents.result_document import ResultDocument
from phaze.explore.documents.serving_document import ServingDocument
from phaze.explore.documents.sweep_document import SweepDocument
from phaze.report import number_format as fmt
from phaze.report.figures.designs_compared import AXES, design_mark, frontier_rows
from phaze.report.figures.first_screen import first_screen
from phaze.report.figures.question_and_answer import sentence
from phaze.report.figures.report_contents import Contents
from phaze.report.html_markup import Html, data, details, join, paragraph, rounded, table, tag, text
from phaze.report.number_format import label
from phaze.report.terminal.design_tables import shown_fields
from phaze.runs.document_formats import Answer
from phaze.runs.run_listing import ListedRun
from phaze.ui.question_form import serving_fields
from phaze.ui.runs_folder import FILES

_FRAME = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<link rel="stylesheet" href="/static/style.css">
<link rel="stylesheet" href="/static/ui.css">
<link rel="icon" href="data:,">
</head>
<body class="ui">
<a class="skip" href="#content">Skip to the content</a>
<nav aria-label="Pages">{links}</nav>
<main id="content">
{content}
</main>
<script src="/static/ui.js"></script>
</body>
</html>
"""


def page(title: str, content: Html) -> str:
    """The whole file; texts are escaped."""
    links = join([tag("a", "Runs", href="/"), tag("a", "Ask", href="/ask")], " ")
    return _FRAME.format(title=text(title), links=links, content=content)


def message_page(title: str, sentence_: str) -> str:
    """A sentence where there is nothing to show."""
    return page(title, join([tag("h1", title), paragraph(sentence_)]))


def run_address(name: str) -> str:
    """The address of a run."""
    return f"/runs/{quote(name, safe='')}"


def runs_page(folder: Path, runs: Sequence[ListedRun]) -> str:
    """All runs of the folder, the latest first."""
    parts = [tag("h1", "Runs"), paragraph(tag("code", str(folder)))]
    good = [(run.path.name, run.document) for run in runs if run.document is not None]
    if good:
        rows = [_row(name, document) for name, document in good]
        listed = table(("", "<run", "<asked", "<answer", "proof", "started"), rows, look="wide")
        button = tag("button", "Show the chosen ones together", type="submit")
        parts.append(tag("form", listed, tag("p", button), action="/together", method="get", id="runs"))
    else:
        parts.append(paragraph("There are no runs here yet. ", tag("a", "Ask a question", href="/ask"), "."))
    parts += [paragraph(run.problem) for run in runs if run.document is None]
    return page("Runs", join(parts))


def _row(name: str, document: Answer) -> list[object]:
    chosen: object = ""
    if isinstance(document, ResultDocument):
        chosen = tag("input", type="checkbox", name_="run", value=name, aria_label=f"choose {name}")
    link = tag("td", tag("a", name, href=run_address(name)), look="left")
    started = document.manifest.started_utc[:16].replace("T", " ") if document.manifest else "-"
    asked, answer = told(document)
    return [
        chosen,
        link,
        tag("td", asked, look="left"),
        tag("td", answer, look="left"),
        _proof(document),
        started,
    ]


def told(document: Answer) -> tuple[str, str]:
    """Question and answer of a document in a few words each."""
    match document:
        case ResultDocument(best=best):
            result = next(iter(best.workloads.values()))
            power = document.request.get("power_w")
            asked = f"{', '.join(best.workloads)}, {result.devices:,} devices" + (
                f", {fmt.number(power)} W" if power else ""
            )
            return (
                asked,
                f"{fmt.number(result.throughput_samples_per_s)} samples/s, {fmt.number(best.tdp_w)} W",
            )
        case ServingDocument(request=request, best=served):
            chip = document.chip.id if document.chip else request["architecture"]
            asked = f"serve {request['workload']} on {served.devices:,} x {chip}"
            return asked, f"{fmt.number(served.tokens_per_s)} tokens/s"
        case PlanDocument(request=request, best=planned) | FleetDocument(request=request, best=planned):
            chips = request["architecture"] if "architecture" in request else f"fleet {request['fleet']}"
            asked = f"plan {', '.join(request['workloads'])} on {request['devices']:,} x {chips}"
            return asked, f"{fmt.duration(planned.iteration_time_s)} per iteration"
        case WhatIfDocument(varied=varied, points=points):
            return f"what if {label(varied)} were another", f"{len(points)} values"
        case SweepDocument(objectives=objectives):
            return f"sweep for {', '.join(objectives)}", f"{document.trials:,} trials"
        case _:
            return "comparison", f"{len(document.designs)} architectures"


def _proof(document: Answer) -> str:
    found = document.certificate if isinstance(document, ResultDocument | ServingDocument) else None
    if found is None:
        return "-"
    return "proven" if found.optimal else f"gap {fmt.percent(found.gap)}"


def run_page(
    name: str, document: ResultDocument, designs: Sequence[Mapping[str, object]], files_: Sequence[str]
) -> str:
    """A run: its answer, its frontier under a slider with two designs to pin, and what can be done with a design."""
    workloads = ", ".join(document.best.workloads)
    parts = [
        tag("p", f"{name}, {document.manifest.started_utc[:16].replace('T', ' ')} UTC", look="kicker"),
        tag("h1", f"An accelerator for {workloads}"),
        tag("p", sentence(document), look="answer"),
        first_screen(Contents(name, document, designs)),
        _why_and_report(name),
        *_explorer(name, document),
        tag("section", tag("h2", "Files"), _files(name, files_)),
    ]
    return page(f"{workloads}: {document.best.id}", join(parts))


def _why_and_report(name: str) -> Html:
    """Two commands that take seconds."""
    here = run_address(name)
    buttons = [
        tag("button", "Why it is so", type="button", data_start=f"{here}/report", data_go="#why"),
        tag("button", "Whole report", type="button", data_start=f"{here}/report"),
    ]
    return tag("p", *buttons, look="actions")


def _explorer(name: str, document: ResultDocument) -> Iterator[Html]:
    """A slider over the frontier, the design under it, two that are pinned, and buttons."""
    points = [point for point in frontier_rows(document) if "throughput_samples_per_s" in point]
    if document.portfolio is not None or not points:
        return
    fields = {point.id: point.architecture for point in document.frontier}
    rows = [_design(point, fields[str(point["id"])]) for point in points]
    at = _winner(points, document)
    state = "proven complete" if document.certificate.frontier_complete else "as far as it was found"
    slider = tag(
        "input",
        type="range",
        min="0",
        max=str(len(rows) - 1),
        value=str(at),
        id="place",
        aria_describedby="place-words",
    )
    words = tag("output", "", id="place-words", for_="place", aria_live="polite")
    pins = [tag("button", f"Pin as {side}", type="button", id=f"pin-{side}") for side in ("A", "B")]
    yield tag(
        "section",
        tag("h2", "Frontier"),
        paragraph(f"{len(rows)} designs that no other one beats, by power; the frontier is {state}."),
        tag("label", "Design on the frontier", for_="place"),
        slider,
        words,
        tag("p", *pins, *_actions(name, document), look="actions"),
        _serving(name),
        tag("div", table(("", "under the slider", "A", "B", "B over A"), [], look="wide"), id="pinned"),
        data("frontier-designs", {"rows": rows, "winner": at}),
        id="frontier",
    )


def _design(point: Mapping[str, object], architecture: Mapping[str, object]) -> dict[str, object]:
    """Figures as numbers for ratios and texts to show, and the fields of the architecture."""
    figures = {}
    for axis in AXES:
        value = point.get(axis.key)
        if isinstance(value, int | float):
            shown = rounded(float(value) * axis.factor)
            figures[axis.name] = [shown, fmt.number(shown)]
    fields = dict(shown_fields(architecture))
    return {"id": str(point["id"]), "figures": figures, "fields": fields}


def _winner(points: Sequence[Mapping[str, object]], document: ResultDocument) -> int:
    own = design_mark(document.best)
    return min(
        range(len(points)),
        key=lambda i: (
            points[i]["id"] != own["id"],
            abs(float(str(points[i]["throughput_samples_per_s"])) - float(own["throughput_samples_per_s"])),
        ),
    )


def _actions(name: str, document: ResultDocument) -> Iterator[Html]:
    """Commands on one design of the run."""
    here = run_address(name)
    if document.request.get("mode", "training") == "training":
        yield tag("button", "Plan its training", type="button", data_design=f"{here}/plan")
    yield tag(
        "a", "Its architecture file", href="#frontier", data_file=f"{here}/architecture", download="download"
    )


def _serving(name: str) -> Html:
    """The serving of the design under the slider, and what is asked of it."""
    button = tag("button", "Plan it", type="submit")
    fields = [serving_fields(), tag("p", button, look="actions")]
    form = tag(
        "form", *fields, id="serving", data_design=f"{run_address(name)}/serving", novalidate="novalidate"
    )
    return details("Plan its serving", form)


def _files(name: str, there: Sequence[str]) -> Html:
    links = (tag("li", tag("a", one, href=f"{run_address(name)}/files/{one}", download=one)) for one in there)
    return tag("ul", *links)


def files_of(run: Path) -> list[str]:
    """Files of a run that can be taken away."""
    return [name for name in FILES if (run / name).is_file()]


def at_work_page(number: str, words: Sequence[str]) -> str:
    """A command at work, which the script of the page follows."""
    told_ = tag("p", "", id="told", aria_live="polite")
    meter = tag("div", tag("i", look="c1", id="meter"), look="bar", aria_hidden="true")
    stop = tag("button", "Stop", type="button", id="stop")
    command = tag("p", tag("code", " ".join(["dse", *words])), look="command")
    parts = [
        tag("h1", "At work"),
        command,
        told_,
        meter,
        tag("p", stop, look="actions"),
        tag("pre", "", id="said"),
    ]
    return page("At work", tag("div", *parts, id="at-work", data_number=number))


def ask_page(form: Html) -> str:
    """The form of a question."""
    return page(
        "Ask",
        join([tag("h1", "Ask"), paragraph("What dse run takes; empty fields are at their defaults."), form]),
    )


def static(name: str) -> tuple[str, str]:
    """A file of the page and its media type. Raises KeyError for others."""
    room, kind = {
        "style.css": ("phaze.report.page", "text/css"),
        "ui.css": ("phaze.ui", "text/css"),
        "ui.js": ("phaze.ui", "text/javascript"),
    }[name]
    place = files(room).joinpath("static") if room == "phaze.ui" else files(room)
    return place.joinpath(name).read_text(encoding="utf-8"), kind
