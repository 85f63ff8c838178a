"""The pages of the documentation, their code blocks, and the commands in them.

A comment before a block, which no reader sees, says what the test of its commands must know:

    <!-- save: mychip.yaml -->          the block is a file that later commands read
    <!-- also: --space tiny.yaml -->    the commands run with these options more, because they take long as they stand
    <!-- before: dse run ... -->       a command that the reader has given before, as the page says in words
    <!-- printed: above -->            the block is a part of what the last command prints
    <!-- exit: 3 -->                    the commands end with this exit code (default: 0)
    <!-- read only: installs -->        the commands are not run, for this reason; their options are checked
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
_BLOCK = re.compile(
    r"(?P<notes>(?:^<!-- [a-z ]+: .*? -->\n+)*)^```(?P<language>\w+)\n(?P<text>.*?)^```$", re.M | re.S
)
_NOTE = re.compile(r"<!-- ([a-z ]+): (.*?) -->")
NOTES = {"save", "also", "before", "exit", "printed", "read only"}


@dataclass(frozen=True)
class Block:
    """One fenced block with the notes before it."""

    language: str
    text: str
    notes: dict[str, str]
    before: tuple[str, ...] = ()

    @property
    def commands(self) -> list[Command]:
        """The command lines of an `sh` block, or of a `console` block with what they print."""
        if self.language == "sh":
            lines = [*self.before, *self.text.replace("\\\n", " ").splitlines()]
            return [Command(line, None, self.notes) for line in lines if shlex.split(line, comments=True)]
        if self.language == "console":
            parts = re.split(r"^\$ ", self.text.replace("\\\n", " "), flags=re.M)[1:]
            return [Command(line, out, self.notes) for line, _, out in (p.partition("\n") for p in parts)]
        return []


@dataclass(frozen=True)
class Command:
    """One command line and, where the page shows it, what it prints; `[...]` stands for anything."""

    line: str
    printed: str | None
    notes: dict[str, str]

    @property
    def words(self) -> list[str]:
        """Without what is appended for the test, comments and the file that takes the output."""
        words = shlex.split(self.line, comments=True)
        return words[: words.index(">")] if ">" in words else words

    @property
    def into(self) -> str | None:
        """The file that takes the output."""
        words = shlex.split(self.line, comments=True)
        return words[words.index(">") + 1] if ">" in words else None


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page that name a language."""
    text = page.read_text(encoding="utf-8")
    return [_block(found) for found in _BLOCK.finditer(text)]


def _block(found: re.Match[str]) -> Block:
    notes = _NOTE.findall(found["notes"])
    before = tuple(text for note, text in notes if note == "before")
    return Block(found["language"], found["text"], dict(notes), before)


def commands(page: Path) -> list[Command]:
    """Every command of a page."""
    return [command for block in blocks(page) for command in block.commands]


def name(page: Path) -> str:
    """The page as the repository calls it."""
    return page.relative_to(ROOT).as_posix()
