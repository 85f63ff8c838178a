"""`dse whatif`: vary one thing, plan anew for every value, and plot."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from phaze.cli.derived_options import takes
from phaze.inputs.option_models import WhatIfOptions

if TYPE_CHECKING:
    from phaze.explore.documents.plan_document import PlanDocument, WhatIfDocument

_NUMBERS = ("devices", "global_batch")
_WORDS = ("arch", "workload", "network", "framework", "plans", "rung", "recipe", "attention", "fusion")


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
    asked = options.values
    from phaze.cli.console_output import console, print_json, say
    from phaze.inputs.input_files import record_question
    from phaze.report.terminal.whatif_table import check_plot_file, print_whatif, write_plot
    from phaze.runs.run_directory import kept_answer

    if options.plot is not None:
        check_plot_file(options.plot)
    with kept_answer(options.out) as keep:
        document = record_question(answer(asked), "whatif", asked, ["dse", *sys.argv[1:]])
        keep(document)
    if options.json:
        print_json(document)
    else:
        print_whatif(document, console())
    if options.plot is not None:
        write_plot(document, options.plot)
        say(f"Wrote {options.plot}.", quiet=options.json)


def answer(asked: Mapping[str, Any]) -> WhatIfDocument:
    """The best plans for all values, as the options say. Raises InputError."""
    from phaze.explore.documents.plan_document import vary
    from phaze.inputs.option_models import PlanChoices

    choices = PlanChoices.of(asked).values
    rest = {name: asked[name] for name in (*_NUMBERS, *_WORDS)}
    name, values = _parsed(asked["vary"])
    return vary(name, values, lambda value: _planned(name, value, choices, rest))


def _parsed(text: str) -> tuple[str, list[str]]:
    """Name and values of what is varied. Raises InputError."""
    from phaze.errors import InputError

    name, equals, rest = text.partition("=")
    values = [value.strip() for value in rest.split(",") if value.strip()]
    if not equals or not values or not name.strip():
        raise InputError(f"--vary {text!r} is not NAME=V1,V2,..., for instance devices=64,256,1024")
    return name.strip().replace("-", "_"), values


def _planned(name: str, value: str, choices: dict[str, Any], rest: dict[str, Any]) -> PlanDocument:
    """The best plan with one thing changed. Raises InputError for a name or a value there is not."""
    from phaze.hardware.hardware_fields import field_named
    from phaze.inputs.architecture_names import find_architecture
    from phaze.inputs.option_models import PlanChoices
    from phaze.inputs.plan_inputs import held_choices, plan_answer

    fixed, asked = dict(choices), dict(rest)
    if name in fixed:
        words = ("whole", "schedule", "recompute", "order", "offload")
        fixed[name] = value if name in words else _whole(name, value)
    elif name in _NUMBERS:
        asked[name] = _whole(name, value)
    elif name in _WORDS:
        asked[name] = [value] if name == "workload" else value
    else:
        parsed = field_named(name, "--vary").parse(value, "--vary")
        chip = find_architecture(asked["arch"])
        asked["arch"] = chip.replace(f"{chip.name} {name} {value}", **{name: parsed})
    return plan_answer(
        asked.pop("arch"),
        asked.pop("workload"),
        asked.pop("framework"),
        held_choices(PlanChoices.of(fixed)),
        **asked,
    )


def _whole(name: str, text: str) -> int:
    from phaze.errors import InputError

    if name == "sequence_parallel" and text in ("true", "false"):
        return text == "true"
    if not text.isdigit():
        raise InputError(f"--vary {name}: {text!r} is not a whole number")
    return int(text)
