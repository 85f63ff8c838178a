"""Results that show themselves: as text in a terminal, as HTML in a notebook, from the same tables."""

from __future__ import annotations

import io
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from html import escape

from rich.console import Console, Group, RenderableType
from rich.table import Column, Table
from rich.text import Text

_WIDTH = 80


class Shown(ABC):
    """Something with a short view of itself."""

    @abstractmethod
    def _blocks(self) -> Iterable[RenderableType]:
        """Sentences (rich markup) and tables, most important first."""

    def __repr__(self) -> str:
        """Plain text that fits 80 columns."""
        return as_text(self._blocks())

    def _repr_html_(self) -> str:
        """HTML for notebooks; everything from user files is escaped."""
        return "\n".join(_html(self._blocks()))


def as_text(blocks: Iterable[RenderableType]) -> str:
    """Blocks as plain text, an empty line between them."""
    stream = io.StringIO()
    console = Console(file=stream, width=_WIDTH, color_system=None, highlight=False)
    for block in blocks:
        console.print(block)
        console.print()
    return "\n".join(line.rstrip() for line in stream.getvalue().rstrip().splitlines())


def _html(blocks: Iterable[RenderableType]) -> Iterator[str]:
    for block in blocks:
        if isinstance(block, Group):
            yield from _html(block.renderables)
        elif isinstance(block, Table):
            yield _table(block)
        else:
            yield f"<p>{_cell(block)}</p>"


def _table(table: Table) -> str:
    rows = zip(*(column.cells for column in table.columns), strict=True)
    parts = ["<table>"]
    if table.title:
        parts.append(f"<caption>{_cell(table.title)}</caption>")
    if table.show_header:
        heads = "".join(f"<th{_side(column)}>{_cell(column.header)}</th>" for column in table.columns)
        parts.append(f"<thead><tr>{heads}</tr></thead>")
    parts.append("<tbody>")
    for row in rows:
        cells = zip(row, table.columns, strict=True)
        parts.append(
            f"<tr>{''.join(f'<td{_side(column)}>{_cell(cell)}</td>' for cell, column in cells)}</tr>"
        )
    parts.append("</tbody></table>")
    return "".join(parts) + (f"<p>{_cell(table.caption)}</p>" if table.caption else "")


def _side(column: Column) -> str:
    return f' style="text-align: {column.justify}"'


def _cell(content: RenderableType) -> str:
    """Escaped text of a cell, whose markup is for terminals."""
    plain = Text.from_markup(content).plain if isinstance(content, str) else as_text([content])
    return escape(plain)
