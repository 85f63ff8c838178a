"""The verbs as functions of Python, an argument for every option.

Type checkers and editors read `verbs.pyi`, which `python -m phaze.cli.manual.python_stub` writes from the models.
"""

from __future__ import annotations

from phaze.api import evaluation_verbs, search_verbs
from phaze.api.python_arguments import with_arguments
from phaze.inputs.option_models import CompareOptions, EvaluateOptions, PlanOptions, RunOptions, SweepOptions

explore = with_arguments(RunOptions, search_verbs.explore)
sweep = with_arguments(SweepOptions, search_verbs.sweep)
evaluate = with_arguments(EvaluateOptions, evaluation_verbs.evaluate)
compare = with_arguments(CompareOptions, evaluation_verbs.compare)
plan = with_arguments(PlanOptions, evaluation_verbs.plan)
