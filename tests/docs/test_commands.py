"""Every command of the documentation runs, page by page and in order, and prints what its page says."""

from __future__ import annotations

import re
import tomllib

import pytest
from belongings import bring
from interface import lookup, options
from pages import DOCS, NOTES, ROOT, blocks, name

PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "examples" / "README.md",
    *sorted(page for page in DOCS.rglob("*.md") if page.parent.name != "decisions" and page.name != "cli.md"),
]  # examples of the command line's own page are held against its parser in tests/cli
PATIENCE = " --time-limit 10min"
LONG = {
    "cluster",
    "cost",
    "frontier",
    "inference",
    "measured",
    "plan",
    "power",
    "report",
    "runs",
    "several-workloads",
    "space",
    "strategies",
    "system",
    "tutorial",
    "two-designs",
    "wham",
}  # more than five seconds
WITH_COMMANDS = [
    pytest.param(page, marks=[pytest.mark.soak] if page.stem in LONG else [])
    for page in PAGES
    if any(block.commands for block in blocks(page))
]


@pytest.mark.parametrize("page", WITH_COMMANDS, ids=name)
def test_the_commands_of_a_page(page, tmp_path, monkeypatch, dse):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    bring(page.read_text(encoding="utf-8"), tmp_path)
    out = ""
    for block in blocks(page):
        assert set(block.notes) <= NOTES, block.notes
        if "save" in block.notes:
            (tmp_path / block.notes["save"]).write_text(block.text, encoding="utf-8")
        if "printed" in block.notes:
            assert tidy(block.text) in tidy(out)
        for command in block.commands:
            out = check(command, dse, tmp_path)


@pytest.mark.parametrize("page", [page for page in PAGES if page.stem in LONG], ids=name)
def test_the_commands_of_a_long_page_have_the_options_they_are_given(page):
    """Every day; the long tests run them."""
    found = [command for block in blocks(page) for command in block.commands if command.words[:1] == ["dse"]]
    for command in found:
        _, *words = command.words
        verb, taken = lookup(words)
        verb.make_context("dse", words[taken:])
    assert found


def check(command, dse, folder):
    """Run one command and return what it prints, or only read it where its page says so."""
    first, *words = command.words
    if first == "dse" and "read only" in command.notes:
        verb, taken = lookup(words)
        verb.make_context("dse", words[taken:])
    elif first == "dse":
        return run(command, [*words, *added(command, words)], dse, folder)
    elif words[:3] == ["-m", "pip", "install"]:
        assert {extra for word in words for extra in re.findall(r"\[(\w+)\]", word)} <= extras()
    elif first == "python" and words[0] != "-m":
        assert (ROOT / words[0]).exists()
    else:
        assert "read only" in command.notes, f"neither a command of dse nor excused: {command.line}"
    return ""


def run(command, words, dse, folder):
    code, out, err = dse(*words)
    assert code == int(command.notes.get("exit", "0")), f"{command.line}\n{err}"
    if command.into:
        (folder / command.into).write_text(out, encoding="utf-8")
    if command.printed is not None:
        said = tidy(out if code == 0 else err)
        assert re.fullmatch(pattern(command.printed), said, re.DOTALL), f"{command.line}\n{said}"
    return out


def added(command, words):
    """The options of the page's note that this verb has, and time enough on a machine that is busy."""
    verb, _ = lookup(words)
    more = command.notes.get("also", "") + (PATIENCE if "--time-limit" not in words else "")
    pairs = re.findall(r"(-[\w-]+)\s*([^-\s]\S*)?", more)
    return [word for option, value in pairs if option in options(verb) for word in (option, value) if word]


def extras():
    with (ROOT / "pyproject.toml").open("rb") as file:
        return set(tomllib.load(file)["project"]["optional-dependencies"])


def tidy(text):
    return "\n".join(line.rstrip() for line in text.strip("\n").splitlines())


def pattern(printed):
    parts = [re.escape(tidy(part)) for part in re.split(r"^\[\.\.\.\]$", printed, flags=re.MULTILINE)]
    return r"\s*.*?\s*".join(parts)
