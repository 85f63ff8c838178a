"""The calibrated rung of whole searches: the constants of links of the chips' family, and which spaces have one."""

from __future__ import annotations

from dataclasses import replace

from phaze.cost.kernels.links import with_laws
from phaze.cost.rung import Rung, check_rung
from phaze.errors import InputError
from phaze.explore.request import Task
from phaze.hardware.fields import field_table
from phaze.hardware.space import DesignSpace
from phaze.hardware.table import ArchitectureTable


def measured_links(task: Task, table: ArchitectureTable) -> Task:
    """On the calibrated rung, the task on a network with the measured constants of the family of a table's chips."""
    if task.rung is not Rung.CALIBRATED or not len(table):
        return task
    network = with_laws(task.network, str(field_table()["family"].decode(table["family"][0])))
    return task if network == task.network else replace(task, network=network)


def check_measured(task: Task, space: DesignSpace) -> None:
    """Raises InputError where a task has a rung that the chips of a space do not have."""
    if task.rung is Rung.ANALYTIC:
        return
    if any("family" in axis.fields for axis in space.axes):
        raise InputError(
            f"rung {task.rung} is that of one family of chips, and space {space.name} varies it: fix it "
            "(--fix family=...)"
        )
    check_rung(task.rung, space.architecture(0).replace(f"space {space.name}"))
