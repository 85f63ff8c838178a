"""Plots that answer to a pointer: Plotly figures as data, drawn by the script of the page in its own colours."""

from __future__ import annotations

from html import escape
from typing import Any

from phaze.report.page.markup import Html, data, join, tag


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
