"""How the pages look: compared with kept pictures, and laid out without overlap, cut text or tiny type.

After a wanted change: DSE_LOOKS=keep python -m pytest tests/report/page/test_looks.py -n 0, then look at what changed.
"""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path

import pytest
from browser import CHROMIUM, Browser
from picture import differences, load, look, save
from test_page import contents  # noqa: F401 - a fixture
from test_plan_page import plan  # noqa: F401 - a fixture

from phaze.api.drawn_runs import replayed_plan
from phaze.report.figures.plan_figures import PlanContents
from phaze.report.page.answer_pages import plan_page, run_page

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
KEPT = Path(__file__).parents[2] / "data" / "looks"
VIEWS = {
    "run-wide": (1280, False),
    "run-dark": (1280, True),
    "run-phone": (360, False),
    "plan-tablet": (768, False),
}
WIDTHS = (1280, 768, 360)


@pytest.fixture(scope="module")
def browser():
    found = Browser()
    yield found
    found.close()


@pytest.fixture(scope="module")
def files(document, contents, plan, tmp_path_factory):  # noqa: F811
    """The reports of a run and of a plan, both the same everywhere and always."""
    folder = tmp_path_factory.mktemp("looks")
    pages = {
        "run": run_page(contents(document)),
        "plan": plan_page(PlanContents("plan", plan, replayed_plan(plan))),
    }
    for name, source in pages.items():
        (folder / f"{name}.html").write_text(source, encoding="utf-8")
    return folder


def shown(browser, files, view):
    width, dark = VIEWS[view]
    browser.size(width, dark=dark)
    browser.open(files / f"{view.partition('-')[0]}.html")
    browser.wait("document.fonts.status === 'loaded'")


@pytest.mark.parametrize("view", VIEWS)
def test_pages_look_as_they_did(browser, files, view, tmp_path):
    shown(browser, files, view)
    found = look(browser, tmp_path)
    if os.environ.get("DSE_LOOKS") == "keep":
        save(browser, found, KEPT / view)
    assert differences(found, load(browser, KEPT / view)) == []


DAMAGES = {
    "iteration": "#iteration svg { visibility: hidden }",
    "frontier": "#frontier-plot { visibility: hidden }",
    "roofline": "#roofline .plot { transform: translateX(60%) }",
    "area-power": "#area-power .bar i { background: red }",
    "certificate": "#certificate { height: 40px; overflow: hidden }",
    "architecture": "#architecture .plan { transform: scale(0.6) }",
}


def test_damages_are_noticed(browser, files, tmp_path):
    shown(browser, files, "run-wide")
    kept = load(browser, KEPT / "run-wide")
    browser.style(" ".join(DAMAGES.values()))
    found = differences(look(browser, tmp_path), kept)
    assert {line.partition(":")[0] for line in found} == set(DAMAGES)
    browser.run("document.querySelector('#memory').remove()")
    assert differences(look(browser, tmp_path), kept)[0].startswith("sections")


def test_another_font_is_no_difference(browser, files, tmp_path):
    shown(browser, files, "run-phone")
    browser.style("body { font-family: monospace }")
    assert differences(look(browser, tmp_path), load(browser, KEPT / "run-phone")) == []


SECTIONS = """
[...document.querySelectorAll("header, section, footer")].map((part) => { const box = part.getBoundingClientRect();
  return [part.id || part.localName, box.left, box.right, box.top, box.bottom]; })"""

TINY = """
(() => { const found = [];
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const node = texts.currentNode, parent = node.parentElement;
    if (!node.data.trim() || !parent.checkVisibility()) continue;
    const scale = parent.getScreenCTM ? Math.hypot(parent.getScreenCTM().a, parent.getScreenCTM().b) : 1;
    const size = parseFloat(getComputedStyle(parent).fontSize) * scale;
    if (size < 9.5) found.push([node.data.trim(), size]);
  }
  return found; })()"""

CUT = """
[...document.querySelectorAll("h1, h2, h3, p, dd, dt, li, summary, td, th, figcaption, caption, button, output")]
  .filter((part) => part.checkVisibility() && part.scrollWidth > part.clientWidth + 1 && part.clientWidth > 0)
  .map((part) => [part.localName, part.textContent.slice(0, 60), part.scrollWidth, part.clientWidth])"""

OUTSIDE = """
(() => { const plan = document.querySelector(".plan"); if (!plan) return [];
  const room = plan.getBoundingClientRect();
  return [...plan.querySelectorAll("text")].filter((label) => label.checkVisibility()).filter((label) => {
    const box = label.getBoundingClientRect();
    return box.left < room.left - 1 || box.right > room.right + 1 || box.bottom > room.bottom + 1;
  }).map((label) => label.textContent); })()"""


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", ["run", "plan"])
def test_nothing_overlaps_is_cut_off_or_too_small_to_read(browser, files, name, width):
    browser.size(width)
    browser.open(files / f"{name}.html")
    boxes = browser.run(SECTIONS)
    for (before, _, _, top, bottom), (after, left, right, start, _) in pairwise(boxes):
        assert bottom - top > 50, before
        assert start >= bottom - 1, (before, after)
        assert left >= 0
        assert right <= width, after
    assert browser.run(TINY) == []
    assert browser.run(CUT) == []
    assert browser.run(OUTSIDE) == []
