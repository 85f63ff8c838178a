"""Pieces of HTML that every section is made of, plots that answer to a pointer among them. Whatever is text comes in
plain and is escaped here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from html import escape as _escape
from typing import Any

_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")

_VOID = frozenset({"input"})  # of the elements used here, those without an end


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Section:
    """One section: `anchor` is its place in the page, `title` stands in the table of contents, too."""

    anchor: str
    title: str
    body: Html


@dataclass(frozen=True, slots=True)
class Bar:
    """One part of a bar: its share of the full width, and the class that colours it."""

    share: float
    look: str
    label: str = ""


def text(value: object) -> Html:
    """Escaped text, quotes too; what no page can hold becomes a replacement character. HTML stays as it is."""
    if isinstance(value, Html):
        return value
    return Html(_escape(_UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", str(value))))


def join(parts: Iterable[Html], between: str = "\n") -> Html:
    """Pieces of HTML one after the other."""
    return Html(between.join(parts))


def tag(name: str, *content: object, **attributes: object) -> Html:
    """An element; `look` is its class, underscores in names of attributes are dashes, None leaves one out."""
    told = "".join(
        f' {"class" if key == "look" else key.rstrip("_").replace("_", "-")}="{text(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    inside = "".join(text(part) for part in content)
    return Html(f"<{name}{told}>" if name in _VOID else f"<{name}{told}>{inside}</{name}>")


def paragraph(*content: object) -> Html:
    """A paragraph."""
    return tag("p", *content)


def table(
    heads: Sequence[str], rows: Iterable[Sequence[object]], *, caption: str = "", look: str = ""
) -> Html:
    """A table whose first column names the rows; it scrolls by itself where it is wider than the page.

    A head that begins with `<` stands to the left, as texts do.
    """
    top = tag("caption", caption) if caption else Html("")
    if any(heads):
        cells = join((_head(head) for head in heads), "")
        top = Html(top + tag("thead", tag("tr", cells)))
    body = join(
        tag(
            "tr",
            tag("th", row[0], scope="row"),
            *(cell if _is_cell(cell) else tag("td", cell) for cell in row[1:]),
        )
        for row in rows
    )
    inner = tag("table", top, tag("tbody", body), look=look or None)
    return tag("div", inner, look="scroll", tabindex="0", role="group", aria_label=caption or None)


def _head(head: str) -> Html:
    """The head of a column; `<` before its name sets it to the left."""
    left = head.startswith("<")
    return tag("th", head[left:], scope="col", look="left" if left else None)


def _is_cell(cell: object) -> bool:
    return isinstance(cell, Html) and cell.startswith("<td")


def bars(parts: Iterable[Bar]) -> Html:
    """A table cell with a bar of parts."""
    return tag("td", bar(parts), look="barcell")


def bar(parts: Iterable[Bar]) -> Html:
    """A bar of parts; it repeats figures that stand beside it, so it is not read aloud."""
    drawn = (
        tag(
            "i", look=part.look, style=f"width:{max(0.0, min(1.0, part.share)):.4%}", title=part.label or None
        )
        for part in parts
        if part.share > 0
    )
    return tag("div", *drawn, look="bar", aria_hidden="true")


def figure(picture: Html, caption: str, behind: Html | None = None, behind_name: str = "As a table") -> Html:
    """A picture with its caption and, folded away, the table it is drawn from."""
    folded = details(behind_name, behind) if behind else ""
    return tag("figure", picture, tag("figcaption", caption), folded)


def details(summary: object, body: Html, *, opened: bool = False, printed: bool = False) -> Html:
    """Something that unfolds; `printed`: by itself before it is printed."""
    look = "printed" if printed else None
    return tag("details", tag("summary", summary), body, look=look, open="open" if opened else None)


def legend(entries: Mapping[str, str]) -> Html:
    """Legend of the colours: name by class."""
    items = (tag("li", tag("i", look=look, aria_hidden="true"), name) for look, name in entries.items())
    return tag("ul", *items, look="legend")


def data(identifier: str, content: Any) -> Html:  # noqa: ANN401 - any JSON
    """JSON for the scripts of the page; nothing in it can end its element."""
    written = json.dumps(content, allow_nan=False, separators=(",", ":"))
    for sign in "<>&":
        written = written.replace(sign, f"\\u{ord(sign):04x}")
    return Html(f'<script type="application/json" id="{text(identifier)}">{written}</script>')


def download(name: str, content: str, words: str) -> Html:
    """A button that saves a text as NAME.csv; the text lies in the page."""
    button = tag("button", words, type="button", look="csv", data_csv=name)
    return tag("p", button, data(f"{name}-csv", content), look="download")


def pair(*parts: Html) -> Html:
    """Parts side by side where there is room, else one below the other."""
    return tag("div", *(tag("div", part) for part in parts), look="pair")


def plot(name: str, figure: dict[str, Any], description: str) -> Html:
    """The place of a plot and what is drawn there. A colour such as `--c1` is taken from the style of the page."""
    place = tag("div", look="plot", id=f"{name}-plot", role="img", aria_label=description, data_plot=name)
    return join([place, data(f"{name}-data", figure)])


def plain(value: object) -> str:
    """The text as Plotly shows it: it reads tags, and of the character references not those of quotes."""
    return escape(str(value), quote=False)


def rounded(value: float) -> float:
    """Six digits are more than a picture can show."""
    return float(f"{value:.6g}")
