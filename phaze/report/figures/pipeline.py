"""One iteration in time: every pass of every microbatch through every stage."""

from __future__ import annotations

from collections.abc import Iterator

from phaze.report.figures.contents import Contents, by_workload
from phaze.report.figures.plan import one_iteration
from phaze.report.page.markup import Section


def pipeline(contents: Contents) -> Iterator[Section]:
    """The iterations that could be played again."""
    if contents.plans:
        results = contents.document.best.workloads
        told = {name: results[name].placement.plan for name in contents.plans}
        body = by_workload(
            (name, one_iteration(record, contents.plans[name])) for name, record in told.items() if record
        )
        yield Section("iteration", "One iteration", body)
