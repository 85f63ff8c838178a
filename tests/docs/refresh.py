"""Puts what commands print now into a page: `python tests/docs/refresh.py docs/tutorial.md`. Then read what it says.

Of an output with `[...]` as many lines are taken as stand before it. A block that is a part of what the last command
prints is found by how its first line begins, and keeps its number of lines.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from pages import blocks

ELISION = "[...]"


def refreshed(page):
    """The text of a page with the outputs of its commands as they are now."""
    text, printed = page.read_text(encoding="utf-8"), ""
    with tempfile.TemporaryDirectory() as folder:
        for block in blocks(page):
            if "save" in block.notes:
                Path(folder, block.notes["save"]).write_text(block.text, encoding="utf-8")
            new = block.text
            for command in block.commands:
                if "read only" not in command.notes:
                    printed = output(command.line, folder)
                    if command.printed is not None:
                        new = new.replace(command.printed, shortened(printed, command.printed))
            if "printed" in block.notes:
                new = part(printed, block.text)
            text = text.replace(block.text, new)
    return text


def output(line, folder):
    """What a command line prints, or says where it fails."""
    environment = {**os.environ, "COLUMNS": "80", "NO_COLOR": "1"}
    ended = subprocess.run(
        line, cwd=folder, env=environment, shell=True, capture_output=True, text=True, check=False
    )
    return "".join(f"{one.rstrip()}\n" for one in (ended.stdout or ended.stderr).strip("\n").splitlines())


def shortened(now, before):
    """What is printed now as far as it was shown before."""
    if ELISION not in before:
        return now
    lines = before.splitlines().index(ELISION)
    return "".join(f"{line}\n" for line in [*now.splitlines()[:lines], ELISION])


def part(now, before):
    """The part of what is printed now that begins as the one before."""
    old, lines = before.splitlines(), now.splitlines()
    start = next(i for i, line in enumerate(lines) if line.split()[:2] == old[0].split()[:2])
    return "".join(f"{line}\n" for line in lines[start : start + len(old)])


if __name__ == "__main__":
    for name in sys.argv[1:]:
        Path(name).write_text(refreshed(Path(name)), encoding="utf-8")
