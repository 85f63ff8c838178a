"""Input files of another simulator for an architecture, and for the products of a workload."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from phaze.errors import InputError
from phaze.hardware.architecture import Architecture
from phaze.report.exports import accelforge, scale_sim
from phaze.report.exports.products import Product


class Simulator(StrEnum):
    """Simulators that an architecture can be written for."""

    SCALE_SIM = "scale-sim"
    ACCELFORGE = "accelforge"


def export(chip: Architecture, products: Sequence[Product], simulator: Simulator) -> dict[str, str]:
    """Texts of the files by their names; those of a workload where there are products.

    Raises InputError for a chip without tensor cores.
    """
    if chip.value("vector_products"):
        raise InputError(
            f"{chip.name} has no tensor cores: its products run on vector ALUs, which {simulator} does not know"
        )
    if simulator is Simulator.SCALE_SIM:
        files = {"architecture.cfg": scale_sim.config(chip)}
        work = {"topology.csv": scale_sim.topology(products), "layout.csv": scale_sim.LAYOUT}
        return files | (work if products else {})
    files = {"architecture.yaml": accelforge.architecture(chip)}
    return files | ({"workload.yaml": accelforge.workload(products)} if products else {})
