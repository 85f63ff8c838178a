"""The verbs as functions of Python, an argument for every option.

Type checkers and editors read `verbs.pyi`, which `python -m phaze.cli.manual.python_stub` writes from the models.
"""

from __future__ import annotations

from phaze.api import evaluation_verbs, planning_verbs, search_verbs
from phaze.api.at_hand import arguments_at_hand
from phaze.api.python_arguments import with_arguments
from phaze.inputs.options.plan_options import CompareOptions, EvaluateOptions, PlanOptions, PlanPoolsOptions
from phaze.inputs.options.search_options import RunOptions, SweepOptions
from phaze.inputs.options.serving_options import PlanServingOptions
from phaze.inputs.options.whatif_options import (
    WhatIfBubblesOptions,
    WhatIfColocateOptions,
    WhatIfFailuresOptions,
    WhatIfOptions,
)
from phaze.inputs.run_inputs import is_of_services

explore = with_arguments(RunOptions, search_verbs.explore)
explore_service = with_arguments(RunOptions, search_verbs.explore_service, wanted=is_of_services)
sweep = with_arguments(SweepOptions, search_verbs.sweep)
evaluate = with_arguments(EvaluateOptions, evaluation_verbs.evaluate, arguments_at_hand)
compare = with_arguments(CompareOptions, evaluation_verbs.compare, arguments_at_hand)
plan = with_arguments(PlanOptions, planning_verbs.plan, arguments_at_hand)
plan_pools = with_arguments(PlanPoolsOptions, planning_verbs.plan_pools, arguments_at_hand)
whatif = with_arguments(WhatIfOptions, planning_verbs.whatif, arguments_at_hand)
whatif_bubbles = with_arguments(WhatIfBubblesOptions, planning_verbs.whatif_bubbles, arguments_at_hand)
whatif_colocate = with_arguments(WhatIfColocateOptions, planning_verbs.whatif_colocate, arguments_at_hand)
whatif_failures = with_arguments(WhatIfFailuresOptions, planning_verbs.whatif_failures, arguments_at_hand)
plan_serving = with_arguments(PlanServingOptions, planning_verbs.plan_serving, arguments_at_hand)
