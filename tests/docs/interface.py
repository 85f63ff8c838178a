"""What the command line takes: verbs and options, as the documentation may name them."""

from __future__ import annotations

from functools import cache

import typer

from phaze.cli.main import app


@cache
def root():
    return typer.main.get_command(app)


def lookup(words):
    """The command that the leading words name, and how many they are. Raises KeyError for an unknown verb."""
    command, taken = root(), 0
    while children := getattr(command, "commands", None):
        if taken == len(words) or words[taken] not in children:
            break
        command, taken = children[words[taken]], taken + 1
    if not taken:
        raise KeyError(words[0])
    return command, taken


def options(command):
    """Every option of a command by every name it has."""
    return {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)} | {
        "--help",
        "-h",
    }


def all_options():
    """Those of every command."""
    found, left = options(root()), [root()]
    while left:
        command = left.pop()
        found |= options(command)
        left += getattr(command, "commands", {}).values()
    return found
