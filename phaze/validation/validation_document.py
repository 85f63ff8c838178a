"""Report of `dse validate`, and what other models score on the same data sets."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from functools import lru_cache
from importlib import resources
from typing import Literal

from pydantic import Field, TypeAdapter

from phaze.cost.fidelity import Fidelity
from phaze.explore.documents.document_record import Record
from phaze.validation.data_set_registry import Metric
from phaze.yaml_file import parse_yaml


class Source(StrEnum):
    """Where a peer's figure comes from."""

    CLAIMED = "claimed"
    RECOMPUTED = "recomputed"
    RUN = "run"


class Peer(Record):
    """Mean absolute percentage errors of another model on the published and on the held-out half of a set."""

    peer: str = Field(description="its name")
    kind: Source = Field(description="where the errors come from")
    published: float | None = Field(
        default=None, description="percent, on the half of the rows that is published"
    )
    held_out: float | None = Field(default=None, description="percent, on the other half")


@lru_cache(maxsize=1)
def peers() -> Mapping[str, tuple[Peer, ...]]:
    """Peers by data set."""
    text = resources.files("phaze.validation").joinpath("peers.yaml").read_text(encoding="utf-8")
    content = parse_yaml(text, "validation/peers.yaml")
    return TypeAdapter(dict[str, tuple[Peer, ...]]).validate_python(content)


class Comparison(Record):
    """One data set, one metric, one rung; errors in percent of the measured values, null without rows."""

    name: str = Field(description="Data set: stem of its file.")
    metric: Metric = Field(description="What is compared.")
    rung: Fidelity = Field(description="Rung of the model.")
    rows: int = Field(description="Rows compared.")
    excluded: int = Field(description="Rows of the file left out; with `rows` all of them.")
    excluded_reasons: dict[str, int] = Field(description="Rows left out, by reason.")
    assumed: int = Field(
        default=0,
        description="Rows of `rows` that leave some of a training plan open; the fastest that fits counts.",
    )
    mape_pct: float | None = Field(description="Mean absolute percentage error.")
    median_ape_pct: float | None = Field(description="Median absolute percentage error.")
    p90_ape_pct: float | None = Field(description="90th percentile of absolute percentage errors.")
    bias_pct: float | None = Field(description="Mean signed percentage error; below 0: predicted too small.")
    rank_correlation: float | None = Field(description="Spearman's rank correlation.")
    roofline_mape_pct: float | None = Field(description="The roofline's mean absolute percentage error.")
    threshold_pct: float | None = Field(description="Largest `mape_pct` that passes; null: none set.")
    f1: float | None = Field(
        default=None,
        description="Of yes or no: twice the rows rightly called yes over those called so and those that are.",
    )
    least_f1: float | None = Field(default=None, description="Least `f1` that passes; null: none set.")
    peers: tuple[Peer, ...] = Field(
        default=(), description="Errors of other models on the same set, on its published and held-out half."
    )

    unseen_pct: dict[str, float] = Field(
        default={},
        description="Mean absolute percentage errors on what was left out of the fit in turn (`--leave-out`): each "
        "run, device, source or framework.",
    )
    unseen_most: dict[str, str] = Field(
        default={},
        description="What adds most to each of these: whose rows, from which error by fitted constants to which, and "
        "what the constants were fitted to instead.",
    )

    @property
    def title(self) -> str:
        """Name of the set, and of the metric where that is not a latency."""
        return self.name if self.metric is Metric.LATENCY else f"{self.name} {self.metric.value}"

    @property
    def passed(self) -> bool:
        """Whether the error is within its threshold, where it has one."""
        if self.f1 is not None:
            return self.least_f1 is None or self.f1 >= self.least_f1
        if self.threshold_pct is None or self.mape_pct is None:
            return True
        return self.mape_pct <= self.threshold_pct + 1e-9


class ValidationReport(Record):
    """All comparisons of one folder of measurements."""

    schema_: Literal["phaze-validate/1"] = Field(default="phaze-validate/1", alias="schema")
    sets: tuple[Comparison, ...]
    not_compared: tuple[str, ...] = Field(
        description="Files of the folder that the model is not compared with."
    )

    @property
    def passed(self) -> bool:
        """Whether no comparison exceeds its threshold."""
        return all(comparison.passed for comparison in self.sets)
