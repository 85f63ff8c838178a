"""`dse whatif failures`: what failures leave of a training, by the size of scale-up domains."""

from __future__ import annotations

import sys

from phaze.cli.derived_options import takes
from phaze.inputs.options.whatif_options import WhatIfFailuresOptions


@takes(WhatIfFailuresOptions)
def command(options: WhatIfFailuresOptions) -> None:
    """Plan for goodput in scale-up domains of several sizes: the blast radius of a failure.

    Examples:
        dse whatif failures --arch h100 --workload llama3-405b --devices 16384 --domain 8,32,72
        dse whatif failures --arch h100 --workload llama3-8b --devices 64 --on-failure ntp --domain 8,16 --json

    Exit codes: 3

    See also: dse plan --failures for one plan; dse whatif --failures --vary for anything else that varies.
    """
    from phaze.cli.console_output import console, print_json, progress
    from phaze.inputs.plan_inputs import failures_answer
    from phaze.inputs.recorded.recorded_question import record_question
    from phaze.report.terminal.plans.failure_tables import print_failures
    from phaze.runs.run_directory import kept_answer

    with kept_answer(options.out) as keep, progress(quiet=options.quiet, phase="planning"):
        found = failures_answer(options)
        document = record_question(found, "whatif failures", options, ["dse", *sys.argv[1:]])
        keep(document)
    if options.json:
        print_json(document)
    else:
        print_failures(document, console())
