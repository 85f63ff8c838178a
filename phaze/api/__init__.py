"""phaze from Python: the verbs of the command line as functions, with typed results that show themselves."""

from __future__ import annotations

from phaze.api.catalogue_verbs import (
    archs,
    frameworks,
    networks,
    plans,
    solve_fleet,
    solve_layers,
    solve_placement,
    solve_schedule,
    spaces,
    workloads,
)
from phaze.api.evaluation_verbs import Compared, Evaluated, Validated, validate
from phaze.api.planning_verbs import Planned, PlannedPools, PlannedServing, Varied, export
from phaze.api.record_verbs import (
    Certified,
    Differed,
    Explained,
    ParetoFront,
    certify,
    diff,
    explain,
    pareto,
    replay,
    report,
    trace,
)
from phaze.api.result_tables import Table
from phaze.api.search_verbs import Explored, Swept
from phaze.api.verbs import (
    compare,
    evaluate,
    explore,
    plan,
    plan_pools,
    plan_serving,
    sweep,
    whatif,
    whatif_failures,
)

__all__ = [
    "Certified",
    "Compared",
    "Differed",
    "Evaluated",
    "Explained",
    "Explored",
    "ParetoFront",
    "Planned",
    "PlannedPools",
    "PlannedServing",
    "Swept",
    "Table",
    "Validated",
    "Varied",
    "archs",
    "certify",
    "compare",
    "diff",
    "evaluate",
    "explain",
    "explore",
    "export",
    "frameworks",
    "networks",
    "pareto",
    "plan",
    "plan_pools",
    "plan_serving",
    "plans",
    "replay",
    "report",
    "solve_fleet",
    "solve_layers",
    "solve_placement",
    "solve_schedule",
    "spaces",
    "sweep",
    "trace",
    "validate",
    "whatif",
    "whatif_failures",
    "workloads",
]
