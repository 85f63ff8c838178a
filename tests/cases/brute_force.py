"""Every architecture of a small space evaluated on its own, and an answer held against all of them."""

from __future__ import annotations

import numpy as np
import pytest

from phaze.errors import InfeasibleError
from phaze.explore.answers.main_job import evaluate
from phaze.hardware.budgets import weigh


def brute_force(task, space, power_w):
    """(tdp, throughput, id) of every architecture that keeps the budget and fits, each evaluated on its own."""
    found = []
    allowed = weigh(space.table(), power_w).kept
    for row in np.flatnonzero(allowed):
        try:
            design = evaluate(task, space.architecture(int(row)))
        except InfeasibleError:
            continue
        result = design.workloads[task.workload.name]
        found.append((design.tdp_w, result.throughput_samples_per_s, design.id))
    return found


def pareto(points):
    best, steps = 0.0, []
    for tdp, throughput, _ in sorted(points, key=lambda p: (p[0], -p[1])):
        if throughput > best:
            best = throughput
            steps.append((tdp, throughput))
    return steps


def check(answer, everything):
    certificate = answer.document.certificate
    assert certificate.optimal
    assert certificate.gap == 0
    assert certificate.frontier_complete
    assert certificate.space_size == certificate.over_budget + certificate.pruned + certificate.evaluated
    assert sum(certificate.pruned_by.values()) == certificate.pruned
    best = max(throughput for _, throughput, _ in everything)
    assert certificate.objective_value == pytest.approx(best, rel=1e-9)
    steps = [(p.tdp_w, p.throughput_samples_per_s) for p in answer.document.frontier]
    np.testing.assert_allclose(np.array(steps), np.array(pareto(everything)), rtol=1e-9)
