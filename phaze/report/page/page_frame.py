"""Frame of every page around its sections: head, contents, style, scripts; one HTML file that needs nothing else."""

from __future__ import annotations

import base64
import gzip
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from string import Template

from phaze import __version__
from phaze.report.html_markup import Html, Section, join, tag, text


@dataclass(frozen=True, slots=True)
class Frame:
    """A page: `kicker` stands above its heading, the answer in a sentence and its figures below."""

    title: str
    kicker: str
    heading: str
    answer: Html
    figures: Html
    sections: Sequence[Section]


def render(frame: Frame) -> str:
    """The file. All texts are escaped."""
    return Template(_file("page.html")).substitute(
        generator=f"phaze-dse {__version__}",
        title=text(frame.title),
        kicker=text(frame.kicker),
        heading=text(frame.heading),
        answer=frame.answer,
        figures=frame.figures,
        contents=join(tag("li", tag("a", s.title, href=f"#{s.anchor}")) for s in frame.sections),
        sections=join(map(_section, frame.sections)),
        footer=text(f"Made by phaze-dse {__version__}; drawn with Plotly (MIT licence)."),
        style=_file("style.css"),
        plotly=_plotly(),
        script=_file("script.js"),
    )


def kicker(name: str, started_utc: str) -> str:
    """Name and time of a run."""
    started = started_utc.replace("T", " ").removesuffix("+00:00")
    return f"{name}, {started} UTC"


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
