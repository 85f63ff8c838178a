"""The documentation site: every page is in its navigation, and it needs no network to build or to read."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
import yaml
from pages import DOCS, ROOT

sys.path.append(str(ROOT / "tests" / "cases"))
import browser

# What a page of the site would fetch; a link that a reader follows is none of it.
FETCHED = re.compile(
    r"<(?:script|img|iframe|source)[^>]*\ssrc=[\"']?(https?:)?//|<link[^>]*rel=\"?(?:stylesheet|preconnect)[^>]*href=\"?(?:https?:)?//"
)


def configuration():
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    return yaml.safe_load(text)


def leaves(nav):
    for entry in nav:
        inner = next(iter(entry.values())) if isinstance(entry, dict) else entry
        yield from leaves(inner) if isinstance(inner, list) else [inner]


def test_every_page_is_in_the_navigation_once():
    listed = [page for page in leaves(configuration()["nav"]) if not page.startswith("repository/")]
    pages = sorted(page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md"))
    assert sorted(listed) == pages, "add the page to nav in mkdocs.yml"


def test_every_decision_is_listed():
    listed = (DOCS / "decisions" / "index.md").read_text(encoding="utf-8")
    for record in DOCS.glob("decisions/0*.md"):
        assert f"({record.name})" in listed, "add the record to docs/decisions/index.md"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The built site."""
    pytest.importorskip("material")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    return folder


def test_the_site_fetches_nothing(site):
    pages = [*site.rglob("*.html")]
    assert len(pages) > 90
    for page in pages:
        assert not FETCHED.search(page.read_text(encoding="utf-8")), page


def test_pages_outside_the_folder_are_pages_of_the_site(site):
    text = (site / "how-to" / "python.html").read_text(encoding="utf-8")
    assert 'href="../repository/examples/index.html"' in text
    readme = (site / "repository" / "examples" / "index.html").read_text(encoding="utf-8")
    assert 'href="../../how-to/python.html"' in readme
    assert (site / "repository" / "examples" / "edge_vision.py").exists()


def test_links_between_pages_lead_somewhere(site):
    for page in set(site.rglob("*.html")) - {site / "404.html"}:
        for target in re.findall(r'href="([^"#:]+)["#]', page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), (page, target)


@pytest.mark.skipif(browser.CHROMIUM is None, reason="needs Chromium")
def test_the_site_is_read_and_searched_from_a_disk(site):
    reader = browser.Browser()
    try:
        reader.size(360)
        reader.call("Page.navigate", url=f"file://{site}/index.html")
        reader.wait(
            "document.querySelector('.md-search__input') !== null && document.readyState === 'complete'"
        )
        assert reader.run("document.documentElement.scrollWidth <= 360")
        reader.run("document.querySelector('.md-search__input').focus()")
        reader.call("Input.insertText", text="certificate")
        reader.wait("document.querySelectorAll('.md-search-result__item').length > 5")
        assert reader.errors == []
        assert all(url.startswith(("file:", "data:", "blob:")) for url in reader.requests)
    finally:
        reader.close()
