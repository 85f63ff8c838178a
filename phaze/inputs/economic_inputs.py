"""Figures behind money and carbon, from the options of a verb and the file that they name."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from phaze.inputs.options.option_model import Options
from phaze.inputs.options.task_options import EconomicOptions

if TYPE_CHECKING:
    from phaze.hardware.economics.economic_figures import Economics

FIGURES = {
    "electricity_price": "electricity_usd_per_kwh",
    "pue": "power_usage_effectiveness",
    "carbon_intensity": "carbon_intensity_kg_per_kwh",
    "volume": "volume_chips",
    "rent": "rent_usd_per_device_hour",
}
"""Options by name, and the figures that they give."""


def make_economics(options: Options) -> Economics:
    """The shipped figures, those of the file instead, and those of options instead of either.

    Verbs without such options take the shipped ones. Raises InputError where a figure is unknown or out of range.
    """
    from phaze.hardware.economics.economic_figures import Economics

    asked = EconomicOptions.of(options.values)
    found = Economics() if asked.economics is None else Economics().after(Path(asked.economics))
    for name, figure in FIGURES.items():
        if (value := getattr(asked, name)) is not None:
            found = found.replaced(figure, value, f"--{name.replace('_', '-')}")
    return found
