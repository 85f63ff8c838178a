"""The outer loop: which settings (microbatch, width, recompute) are searched, and with which depth and cuts.

What a setting promises is told by a sample of the space: the best bound that any design of the sample has in it.
The most promising settings come first. Degrees, schedule and cuts are those of the best plan of that design.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from phaze.explore.candidates import Block, Candidates
from phaze.explore.evaluator import Evaluator, FoundPlan
from phaze.explore.setting import Setting
from phaze.explore.wham.metric import Target
from phaze.scheduling.passes import Effort
from phaze.solvers.placement.mixed import Goal

LOOKED_AT = 4096
SAMPLE = 128


@dataclass(frozen=True, slots=True)
class Promise:
    """What a setting can be worth at best on any design of the sample, and the `row` of that design."""

    setting: Setting
    value: float
    row: int


def sample(candidates: Candidates) -> Block:
    """Some candidates within the budgets, spread evenly over the space.

    Raises InfeasibleError where there is none.
    """
    spread = np.linspace(0, candidates.size - 1, min(LOOKED_AT, candidates.size)).astype(np.int64)
    block = candidates.within(np.unique(spread))
    if not len(block):
        block = next((b for b in candidates.blocks() if len(b)), block)
    if not len(block):
        raise candidates.none_left()
    rows = np.unique(np.linspace(0, len(block) - 1, min(SAMPLE, len(block))).astype(np.intp))
    return Block(block.numbers[rows], block.table.take(rows), block.tdp_w[rows], block.area_mm2[rows])


def promises(evaluator: Evaluator, block: Block, target: Target, effort: Effort) -> list[Promise]:
    """Settings that some design of the sample fits in, most promising first.

    Those with the least work are looked at first, and as many as half of the time that is left allows.
    """
    rows, batch, whole_s = np.arange(len(block)), evaluator.task.cluster.global_batch, effort.left_s()
    power_w = block.tdp_w if target.goal is Goal.ENERGY else np.ones(len(block))
    work_s = {one: evaluator.work_bound(one, evaluator.work_s(one)) for one in evaluator.settings}
    found: list[Promise] = []
    for setting in sorted(work_s, key=lambda one: float((work_s[one] * power_w).min())):
        if found and effort.left_s() < whole_s / 2:
            break
        value = batch / (evaluator.quick_bound(setting, rows) * power_w)
        best = int(value.argmax())
        if value[best] > 0:
            found.append(Promise(setting, float(value[best]), best))
    return sorted(found, key=lambda promise: (-promise.value, promise.setting.order))


def reference_plan(evaluator: Evaluator, promise: Promise, effort: Effort) -> FoundPlan | None:
    """The best plan of the design behind a promise, or None where none fits after all."""
    (found,) = evaluator.plans(promise.setting, np.array([promise.row]), np.array([np.inf]), effort)
    return found
