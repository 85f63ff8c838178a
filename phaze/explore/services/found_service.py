"""What was found for a service."""

from __future__ import annotations

from dataclasses import dataclass

from phaze.explore.documents.serving_document import ServingDocument
from phaze.explore.services.pair_search import FoundPair
from phaze.parallel.serving import ServingPlan, ServingSpace


@dataclass(frozen=True)
class FoundService:
    """The best plan, the space of plans of its chip, and both as a document; the best pair of chips, if asked for."""

    plan: ServingPlan
    space: ServingSpace
    document: ServingDocument
    pair: FoundPair | None = None
