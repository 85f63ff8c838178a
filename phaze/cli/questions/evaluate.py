"""`dse evaluate`: one architecture, best or given placement."""

from __future__ import annotations

import sys

from phaze.cli.derived_options import takes
from phaze.inputs.options.plan_options import EvaluateOptions


@takes(EvaluateOptions)
def command(options: EvaluateOptions) -> None:
    """Evaluate one architecture: iteration time, MFU, memory, energy, where the time goes.

    Under the best plan of a space of plans that has what is fixed; degrees that divide nothing evenly are those of
    --plans any.

    Examples:
        dse evaluate --arch a100 --workload gpt3 --devices 1024
        dse evaluate --arch results/gpt3-400W --workload bert-large --tensor-parallel 2 --microbatch 4 --json

    Exit codes: 3

    See also: dse compare for several architectures; dse plan for more about the best plan and the next ones.
    """
    from phaze.cli.console_output import console, print_json, progress
    from phaze.inputs.evaluate_inputs import evaluate_given
    from phaze.inputs.recorded.recorded_question import record_question
    from phaze.report.terminal.design_tables import print_design
    from phaze.runs.run_directory import kept_answer

    with kept_answer(options.out) as keep, progress(quiet=options.quiet, phase="evaluating"):
        document = record_question(evaluate_given(options), "evaluate", options, ["dse", *sys.argv[1:]])
        keep(document)
    if options.json:
        print_json(document)
    else:
        print_design(document.best, console())
