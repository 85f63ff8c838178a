"""An answer of the main job, and what it is made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from phaze.explore.answers.certificate_counts import PointCounts
from phaze.explore.certified.search_state import Reached
from phaze.explore.documents.result_document import ResultDocument
from phaze.explore.evaluation.evaluation_oracle import Evaluation


@dataclass(frozen=True)
class Answer:
    """The result document, and every evaluated architecture as columns of equal length."""

    document: ResultDocument
    designs: dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Shown:
    """Evaluated points that are shown, what each reaches on the axes, and the places of the frontier among them."""

    rows: Sequence[Evaluation]
    reached: Sequence[Reached]
    frontier: Sequence[int]


@dataclass(frozen=True)
class Proof:
    """What is proven: objectives that others may reach at most, counts of points, whether no other one can matter."""

    hoped: Sequence[float]
    counts: PointCounts
    complete: bool
