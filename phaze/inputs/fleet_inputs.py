"""Plans in fleets of unlike devices from what was asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from phaze.errors import InputError
from phaze.inputs.options.plan_options import PlanPoolsOptions

if TYPE_CHECKING:
    from phaze.explore.documents.fleet_document import FleetDocument


def fleet_answer(options: PlanPoolsOptions) -> FleetDocument:
    """The best plan in a fleet within what options fix. Raises InputError, and InfeasibleError where nothing fits."""
    from dataclasses import replace

    from phaze.explore.plans.fleet_planning import FleetObjective, FleetPlanning
    from phaze.inputs.named_choices import choose
    from phaze.inputs.plan_inputs import held_choices
    from phaze.inputs.task_inputs import asked_task
    from phaze.parallel.fleets.fleet_file import load_fleet

    for name, given in (
        ("--devices", options.devices is not None),
        ("--network", options.network != "default"),
    ):
        if given:
            raise InputError(f"{name}: the pools of {options.fleet} have their own; leave it out")
    if options.recipe is not None or options.calibration is not None:
        raise InputError("pools of unlike chips have no recipe and no calibration in common; leave them out")
    fleet = load_fleet(options.fleet)
    asked = replace(asked_task(options.workload, options), held=held_choices(options))
    return FleetPlanning(fleet, asked, choose(FleetObjective, options.objective, "--objective")).answer()
