"""Writes a Gantt chart in the format its file name asks for."""

from __future__ import annotations

from pathlib import Path

from phaze.errors import InputError
from phaze.report import gantt_html, gantt_svg
from phaze.report.gantt import Gantt
from phaze.runs.atomic_files import check_writable, write_atomically

_DRAW = {".svg": gantt_svg.draw, ".html": gantt_html.draw}


def check_gantt_file(path: Path) -> None:
    """Find out before the work: InputError for a suffix other than .svg and .html, or a place nobody can write."""
    if path.suffix.lower() not in _DRAW:
        raise InputError(f"--gantt {path}: the name must end in {' or '.join(_DRAW)}")
    check_writable(path)


def write_gantt(chart: Gantt, path: Path) -> None:
    """Draw a chart into a file, whole or not at all. Raises InputError as `check_gantt_file` does."""
    check_gantt_file(path)
    write_atomically(path, _DRAW[path.suffix.lower()](chart))
