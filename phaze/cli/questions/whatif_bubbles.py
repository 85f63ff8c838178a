"""`dse whatif bubbles`: when devices of a pipeline wait for one another, and what other work would do with it."""

from __future__ import annotations

import sys

from phaze.cli.derived_options import takes
from phaze.inputs.options.whatif_options import WhatIfBubblesOptions


@takes(WhatIfBubblesOptions)
def command(options: WhatIfBubblesOptions) -> None:
    """Tell the bubbles of the best plan, stage by stage, and what forward passes of other models would recover of them.

    Examples:
        dse whatif bubbles --arch h100 --workload gpt3 --devices 1024 --pipeline-parallel 16 --schedule 1f1b
        dse whatif bubbles --arch h100 --workload gpt3 --devices 1024 --pipeline-parallel 16 --schedule gpipe --fill \
            bert-large,resnet50 --switch 1ms --json

    Exit codes: 3

    See also: dse plan for the plan alone; dse whatif --vary schedule=1f1b,zb-h1 for schedules with smaller bubbles.
    """
    from phaze.cli.console_output import console, print_json, progress
    from phaze.inputs.plan_inputs import bubbles_answer
    from phaze.inputs.recorded.recorded_question import record_question
    from phaze.report.terminal.plans.bubble_tables import print_bubbles
    from phaze.runs.run_directory import kept_answer

    with kept_answer(options.out) as keep, progress(quiet=options.quiet, phase="planning"):
        found = bubbles_answer(options)
        document = record_question(found, "whatif bubbles", options, ["dse", *sys.argv[1:]])
        keep(document)
    if options.json:
        print_json(document)
    else:
        print_bubbles(document, console())
