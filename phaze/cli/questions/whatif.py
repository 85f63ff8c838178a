"""`dse whatif`: vary one thing, plan anew for every value, and plot."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from phaze.cli.derived_options import takes
from phaze.inputs.option_models import PlanChoices, PlanOptions, TaskOptions, WhatIfOptions

if TYPE_CHECKING:
    from phaze.explore.documents.plan_document import PlanDocument, WhatIfDocument

_VARIED = {"arch", *TaskOptions.described(), *PlanChoices.described()}


@takes(WhatIfOptions)
def command(options: WhatIfOptions) -> None:
    """Vary one thing and plan the training anew for every value; what is fixed stays fixed.

    Examples:
        dse whatif --arch h100 --workload gpt3 --vary devices=256,512,1024 --plot devices.svg
        dse whatif --arch h100 --workload llama3-70b --vary hbm_stacks=4,5,6 --json
        dse whatif --arch h100 --workload llama3-8b --devices 8 --vary recipe=none,fp8,mxfp8
        dse whatif --arch gh200 --workload llama3-8b --devices 8 --vary offload=none,optimizer

    Exit codes: 3

    See also: dse plan for one value; dse explain for the names of hardware fields.
    """
    from phaze.cli.console_output import console, print_json, say
    from phaze.inputs.input_files import record_question
    from phaze.report.terminal.whatif_table import check_plot_file, print_whatif, write_plot
    from phaze.runs.run_directory import kept_answer

    if options.plot is not None:
        check_plot_file(options.plot)
    with kept_answer(options.out) as keep:
        document = record_question(answer(options), "whatif", options, ["dse", *sys.argv[1:]])
        keep(document)
    if options.json:
        print_json(document)
    else:
        print_whatif(document, console())
    if options.plot is not None:
        write_plot(document, options.plot)
        say(f"Wrote {options.plot}.", quiet=options.json)


def answer(options: WhatIfOptions) -> WhatIfDocument:
    """The best plans for all values, as the options say. Raises InputError."""
    from phaze.explore.documents.plan_document import vary

    name, values = _parsed(options.vary)
    return vary(name, values, lambda value: _planned(name, value, options))


def _parsed(text: str) -> tuple[str, list[str]]:
    """Name and values of what is varied. Raises InputError."""
    from phaze.errors import InputError

    name, equals, rest = text.partition("=")
    values = [value.strip() for value in rest.split(",") if value.strip()]
    if not equals or not values or not name.strip():
        raise InputError(f"--vary {text!r} is not NAME=V1,V2,..., for instance devices=64,256,1024")
    return name.strip().replace("-", "_"), values


def _planned(name: str, value: str, options: WhatIfOptions) -> PlanDocument:
    """The best plan with one thing changed. Raises InputError for a name or a value there is not."""
    from phaze.hardware.hardware_fields import field_named
    from phaze.inputs.architecture_names import find_architecture
    from phaze.inputs.plan_inputs import plan_answer

    changed: dict[str, Any]
    if name in _VARIED:
        changed = {name: _value(name, value)}
    else:
        parsed = field_named(name, "--vary").parse(value, "--vary")
        chip = find_architecture(options.arch)
        changed = {"arch": chip.replace(f"{chip.name} {name} {value}", **{name: parsed})}
    return plan_answer(PlanOptions.of(options.values | changed))


def _value(name: str, text: str) -> object:
    """A value of what is varied, as the model of options holds it. Raises InputError."""
    told, _ = PlanOptions.described()[name]
    if str(told.type).startswith(("int", "bool")):
        return _whole(name, text)
    return [text] if name == "workload" else text


def _whole(name: str, text: str) -> int:
    from phaze.errors import InputError

    if name == "sequence_parallel" and text in ("true", "false"):
        return text == "true"
    if not text.isdigit():
        raise InputError(f"--vary {name}: {text!r} is not a whole number")
    return int(text)
