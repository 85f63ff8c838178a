"""`dse whatif colocate`: two jobs that share one device, and how much each slows the other down."""

from __future__ import annotations

import sys

from phaze.cli.derived_options import takes
from phaze.inputs.options.whatif_options import WhatIfColocateOptions


@takes(WhatIfColocateOptions)
def command(options: WhatIfColocateOptions) -> None:
    """Tell how training on one device and passes of another model beside it slow each other down.

    Examples:
        dse whatif colocate --arch h100 --workload bert-large --global-batch 64 --beside resnet50,gpt2-xl
        dse whatif colocate --arch h100 --workload bert-large --global-batch 64 --beside gpt2-xl --beside-mode decode \
            --beside-batch 8 --json

    Exit codes: 3

    See also: dse whatif bubbles for other work while a pipeline waits; dse plan for the plan alone.
    """
    from phaze.cli.console_output import console, print_json, progress
    from phaze.inputs.plan_inputs import colocate_answer
    from phaze.inputs.recorded.recorded_question import record_question
    from phaze.report.terminal.plans.colocation_tables import print_colocation
    from phaze.runs.run_directory import kept_answer

    with kept_answer(options.out) as keep, progress(quiet=options.quiet, phase="planning"):
        found = colocate_answer(options)
        document = record_question(found, "whatif colocate", options, ["dse", *sys.argv[1:]])
        keep(document)
    if options.json:
        print_json(document)
    else:
        print_colocation(document, console())
