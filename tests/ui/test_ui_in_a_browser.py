"""`dse ui` in a real browser: by keyboard, on a phone, a question typed and answered, two designs side by side."""

from __future__ import annotations

import os

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from browser import CHROMIUM, FAINT, Browser
from local_page import local_page

from phaze.runs.run_directory import write_answer
from phaze.testing.small_problem import DECODER, SPACE

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")


@pytest.fixture(scope="module")
def client(document, tmp_path_factory):
    folder = tmp_path_factory.mktemp("browsed")
    (folder / "tiny.yaml").write_text(DECODER)
    (folder / "few.yaml").write_text(SPACE)
    for name in ("one", "two"):
        (folder / "runs" / name).mkdir(parents=True)
        other = document if name == "one" else document.model_copy(update={"best": document.next_best[0]})
        write_answer(folder / "runs" / name, other)
    before = os.getcwd()  # noqa: PTH109
    os.chdir(folder)
    with local_page(folder / "runs") as client:
        yield client
    os.chdir(before)


@pytest.fixture(scope="module")
def browser(client):
    found = Browser()
    found.size(1400)
    found.go(client.server.address)
    yield found
    found.close()


@pytest.fixture
def go(browser, client):
    """A function that shows an address of the page at a width."""

    def shown(path, width=1400):
        browser.size(width)
        browser.go(f"http://127.0.0.1:{client.port}{path}")
        assert browser.errors == []
        return browser

    return shown


def test_a_phone_shows_the_answer_of_each_run_without_scrolling_aside(go):
    page = go("/", 390)
    assert page.run(
        "(({scrollWidth, clientWidth}) => scrollWidth <= clientWidth)(document.querySelector('#runs .scroll'))"
    )
    seen = "[...document.querySelectorAll('#runs tbody td')].every((cell) => cell.getBoundingClientRect().right <= 390)"
    assert page.run(seen)


@pytest.mark.parametrize("path", ["/", "/ask", "/runs/one"])
@pytest.mark.parametrize("width", [1400, 390])
def test_pages_fit_and_touch_nothing_elsewhere(go, client, path, width):
    page = go(path, width)
    page.wait(f"document.documentElement.scrollWidth <= {width}")
    here = f"http://127.0.0.1:{client.port}/"
    assert [url for url in page.requests if not url.startswith((here, "data:"))] == []


@pytest.mark.parametrize("path", ["/", "/ask", "/runs/one"])
@pytest.mark.parametrize("dark", [False, True])
def test_texts_stand_out_from_their_ground(go, path, dark):
    page = go(path)
    page.size(1400, dark=dark)
    assert page.run(FAINT) == []


def test_the_token_is_not_left_in_the_address(browser, client):
    browser.go(client.server.address)
    assert browser.run("location.href") == f"http://127.0.0.1:{client.port}/"
    assert browser.run("document.cookie") == ""


def test_a_keyboard_moves_along_the_frontier_and_pins_two_designs(go, document):
    page = go("/runs/one")
    for _ in range(30):
        page.key("Tab")
        if page.run("document.activeElement.id") == "place":
            break
    assert page.run("document.activeElement.id") == "place"
    assert page.run("getComputedStyle(document.activeElement).outlineStyle") != "none"
    start = int(page.run("document.activeElement.value"))
    page.key("ArrowLeft" if start else "ArrowRight")
    moved = int(page.run("document.activeElement.value"))
    assert abs(moved - start) == 1
    assert document.frontier[moved].id in page.run("document.getElementById('place-words').textContent")
    marked = "[...document.querySelectorAll('.small-chart .dot.edge')].findIndex((d) => d.classList.contains('here'))"
    assert page.run(marked) == moved
    page.key("Tab")
    page.key("Tab")
    assert page.run("document.activeElement.id") == "pin-B"
    page.key("Enter")
    cells = page.run(
        "[...document.querySelectorAll('#pinned tbody tr:first-child td')].map((c) => c.textContent)"
    )
    assert cells[2] == document.frontier[moved].id
    told = page.run("[...document.querySelectorAll('#pinned tbody tr')].map((r) => r.innerText).join('\\n')")
    a, b = (document.frontier[k].throughput_samples_per_s for k in (start, moved))
    assert f"x {float(f'{b / a:.3g}'):.3g}"[:4] in told
    file = page.run("document.querySelector('[data-file]').getAttribute('href')")
    assert file.startswith("/runs/one/architecture?design=")


def test_a_wrong_unit_is_told_while_one_types(go):
    page = go("/ask")
    page.run("document.getElementById('option-workload').focus()")
    for letter in "tiny.yaml":
        page.key(letter)
    page.wait("document.getElementById('command').textContent.includes('tiny.yaml')")
    page.run("document.getElementById('option-power').focus()")
    for letter in "3kg":
        page.key(letter)
    page.wait("document.getElementById('option-power').getAttribute('aria-invalid') === 'true'")
    assert "3kg" in page.run("document.getElementById('error').textContent")
    assert page.run("document.getElementById('ask').disabled")


def test_a_question_is_asked_by_keyboard_and_answered(go):
    page = go("/ask", 390)
    fields = {"workload": "tiny.yaml", "space": "few.yaml", "devices": "4", "power": "300W"}
    for name, value in fields.items():
        page.run(
            f"(() => {{ const field = document.getElementById('option-{name}'); field.value = '{value}';"
            " field.dispatchEvent(new Event('input', { bubbles: true })); })()"
        )
    page.wait(
        "!document.getElementById('ask').disabled && document.getElementById('error').textContent === ''"
    )
    page.run("document.getElementById('option-power').focus()")
    page.key("Enter")
    page.wait("location.pathname.startsWith('/runs/tiny')")
    page.wait("document.documentElement?.dataset.ready === 'yes'")
    assert "tiny" in page.run("document.querySelector('h1').textContent")
    assert page.errors == []


def test_runs_are_chosen_and_shown_together(go):
    page = go("/")
    page.run(
        "document.querySelectorAll('#runs input').forEach((b) => { b.checked = ['one', 'two'].includes(b.value); })"
    )
    page.run("document.querySelector('#runs button').click()")
    page.wait("location.pathname === '/together' && document.documentElement?.dataset.ready === 'yes'")
    assert "2 runs side by side" in page.run("document.querySelector('h1').textContent")
    assert page.errors == []
