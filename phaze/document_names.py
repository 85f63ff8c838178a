"""Names of the documents that we write for others.

Two prefixes are in use, since a name that was published stays. `solvers` names the formats of the instances it reads.
"""

from __future__ import annotations

from enum import StrEnum


class DocumentName(StrEnum):
    """Name of a kind of document, without a version."""

    RESULT = "phaze-result"
    SWEEP = "phaze-sweep"
    COMPARE = "phaze-compare"
    PLAN = "dse-plan"
    SERVING = "dse-serving"
    WHATIF = "dse-whatif"
    FLEET = "dse-fleet"
    GRAPH = "dse-graph"
    CERTIFY = "phaze-certify"
    EXPLANATION = "phaze-explanation"
    ROBUSTNESS = "phaze-robustness"
    DIFF = "phaze-diff"
    VALIDATE = "phaze-validate"
    CALIBRATE = "phaze-calibrate"
    DESIGNS = "phaze-designs"
    FRONTIER = "phaze-frontier"
    CACHE = "phaze-cache"

    def version(self, number: int) -> str:
        """What a document of that version says of itself, as its `schema` or `format`."""
        return f"{self.value}/{number}"


class FrontierFormat(StrEnum):
    """How a frontier is written: a table, a document, a page or a picture."""

    CSV = "csv"
    JSON = "json"
    PARQUET = "parquet"
    HTML = "html"
    SVG = "svg"


class TraceFormat(StrEnum):
    """How one iteration is written: events (Perfetto, chrome://tracing), or a picture."""

    JSON = "json"
    SVG = "svg"
