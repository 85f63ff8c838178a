"""The report in a real browser: it draws, answers to pointer and filter, fits a phone, and prints."""

from __future__ import annotations

import pytest
from browser import CHROMIUM, FAINT, Browser
from test_page import contents, hostile  # noqa: F401 - a fixture

from phaze.report.page.answer_pages import run_page

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
WIDTHS = (1280, 768, 360)


@pytest.fixture(scope="module")
def browser():
    found = Browser()
    yield found
    found.close()


@pytest.fixture(scope="module")
def file(document, contents, tmp_path_factory):  # noqa: F811
    """The report of a run."""
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(run_page(contents(document)), encoding="utf-8")
    return path


@pytest.fixture
def shown(browser, file):
    """The browser with the report, freshly loaded, on a page of 1280 px."""
    browser.size(1280)
    browser.open(file)
    return browser


def test_it_draws_without_errors_and_without_network(shown):
    assert shown.errors == []
    assert [url for url in shown.requests if not url.startswith(("file:", "blob:"))] == []
    assert shown.run("document.querySelectorAll('.plot .main-svg').length") >= 2


def test_it_never_scrolls_sideways(shown):
    for width in WIDTHS:
        shown.size(width)
        shown.wait(f"document.documentElement.scrollWidth <= {width}")
        shown.run("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
        shown.wait(f"document.documentElement.scrollWidth <= {width}")


def test_its_plots_follow_light_and_dark(shown):
    ground = (
        "document.querySelector('#frontier-plot .bglayer .bg, #frontier-plot .main-svg').style.background"
    )
    colours = []
    for dark in (False, True):
        shown.size(1280, dark=dark)
        colours.append("rgb(20, 24, 29)" if dark else "rgb(255, 255, 255)")
        shown.wait(f"{ground}.includes('{colours[-1]}')")


def test_a_pointer_finds_the_design(shown):
    shown.run("document.getElementById('frontier-plot').scrollIntoView({ behavior: 'instant' })")
    x, y = shown.run(
        "(() => { const marks = document.querySelectorAll('#frontier-plot .trace')[1].querySelectorAll('path.point');"
        " const box = marks[5].getBoundingClientRect(); return [box.x + box.width / 2, box.y + box.height / 2]; })()"
    )
    shown.point(x, y)
    shown.wait("document.querySelector('#frontier-plot .hovertext') !== null")
    words = shown.run("document.querySelector('#frontier-plot .hovertext').textContent")
    assert "tc32x128x128" in words
    assert "power (W): 200" in words


def test_a_range_filters_plot_and_table(shown):
    lines = "[...document.querySelectorAll('#frontier-table tbody tr')].filter((r) => !r.hidden).length"
    count = "document.getElementById('frontier-count').textContent"
    assert shown.run(lines) == 23
    shown.run(
        "(() => { const field = document.getElementById('max-x'); field.value = '190';"
        " field.dispatchEvent(new Event('input', { bubbles: true })); })()"
    )
    assert shown.run(lines) == 5
    assert shown.run(count) == "5 of 23 designs"
    shown.run("document.getElementById('frontier-reset').click()")
    assert shown.run(count) == "23 of 23 designs"


def test_other_axes_can_be_chosen(shown):
    shown.run(
        "(() => { const field = document.getElementById('axis-x'); field.value = '1';"
        " field.dispatchEvent(new Event('input', { bubbles: true })); })()"
    )
    shown.wait("document.querySelector('#frontier-plot .xtitle').textContent.startsWith('area')")


def test_the_first_screen_holds_what_a_reader_wants_first(shown):
    shown.size(1400)
    lowest = "Math.max(...[...document.querySelectorAll('header .numbers, header figure, header .command')]"
    assert shown.run(f"{lowest}.map((part) => part.getBoundingClientRect().bottom))") <= 900
    assert shown.run("document.querySelector('header .small-chart').getBoundingClientRect().right") > 1300
    assert shown.run("document.querySelectorAll('header .small-chart .won').length") == 1


def test_tables_are_saved_and_the_command_is_copied(shown):
    shown.run(
        "window.saved = []; URL.createObjectURL = (blob) => { saved.push(blob); return '#'; };"
        "HTMLAnchorElement.prototype.click = () => {}"
    )
    shown.run("document.querySelector('[data-csv=frontier]').click()")
    lines = shown.run("saved[0].text()").splitlines()
    assert lines[0].startswith("id,throughput_samples_per_s,tdp_w")
    assert len(lines) == 24
    shown.run("document.querySelector('#known-chips .csv').click()")
    assert "the winner" in shown.run("saved[1].text()").splitlines()[1]
    shown.run("document.querySelector('.copy').click()")
    shown.wait("document.querySelector('.copy').textContent === 'Copied'")


def test_a_keyboard_reaches_answer_controls_and_buttons(shown):
    reached = []
    for _ in range(60):
        shown.key("Tab")
        reached.append(shown.run("document.activeElement.className || document.activeElement.id || 'link'"))
    assert reached[0] == "skip"
    assert {"copy", "axis-x", "csv"} <= set(reached)
    assert shown.run("getComputedStyle(document.activeElement).outlineStyle") != "none"


@pytest.mark.parametrize("dark", [False, True])
def test_texts_stand_out_from_their_ground(shown, dark):
    shown.size(1280, dark=dark)
    assert shown.run(FAINT) == []


def test_hostile_names_do_nothing(browser, document, contents, tmp_path):  # noqa: F811
    (tmp_path / "report.html").write_text(run_page(contents(hostile(document))), encoding="utf-8")
    browser.open(tmp_path / "report.html")
    assert browser.errors == []
    assert browser.run("window.hacked") is None


def test_a_screenshot_shows_more_than_one_colour_and_paper_is_a_pdf(shown, tmp_path):
    shown.screenshot(tmp_path / "page.png")
    assert (tmp_path / "page.png").stat().st_size > 50_000
    assert shown.pdf().startswith(b"%PDF")
    assert shown.run("document.querySelector('details.printed').open")
