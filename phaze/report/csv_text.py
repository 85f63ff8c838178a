"""Rows as CSV text."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from phaze.explore.request.design_metrics import Row


def to_csv(rows: Sequence[Row]) -> str:
    """One line per design; the header names every column with its unit."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n", restval="")
    writer.writeheader()
    writer.writerows(dict(row) for row in rows)
    return text.getvalue()
