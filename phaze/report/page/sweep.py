"""The page of a sweep: what was sampled, and what none of it beats."""

from __future__ import annotations

from collections.abc import Sequence

from phaze.explore.documents.result_document import Manifest
from phaze.explore.request.design_metrics import Row
from phaze.report import format as fmt
from phaze.report.figures.answer import tiled
from phaze.report.figures.inputs import repeat
from phaze.report.figures.plane import AXES, POWER, THROUGHPUT, Marks, plane
from phaze.report.page.frame import Frame, kicker, render
from phaze.report.page.markup import Section, join, paragraph, tag, text

_TOLD = "A sweep samples: it proves nothing of the designs between its trials. For a proof ask dse run."


def sweep_page(name: str, manifest: Manifest, designs: Sequence[Row], frontier: Sequence[str]) -> str:
    """The file: `designs` that were evaluated, ids of those on the `frontier`. All texts are escaped."""
    edge = sorted((row for row in designs if row["id"] in set(frontier)), key=lambda row: float(row[POWER]))
    others = [row for row in designs if row["id"] not in set(frontier)]
    fastest = max(designs, key=lambda row: float(row[THROUGHPUT]))
    words = (
        f" designs of {len(designs):,} that fit are beaten by no other. The fastest is {fastest['id']}: "
        f"{fmt.number(fastest[THROUGHPUT])} samples/s with {fmt.number(fastest[POWER])} W."
    )
    figures = [
        ("evaluated", f"{len(designs):,}", "designs that fit"),
        ("frontier", f"{len(edge):,}", "designs"),
    ]
    for axis in AXES[:3]:
        values = [float(row[axis.key]) for row in edge]
        figures.append(
            (axis.name, f"{fmt.number(min(values))} to {fmt.number(max(values))}", "on the frontier")
        )
    drawn = plane(Marks(edge, others), AXES, POWER, THROUGHPUT)
    return render(
        Frame(
            title=f"{name}: a sweep",
            kicker=kicker(name, manifest.started_utc),
            heading="A sweep of designs",
            answer=join([tag("strong", f"{len(edge):,}"), text(words)], ""),
            figures=tiled(figures),
            sections=[
                Section("frontier", "Frontier", join([paragraph(_TOLD), drawn])),
                repeat(manifest),
            ],
        )
    )
