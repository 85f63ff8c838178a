"""What a search without proof reports: how it went, and how far from the certified optimum it ended."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from phaze.explore.record import Record


class Stop(StrEnum):
    """What ended a search."""

    CONVERGED = "converged"  # its own rule
    EVALUATIONS = "evaluations"  # the budget of evaluations
    TIME = "time"
    EXHAUSTED = "exhausted"  # nothing left to try


class Improvement(Record):
    """A new best value and what it had cost by then."""

    evaluation: int = Field(description="architectures evaluated, this one included")
    elapsed_s: float = Field(description="since the search began; architectures evaluated together share it")
    value: float = Field(description="the objective, to be maximised")


class Distance(Record):
    """How far a search ended from what is certified for the same space, budgets and objective."""

    certified: float = Field(description="objective of the certified answer")
    upper_bound: float = Field(description="no point of the space is better")
    proven: bool = Field(description="whether the certified answer is the optimum: it equals the upper bound")
    share: float = Field(description="(certified - best) / certified; 1 where nothing feasible was found")


class StrategyReport(Record):
    """The course of one search."""

    strategy: str
    seed: int = Field(description="of its random choices; without effect where there are none")
    evaluations: int = Field(description="architectures evaluated; those over a budget cost nothing")
    runtime_s: float
    best_value: float | None = Field(
        description="the objective, to be maximised; null where nothing feasible"
    )
    history: list[Improvement] = Field(description="the evaluations that were better than all before")
    stopped: Stop
    distance: Distance | None = Field(default=None, description="null where no certified answer is known")
    figures: dict[str, float] = Field(default_factory=dict, description="what only this strategy can tell")
