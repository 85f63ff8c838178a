"""The contract of a figure of the report."""

from __future__ import annotations

import json
import re
from functools import cache
from html.parser import HTMLParser
from typing import Any

import pytest

from phaze.explore.answers.main_job import explore
from phaze.explore.documents.explanation_document import Sensitivity
from phaze.explore.documents.result_document import ResultDocument
from phaze.explore.plans.replayed_plans import replayed_plans
from phaze.explore.request.explore_request import ExploreRequest
from phaze.hardware.spaces.space_file import parse_space
from phaze.report.figures.figure_registry import Figure, section_fault
from phaze.report.figures.report_contents import Contents
from phaze.report.html_markup import join
from phaze.testing.small_problem import BUDGETS, SPACE, small_task

HOSTILE = """</script><script>window.hacked=1</script><img src=x onerror="window.hacked=1"> "'& é \x00"""
"""Hostile name as a user's file may hold it."""
_VOID = frozenset({"meta", "input", "img", "br", "hr", "link", "wbr"})
_ELSEWHERE = re.compile(r"https?:|//|javascript:", re.IGNORECASE)


class Markup(HTMLParser):
    """Elements of a piece of HTML or SVG, their attributes and texts; AssertionError where tags do not match."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.texts: list[str] = []
        self.feed(source)
        self.close()
        assert not self.open

    @property
    def names(self) -> list[str]:
        """Names of the elements, in order."""
        return [name for name, _ in self.elements]

    def values(self, *attributes: str) -> list[str]:
        """Values of some attributes, in order."""
        return [value for _, told in self.elements for key, value in told.items() if key in attributes]

    @property
    def handlers(self) -> list[str]:
        """Attributes that hold a script."""
        return [key for _, told in self.elements for key in told if key.startswith("on")]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Open an element."""
        self.elements.append((tag, {key: value or "" for key, value in attrs}))
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """An element of SVG that ends at once."""
        self.elements.append((tag, {key: value or "" for key, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        """End the element that was opened last."""
        assert self.open
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        """Keep what is read, not what is run."""
        if not self.open or self.open[-1] not in ("script", "style"):
            self.texts.append(data)


class FigureContract:
    """Contract of every figure with the contents of several runs; a subclass gives the `figure`."""

    @pytest.fixture
    def figure(self) -> Figure:
        """The figure under test."""
        raise NotImplementedError

    @pytest.fixture(params=["searched", "left out", "hostile"])
    def contents(self, request: pytest.FixtureRequest) -> Contents:
        """A small run; the same where nothing could be worked out again; the same with nasty names."""
        return run_contents()[request.param]

    def test_gives_sections_that_a_page_can_hold(self, figure: Figure, contents: Contents) -> None:
        """With anchors of their own and titles, in markup that is whole."""
        anchors: set[str] = set()
        for section in figure(contents):
            assert section_fault(section, anchors) == ""
            anchors.add(section.anchor)
            assert section.title
            Markup(section.body)

    def test_has_nothing_from_elsewhere_and_no_script(self, figure: Figure, contents: Contents) -> None:
        """Data for the scripts of the page may stand in it."""
        found = _drawn(figure, contents)
        assert not [
            link for link in found.values("href", "src", "xlink:href", "action") if not link.startswith("#")
        ]
        assert not [style for style in found.values("style", "fill", "stroke") if _ELSEWHERE.search(style)]
        assert found.handlers == []
        scripts = [told for name, told in found.elements if name == "script"]
        assert {told.get("type") for told in scripts} <= {"application/json"}
        assert not {"iframe", "object", "embed", "link", "style", "base"} & set(found.names)

    def test_names_stay_names(self, figure: Figure) -> None:
        """The same elements, whatever workloads, layers and designs are called."""
        plain, hostile = (_drawn(figure, run_contents()[name]) for name in ("searched", "hostile"))
        assert "img" not in hostile.names
        assert hostile.names.count("script") == plain.names.count("script")
        assert hostile.handlers == []

    def test_the_same_run_gives_the_same_figure(self, figure: Figure, contents: Contents) -> None:
        """To the last letter."""
        assert list(figure(contents)) == list(figure(contents))


def _drawn(figure: Figure, contents: Contents) -> Markup:
    return Markup(join(section.body for section in figure(contents)))


@cache
def run_contents() -> dict[str, Contents]:
    """Contents of small runs by what is particular about them."""
    request = ExploreRequest(small_task(), parse_space(SPACE, "few.yaml"), BUDGETS)
    document = explore(request).document
    name = small_task().workload.name
    plans = replayed_plans(document, request)
    return {
        "searched": _contents("few", document, plans=plans, sensitivity={name: [_sensitive(name)]}),
        "left out": _contents("few", document, left_out="tiny.yaml has changed"),
        "hostile": _contents(
            HOSTILE,
            hostile(document),
            plans={HOSTILE: plans[name]},
            sensitivity={HOSTILE: [_sensitive(HOSTILE)]},
        ),
    }


def _contents(name: str, document: ResultDocument, **more: Any) -> Contents:  # noqa: ANN401 - fields of Contents
    designs = [{"id": p.id, **p.model_dump(exclude={"id", "architecture"})} for p in document.frontier]
    return Contents(name, document, designs, **more)


def _sensitive(name: str) -> Sensitivity:
    return Sensitivity(
        parameter="clock_hz",
        description=name,
        throughput_less_samples_per_s=9.0,
        throughput_more_samples_per_s=11.0,
        step=0.1,
        gain=0.1,
        elasticity=1.0,
    )


def hostile(document: ResultDocument) -> ResultDocument:
    """The same with something nasty wherever a user's files or names come through."""
    told = json.loads(document.model_dump_json(by_alias=True))
    for design in (told["best"], *told["next_best"]):
        design["id"] = HOSTILE
        design["workloads"] = {HOSTILE: next(iter(design["workloads"].values()))}
        for result in design["workloads"].values():
            for stage in result["placement"]["stages"]:
                stage["layers"] = [HOSTILE + name for name in stage["layers"]]
    told["best"]["architecture"][HOSTILE] = told["frontier"][0]["id"] = HOSTILE
    told["best"]["area_parts_mm2"][HOSTILE] = 50.0
    for chip in told["comparison"][:1]:
        chip |= {"name": HOSTILE, "note": HOSTILE}
    told["certificate"]["scope"].append(HOSTILE)
    told["request"] |= {"workloads": [HOSTILE], "held": {HOSTILE: HOSTILE}}
    told["manifest"] |= {
        "command": ["dse", HOSTILE],
        "versions": {HOSTILE: "1"},
        "inputs_sha256": {HOSTILE: "0"},
    }
    return ResultDocument.model_validate(told)
