"""The re-check of one run, by what it was asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from phaze.explore.certifying.any_axes import AxesCertification
from phaze.explore.certifying.document import CertifyReport
from phaze.explore.certifying.leaves import Leaves, told
from phaze.explore.certifying.throughput_power import Certification
from phaze.explore.certifying.whole import question_unchanged
from phaze.explore.document import ResultDocument
from phaze.explore.lean_search import within_winner
from phaze.explore.progress import Progress, Silent
from phaze.explore.request import ExploreRequest


def question_changed(name: str, document: ResultDocument, seed: int) -> CertifyReport | None:
    """The report on a run whose manifest asks another question than its hash says: nothing else can be judged."""
    check = question_unchanged(document)
    if check.passed:
        return None
    rest = sorted({told(path) for path in Leaves.of(document).claimed})
    return CertifyReport(run=name, passed=False, checks=[check], samples=[], seed=seed, unchecked=rest)


def certify(
    name: str,
    request: ExploreRequest,
    document: ResultDocument,
    designs: Sequence[Mapping[str, Any]],
    samples: int,
    seed: int,
    progress: Progress | None = None,
) -> CertifyReport:
    """All checks of the run called `name`, its answer `document` to `request` and its design table.

    `samples`: architectures that are evaluated beyond those of the run, picked by `seed`.
    """
    kind = AxesCertification if request.over_axes else Certification
    asked = within_winner(request, document)
    return kind(name, asked, document, designs, samples, seed, progress or Silent()).report()
