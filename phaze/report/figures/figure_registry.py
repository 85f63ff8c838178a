"""The figures of a run's report, by name, in the order in which they stand there; those of other distributions last."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

from phaze.plugins import Registry, at_hand
from phaze.report.figures.designs_compared import comparison, frontier
from phaze.report.figures.operator_figures import operators, roofline
from phaze.report.figures.placement_figures import placement
from phaze.report.figures.plan_figures import memory, pipeline
from phaze.report.figures.proof_and_sensitivity import certificate, sensitivity
from phaze.report.figures.question_and_answer import inputs
from phaze.report.figures.question_figures import questions
from phaze.report.figures.report_contents import Contents
from phaze.report.figures.why_it_is_so import why
from phaze.report.figures.winner_floorplan import architecture
from phaze.report.html_markup import Html, Section

Figure = Callable[[Contents], Iterable[Section]]
"""Sections that show something of a run; none where it has nothing of the kind."""

FIGURES: Registry[Figure] = Registry(
    "phaze.figures",
    "figure",
    at_hand(
        {
            "architecture": architecture,
            "frontier": frontier,
            "comparison": comparison,
            "why": why,
            "placement": placement,
            "pipeline": pipeline,
            "operators": operators,
            "roofline": roofline,
            "memory": memory,
            "sensitivity": sensitivity,
            "questions": questions,
            "certificate": certificate,
            "inputs": inputs,
        }
    ),
    lambda _, thing: "" if callable(thing) else f"is a {type(thing).__name__}, not a function of Contents",
)


def drawn(contents: Contents) -> Iterator[Section]:
    """The sections of all figures. Raises InputError where another distribution's do not fit into the page."""
    anchors: set[str] = set()
    for name, figure in FIGURES.all().items():
        with FIGURES.blaming(name):
            sections = list(figure(contents))
        for section in sections:
            if fault := section_fault(section, anchors):
                raise FIGURES.refusal(name, fault)
            anchors.add(section.anchor)
            yield section


def section_fault(section: object, taken: set[str]) -> str:
    """Fault of an object as a section beside others, whose anchors are taken, as a predicate; or empty."""
    if not isinstance(section, Section) or not isinstance(section.body, Html):
        return "gave what is no Section with a body of Html"
    if not re.fullmatch(r"[a-z][a-z0-9-]*", section.anchor):
        return f"has an anchor {section.anchor!r}; small letters, digits and dashes are possible"
    return f"has the anchor {section.anchor!r} of another section" if section.anchor in taken else ""
