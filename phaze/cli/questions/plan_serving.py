"""`dse plan serving`: the best way to serve requests on a cluster."""

from __future__ import annotations

import sys

from phaze.cli.derived_options import takes
from phaze.inputs.options.serving_options import PlanServingOptions


@takes(PlanServingOptions)
def command(options: PlanServingOptions) -> None:
    """Plan the serving of a model: replicas, batches, chunks, pools, within latency targets.

    Without --rate, the most that the devices can serve; with it, the fewest devices that serve it.

    Examples:
        dse plan serving --arch h100 --workload llama3-70b --max-ttft 1s --max-tpot 50ms
        dse plan serving --arch h100 --workload llama3-8b --devices 4 --rate 20 --simulate 500 --json

    Exit codes: 3

    See also: dse plan for training; dse evaluate --mode decode for one batch.
    """
    from phaze.cli.console_output import console, print_json, progress
    from phaze.inputs.recorded.recorded_question import record_question
    from phaze.inputs.serving_inputs import serving_answer
    from phaze.report.terminal.plans.serving_tables import print_serving
    from phaze.runs.run_directory import kept_answer

    with kept_answer(options.out) as keep, progress(quiet=options.quiet, phase="planning"):
        space, (plan, tried, found) = serving_answer(options)
        document = record_question(found, "plan serving", options, ["dse", *sys.argv[1:]])
        keep(document)
    if options.json:
        print_json(document)
    else:
        print_serving(plan, space, tried, console(), document.cost)
