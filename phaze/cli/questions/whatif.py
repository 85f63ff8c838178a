"""`dse whatif`: vary one thing, plan anew for every value, and plot."""

from __future__ import annotations

import sys

import typer

from phaze.cli.derived_options import takes
from phaze.cli.manual.typer_app import App
from phaze.cli.questions import whatif_bubbles, whatif_colocate, whatif_failures
from phaze.inputs.options.whatif_options import WhatIfOptions

app = App(name="whatif", invoke_without_command=True)


@app.callback()
@takes(WhatIfOptions, may_lack=("arch", "workload", "vary"))
def varied(options: WhatIfOptions, context: typer.Context) -> None:
    """Vary one parameter and re-plan for each value; what is fixed stays fixed.

    Examples:
        dse whatif --arch h100 --workload gpt3 --vary devices=256,512,1024 --plot devices.svg
        dse whatif --arch h100 --workload llama3-70b --vary hbm_stacks=4,5,6 --json
        dse whatif --arch h100 --workload llama3-8b --devices 8 --vary recipe=none,fp8,mxfp8
        dse whatif --arch gh200 --workload llama3-8b --devices 8 --vary offload=none,optimizer

    Exit codes: 3

    See also: dse whatif bubbles, dse whatif colocate, dse whatif failures; dse plan for one value; dse explain for
    names of fields.
    """
    if context.invoked_subcommand is not None:
        return
    from phaze.cli.console_output import console, print_json, progress, say
    from phaze.errors import InputError
    from phaze.inputs.plan_inputs import whatif_answer
    from phaze.inputs.recorded.recorded_question import record_question
    from phaze.report.terminal.plans.whatif_table import check_plot_file, print_whatif, write_plot
    from phaze.runs.run_directory import kept_answer

    if not options.arch or not options.workload or not options.vary:
        raise InputError(
            "dse whatif needs --arch, --workload and --vary, for instance --arch h100 --workload gpt3 "
            "--vary devices=256,512"
        )
    if options.plot is not None:
        check_plot_file(options.plot)
    with kept_answer(options.out) as keep, progress(quiet=options.quiet, phase="planning"):
        document = record_question(whatif_answer(options), "whatif", options, ["dse", *sys.argv[1:]])
        keep(document)
    if options.json:
        print_json(document)
    else:
        print_whatif(document, console())
    if options.plot is not None:
        write_plot(document, options.plot)
        say(f"Wrote {options.plot}.", quiet=options.json or options.quiet)


app.command("bubbles")(whatif_bubbles.command)
app.command("colocate")(whatif_colocate.command)
app.command("failures")(whatif_failures.command)
