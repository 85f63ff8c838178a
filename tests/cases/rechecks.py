"""Re-checks of many documents that differ in what they claim, each of which works the same things out again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from phaze.explore.recheck import certify_run, document_recheck


class Known:
    """What was worked out before, by its name and what it depends on."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, str], Any] = {}

    def get(self, work: Callable[..., Any], depends_on: object, *given: Any, **options: Any) -> Any:
        """What `work` finds of what is given."""
        key = work.__name__, repr(depends_on)
        if key not in self._kept:
            self._kept[key] = work(*given, **options)
        return self._kept[key]


def work_out_once(patch: pytest.MonkeyPatch, known: Known) -> None:
    """Work out once what depends on nothing that a document of one run claims but hardware, settings and the winner."""
    whole, points = document_recheck.DocumentRecheck, document_recheck.DocumentRecheck._points
    patch.setattr(whole, "_points", lambda own, block, rows: known.get(points, rows, own, block, rows))
    for home, name in ((document_recheck, "placed"), (certify_run, "evaluate")):
        work = getattr(home, name)
        patch.setattr(home, name, lambda *a, work=work, **b: known.get(work, [*a, b], *a, **b))
    for name in ("comparisons", "left_out"):
        work = getattr(document_recheck, name)
        patch.setattr(
            document_recheck,
            name,
            lambda request, best, *a, work=work: known.get(work, best.id, request, best, *a),
        )
