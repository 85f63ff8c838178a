"""Whatever the documentation names exists: verbs and options of the command line, functions behind formulas."""

from __future__ import annotations

import re
from importlib import import_module

import pytest
from interface import all_options, lookup, options, root
from pages import DOCS, ROOT, name

from phaze.hardware.catalogue import Catalogue, registry
from phaze.workload.workload_library import WORKLOADS

PAGES = [ROOT / "README.md", *sorted(page for page in DOCS.rglob("*.md") if page.parent.name != "decisions")]
GROUPS = {WORKLOADS.group, *(registry(catalogue).group for catalogue in Catalogue)}
"""Of entry points, by which other packages bring files."""
NAMES = re.compile(r"`(phaze(?:\.\w+)+)`")


def inline(page):
    """Code in the running text of a page."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    return re.findall(r"`([^`\n]+(?:\n[^`\n]+)?)`", text)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_verbs_and_options_exist(page):
    for code in inline(page):
        if code.startswith("dse "):
            words = [
                word for word in re.split(r"[\s=]+", code)[1:] if word not in "[]" and not word.isupper()
            ]
            command, _ = lookup(words) if words and words[0][0] != "-" else (root(), 0)
            known = options(command)
        else:
            words, known = re.findall(r"(?<!\w)--[a-z][\w-]*", code), all_options() | others(page)
        for word in words:
            if re.fullmatch(r"--[a-z][\w-]*", word):
                assert word in known, f"{code}: no option {word}"


def others(page):
    """Options of other programs: Dask's, and those of the benchmarks on their pages."""
    if page.stem == "workers":
        return {"--nthreads"}
    programs = (ROOT / "benchmarks").glob("*.py") if "benchmarks" in (page.stem, page.parent.name) else ()
    said = "".join(program.read_text(encoding="utf-8") for program in programs)
    return set(re.findall(r'"(--[\w-]+)"', said))


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=name)
def test_names_of_the_package_exist(page):
    for dotted in NAMES.findall(page.read_text(encoding="utf-8")):
        assert dotted == "phaze.toml" or dotted in GROUPS or found(dotted), dotted


@pytest.mark.parametrize("page", [ROOT / "README.md", DOCS / "index.md"], ids=name)
def test_counts_of_models_and_chips(page):
    models, chips = (len(list((ROOT / folder).glob("*.yaml"))) for folder in ("workloads", "arch_templates"))
    assert f"{models} models and {chips} chips" in page.read_text(encoding="utf-8")


def found(dotted):
    """Whether a dotted name is a module, or something in one."""
    parts = dotted.split(".")
    for length in range(len(parts), 0, -1):
        try:
            thing = import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for part in parts[length:]:
            if not (hasattr(thing, part) or part in getattr(thing, "__annotations__", {})):
                return False
            thing = getattr(thing, part, None)
        return True
    return False
