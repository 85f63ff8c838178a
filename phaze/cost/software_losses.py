"""Losses of compiled software on systolic chips: what products, memory traffic and launches lose beside the mechanisms.

Chips that run kernels (SIMT, and measured systolic families under the calibrated fidelity) have laws of their own, in
which these losses are contained (`phaze.cost.kernels`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from phaze.cost.fidelity import Fidelity
from phaze.cost.kernels.fitted_constants import GENERIC, law_of
from phaze.errors import InputError

FILE = "systolic.yaml"


@dataclass(frozen=True, slots=True)
class SoftwareLosses:
    """Losses of all systolic chips alike.

    `operator_s`: seconds that an operator takes beyond its work. `array_efficiency`: share of the cycles of the arrays
    in which a compiled program feeds them. `memory_efficiency`: share of the memory bandwidth that streams reach.
    """

    operator_s: float
    array_efficiency: float
    memory_efficiency: float


_TOLD: Mapping[Fidelity, str] = MappingProxyType(
    {
        Fidelity.IDEAL: "ideal hardware: no chip loses anything to software",
        Fidelity.ANALYTIC: "software losses on every chip (kernels on GPUs, compiled programs elsewhere)",
        Fidelity.CALIBRATED: "software losses as measured on chips of the family",
    }
)
NO_LOSSES = SoftwareLosses(operator_s=0.0, array_efficiency=1.0, memory_efficiency=1.0)


def losses_told(fidelity: object) -> str:
    """Losses of whole models at a fidelity, in a line; nothing of one that a document does not name."""
    return _TOLD[Fidelity(str(fidelity))] if fidelity in _TOLD else ""


def software_losses(fidelity: Fidelity) -> SoftwareLosses:
    """Losses at a fidelity: none of ideal hardware, else the generic ones. Raises InputError where none are shipped."""
    if fidelity is Fidelity.IDEAL:
        return NO_LOSSES
    law = law_of(SoftwareLosses, FILE, GENERIC)
    if law is None:
        raise InputError(f"cost/kernels/{FILE}: the family {GENERIC!r} is missing")
    return law
