from __future__ import annotations

from pathlib import Path

import pytest
import typer

from phaze.cli.main import app
from phaze.cli.reference import reference

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "cli.md"


def commands(command, path="dse"):
    yield path, command
    for name, child in getattr(command, "commands", {}).items():
        if child.hidden:  # another name of a command that has its section
            continue
        yield from commands(child, f"{path} {name}")


ALL = [item for item in commands(typer.main.get_command(app)) if item[0] != "dse"]


def test_the_page_is_up_to_date():
    assert PAGE.read_text(encoding="utf-8") == reference(), (
        "run: python -m phaze.cli.reference > docs/reference/cli.md"
    )


@pytest.mark.parametrize(("path", "command"), ALL, ids=[path for path, _ in ALL])
def test_every_command_and_option_has_help_and_is_documented(path, command):
    page = PAGE.read_text(encoding="utf-8")
    assert f"## {path}\n" in page
    assert command.help
    for parameter in command.params:
        if parameter.name != "help":
            assert parameter.help, f"{path}: {parameter.name} has no help"
    if not hasattr(command, "commands") and any(p.required for p in command.params) and "show" not in path:
        assert f"Example: {path}" in command.help
