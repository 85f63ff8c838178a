"""The report of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator

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
from phaze.report.page.frame import Frame, kicker, render
from phaze.report.page.markup import Section

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
    document = contents.document
    workloads = ", ".join(document.best.workloads)
    return render(
        Frame(
            title=f"{workloads}: {document.best.id}",
            kicker=kicker(contents.name, document.manifest.started_utc),
            heading=f"An accelerator for {workloads}",
            answer=sentence(document),
            figures=key_figures(document),
            sections=[section for make in _SECTIONS for section in make(contents)],
        )
    )
