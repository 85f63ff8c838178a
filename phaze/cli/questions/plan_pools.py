"""`dse plan pools`: the best way to train a workload on pools of unlike devices."""

from __future__ import annotations

import sys

from phaze.cli.derived_options import takes
from phaze.inputs.options.plan_options import PlanPoolsOptions


@takes(PlanPoolsOptions)
def command(options: PlanPoolsOptions) -> None:
    """Find the best training plan on pools of unlike devices, with a bound: on one pool, or stage by stage across them.

    Examples:
        dse plan pools --fleet fleet.yaml --workload gpt3-xl --global-batch 256
        dse plan pools --fleet fleet.yaml --workload gpt3-xl --objective cost_per_sample --json

    Exit codes: 3

    See also: dse plan for devices that are all alike.
    """
    from phaze.cli.console_output import console, print_json, progress
    from phaze.inputs.fleet_inputs import fleet_answer
    from phaze.inputs.recorded.recorded_question import record_question
    from phaze.report.terminal.plans.fleet_tables import print_fleet
    from phaze.runs.run_directory import kept_answer

    with kept_answer(options.out) as keep, progress(quiet=options.quiet, phase="planning"):
        document = record_question(fleet_answer(options), "plan pools", options, ["dse", *sys.argv[1:]])
        keep(document)
    if options.json:
        print_json(document)
    else:
        print_fleet(document, console())
