"""One run of HiGHS on an order model, and the plan that its orders and modes make."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from ..indexed import Core
from ..plan import Plan
from .model import OrderModel
from .plan import follow

FEASIBILITY = 1e-9
"""What HiGHS may break a row by, relative to the incumbent: summed along a path, far below `TOLERANCE`."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The plan found (cores only where named; None: none), the proven bound (s), and nodes of the search.

    A bound of inf says that the program has no solution: nothing beats the incumbent.
    """

    plan: Plan | None
    bound_s: float
    nodes: int


def solve_model(order: OrderModel, time_limit_s: float) -> Answer:
    """Solve the program as it stands."""
    from pyomo.contrib.solver.common.results import TerminationCondition
    from pyomo.contrib.solver.solvers.highs import Highs

    solver = Highs()
    solver.config.time_limit = time_limit_s
    solver.config.threads = 1
    solver.config.load_solutions = False
    solver.config.raise_exception_on_nonoptimal_result = False
    solver.config.rel_gap = 0.0
    solver.config.solver_options = {
        "primal_feasibility_tolerance": FEASIBILITY,
        "mip_feasibility_tolerance": FEASIBILITY,
    }
    results = solver.solve(order.model)
    nodes = max(0, getattr(results.extra_info, "mip_node_count", 0))
    if results.termination_condition is TerminationCondition.provenInfeasible:
        return Answer(None, inf, nodes)
    bound = results.objective_bound
    bound_s = 0.0 if bound is None or bound == -inf else bound * order.unit_s
    if results.incumbent_objective is None:
        return Answer(None, bound_s, nodes)
    results.solution_loader.load_vars()
    return Answer(_plan(order), bound_s, nodes)


def _plan(order: OrderModel) -> Plan:
    ix, model = order.ix, order.model
    modes = [max((model.mode[i, m].value or 0.0, m) for m in row)[1] for i, row in enumerate(order.alive)]
    cores: list[tuple[Core, ...]] = [()] * ix.size
    if ix.pair is not None:
        held = [key for key, var in model.holds.items() if round(var.value or 0.0) == 1]
        cores = [tuple((u, k) for j, u, k in held if j == i) for i in range(ix.size)]
    before = [0] * ix.size
    for (i, j), var in model.before.items():
        before[j] |= (round(var.value or 0.0) == 1) << i
    return follow(ix, modes, cores, [own | more for own, more in zip(ix.preds, before, strict=True)])
