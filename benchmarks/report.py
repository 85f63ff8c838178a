"""What one part of the benchmark found, and the files it becomes."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path


@dataclass(frozen=True)
class Report:
    """Tables in Markdown, the rows behind them, pictures (SVG by name)."""

    name: str
    text: str
    rows: Sequence[Mapping[str, object]]
    pictures: Mapping[str, str] = field(default_factory=dict)


def machine() -> str:
    """Where and when the numbers come from."""
    where = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    return f"{datetime.now(UTC):%B %Y}, {where}"


def rows_of(file: Path, name: str) -> list[dict[str, object]]:
    """Rows of a report that `write` wrote as JSON before; none without the file."""
    if not file.exists():
        return []
    rows: list[dict[str, object]] = json.loads(file.read_text(encoding="utf-8"))[name]
    return rows


def write(reports: Sequence[Report], out: Path) -> None:
    """To one .json or .md file; otherwise `out` is a folder and gets an .md and a .json per report.

    Pictures stand beside the Markdown that shows them.
    """
    if out.suffix == ".json":
        _write(out, _json(reports))
    elif out.suffix == ".md":
        _write(out, "\n".join([*(report.text for report in reports), f"Measured: {machine()}", ""]))
        _write_pictures(reports, out.parent)
    else:
        for report in reports:
            _write(out / f"{report.name}.md", f"{report.text}\nMeasured: {machine()}\n")
            _write(out / f"{report.name}.json", _json([report]))
        _write_pictures(reports, out)


def _json(reports: Sequence[Report]) -> str:
    document = {"measured": machine(), **{report.name: list(report.rows) for report in reports}}
    return json.dumps(document, indent=1) + "\n"


def _write_pictures(reports: Sequence[Report], folder: Path) -> None:
    for report in reports:
        for name, picture in report.pictures.items():
            _write(folder / name, picture)


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
