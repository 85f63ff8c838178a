"""No measured run has a plan that its framework is said not to run."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from phaze.cost.fidelity import Fidelity
from phaze.parallel.parallel_plan import ParallelPlan
from phaze.parallel.plan_choices import Cut, chosen
from phaze.validation.data_set_registry import DATA_SETS, Metric
from phaze.validation.measured.measurement_columns import read_columns
from phaze.validation.measured.measurement_schemas import TABLES
from phaze.validation.measured.published_runs import PublishedRun, PublishedRuns, estimator
from phaze.validation.model_validation import data_files
from phaze.validation.own import own_tables

FOLDER = os.environ.get("DSE_DATA")
SETS = [s for s in DATA_SETS if s.metric in (Metric.TIME, Metric.MEMORY)]


class CollectedError(Exception):
    """A set has told all its runs."""


@pytest.mark.skipif(not FOLDER, reason="DSE_DATA is not set")
def test_every_measured_plan_is_one_of_its_framework(monkeypatch):
    runs: list[PublishedRun] = []

    def stop(_self: PublishedRuns) -> None:
        raise CollectedError

    monkeypatch.setattr(PublishedRuns, "keep", lambda _self, run: runs.append(run))
    monkeypatch.setattr(PublishedRuns, "judge", stop)
    files = own_tables() | data_files(Path(str(FOLDER)))
    for one in SETS:
        columns = read_columns(files[one.name], TABLES[one.name])
        try:
            one.judge(columns)
        except CollectedError:
            continue
    refused = Counter(why for run in runs for why in refusals(run))
    assert len(runs) > 1000
    assert not refused


def refusals(run: PublishedRun) -> Iterator[str]:
    """Why the framework does not run the plan, or one of those it may have been."""
    plans, name = run.framework.plans, run.framework.name
    for strategy in (run.strategy, *run.others):
        if (why := plans.refusal(chosen(strategy))) is not None:
            yield f"{name}: {why}"
        if plans.ragged is False and run.cluster.global_batch % (
            strategy.microbatch * strategy.data_parallel
        ):
            yield f"{name}: {strategy.data_parallel} replicas"
        if plans.stages is Cut.EQUAL and len(set(blocks(run, strategy))) > 1:
            yield f"{name}: unequal stages"


def blocks(run: PublishedRun, strategy: ParallelPlan) -> list[int]:
    alone = strategy.pipeline_parallel == 1
    return [] if alone else estimator(run, Fidelity.ANALYTIC).division(strategy).blocks.tolist()
