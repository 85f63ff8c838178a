"""The best plans for all values of one thing, from what was asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from phaze.inputs.option_models import PlanChoices, PlanOptions, TaskOptions, WhatIfOptions

if TYPE_CHECKING:
    from phaze.explore.documents.plan_document import PlanDocument, WhatIfDocument

_VARIED = {"arch", *TaskOptions.described(), *PlanChoices.described()}


def whatif_answer(options: WhatIfOptions) -> WhatIfDocument:
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
