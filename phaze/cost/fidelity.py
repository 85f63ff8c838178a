"""Fidelities of the cost model.

They are ours alone, no entry point brings another: bounds, and the certificates that rest on them, are worked out from
the terms of this model, and what is remembered is kept under the digest of its code.
"""

from __future__ import annotations

from enum import StrEnum

from phaze.cost.kernels.fitted_constants import GENERIC
from phaze.cost.kernels.systolic_programs import is_measured
from phaze.errors import InputError
from phaze.hardware.architecture import Architecture


class Fidelity(StrEnum):
    """A lower bound; mechanisms of ideal hardware; these with software losses alike for all chips of a kind; laws
    fitted per chip family.
    """

    ROOFLINE = "roofline"
    IDEAL = "ideal"
    ANALYTIC = "analytic"
    CALIBRATED = "calibrated"


JUDGED = (Fidelity.ROOFLINE, Fidelity.ANALYTIC, Fidelity.CALIBRATED)
"""Fidelities that are compared with measurements: hardware that is measured runs software."""


def check_judged(rung: Fidelity) -> None:
    """Raise InputError for a fidelity that nothing measured can tell of."""
    if rung not in JUDGED:
        raise InputError(
            f"rung {rung} leaves software out, which measurements hold; take one of {', '.join(JUDGED)}"
        )


def check_fidelity(rung: Fidelity, chip: Architecture) -> None:
    """Raise InputError where whole models cannot be costed on a chip at a fidelity."""
    if rung is Fidelity.ROOFLINE:
        raise InputError("rung roofline bounds operators, not whole models; take analytic or calibrated")
    family = str(chip.value("family"))
    if rung is Fidelity.CALIBRATED and not (family != GENERIC if chip.value("simt") else is_measured(family)):
        raise InputError(
            f"{chip.name}: whole models have a calibrated rung on chips of a measured family only; take analytic"
        )
