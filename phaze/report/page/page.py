"""The whole report: one HTML file that needs nothing else, neither a network nor another file."""

from __future__ import annotations

import base64
import gzip
from collections.abc import Callable, Iterator
from importlib.resources import files
from string import Template

from phaze import __version__
from phaze.report.figures.answer import key_figures, sentence
from phaze.report.figures.architecture import architecture
from phaze.report.figures.certificate import certificate
from phaze.report.figures.comparison import comparison
from phaze.report.figures.contents import Contents
from phaze.report.figures.frontier import frontier
from phaze.report.figures.inputs import inputs
from phaze.report.figures.memory import memory
from phaze.report.figures.operators import operators
from phaze.report.figures.pipeline import pipeline
from phaze.report.figures.placement import placement
from phaze.report.figures.questions import questions
from phaze.report.figures.roofline import roofline
from phaze.report.figures.sensitivity import sensitivity
from phaze.report.page.markup import Html, Section, join, tag, text

_SECTIONS: tuple[Callable[[Contents], Iterator[Section]], ...] = (
    architecture,
    frontier,
    comparison,
    placement,
    pipeline,
    operators,
    roofline,
    memory,
    sensitivity,
    questions,
    certificate,
    inputs,
)


def page(contents: Contents) -> str:
    """The file. All texts of the run are escaped."""
    sections = [section for make in _SECTIONS for section in make(contents)]
    workloads = ", ".join(contents.document.best.workloads)
    started = contents.document.manifest.started_utc.replace("T", " ").removesuffix("+00:00")
    return Template(_file("page.html")).substitute(
        generator=f"phaze-dse {__version__}",
        title=text(f"{workloads}: {contents.document.best.id}"),
        kicker=text(f"{contents.name}, {started} UTC"),
        heading=text(f"An accelerator for {workloads}"),
        answer=sentence(contents.document),
        figures=key_figures(contents.document),
        contents=join(tag("li", tag("a", s.title, href=f"#{s.anchor}")) for s in sections),
        sections=join(map(_section, sections)),
        footer=text(f"Made by phaze-dse {__version__}; drawn with Plotly (MIT licence)."),
        style=_file("style.css"),
        plotly=_plotly(),
        script=_file("script.js"),
    )


def _section(section: Section) -> Html:
    heading = f"{section.anchor}-title"
    return tag(
        "section",
        tag("h2", section.title, id=heading),
        section.body,
        id=section.anchor,
        aria_labelledby=heading,
    )


def _file(name: str) -> str:
    return files("phaze.report.page").joinpath(name).read_text(encoding="utf-8")


def _plotly() -> Html:
    """Plotly, packed: 2 MB instead of 5; the page unpacks it."""
    from plotly.offline import get_plotlyjs  # slow to load

    packed = base64.b64encode(gzip.compress(get_plotlyjs().encode(), mtime=0)).decode()
    return Html(f'<script type="text/plain" id="plotly">{packed}</script>')
