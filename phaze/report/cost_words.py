"""Money and carbon in words: per million tokens or per 1,000 samples, by part, and what is counted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from phaze.explore.answers.training_run import MAKING
from phaze.explore.documents.result_document import SampleCost
from phaze.report import number_format as fmt

_USD_GROUPS = {
    "making the chips": MAKING,
    "their design and masks": ("design",),
    "margin of their seller": ("margin",),
    "hosts and racks": ("hosts", "racks"),
    "network": ("network",),
    "building": ("building",),
    "interest": ("interest",),
    "maintenance": ("maintenance",),
    "electricity": ("electricity",),
    "rent": ("rent",),
}
_KG_GROUPS = {
    "electricity": ("electricity",),
    "making the chips": ("dies", "memory", "packaging", "module"),
    "making the hosts": ("hosts",),
}


@dataclass(frozen=True)
class UnitCost:
    """Money in USD, carbon in kg CO2e and energy on site in J of a unit of so many samples."""

    unit: str
    samples: float
    usd: float
    kg: float
    joules: float

    @classmethod
    def of(cls, cost: SampleCost) -> UnitCost:
        """Of a million tokens, or of 1,000 samples where samples have none."""
        unit, samples = (
            ("1,000 samples", 1e3) if cost.tokens is None else ("million tokens", 1e6 / cost.tokens)
        )
        each = cost.cost_per_sample_usd, cost.carbon_per_sample_kg, cost.energy_per_sample_j
        return cls(unit, samples, *(samples * amount for amount in each))


def cost_rows(cost: SampleCost) -> list[tuple[str, str]]:
    """Money, carbon and energy on site, named and with their units."""
    told = UnitCost.of(cost)
    return [
        (f"cost per {told.unit}", f"{fmt.number(told.usd)} USD"),
        (f"carbon per {told.unit}", f"{fmt.number(told.kg)} kg CO2e"),
        (f"energy on site per {told.unit}", fmt.decimal(told.joules, "J")),
    ]


def counted(cost: SampleCost) -> str:
    """What is counted and what is not, in one line."""
    money = (
        "rent alone"
        if "rent" in cost.cost_parts_usd
        else "the whole system, chips at what they cost to make and design, without staff and software"
    )
    return f"Cost is {money}; carbon is electricity, chips and hosts."


def grouped_usd(parts: Mapping[str, float]) -> dict[str, float]:
    """Parts of money in groups that are told together, those there are."""
    return _grouped(parts, _USD_GROUPS)


def grouped_kg(parts: Mapping[str, float]) -> dict[str, float]:
    """Parts of carbon in groups."""
    return _grouped(parts, _KG_GROUPS)


def _grouped(parts: Mapping[str, float], groups: Mapping[str, tuple[str, ...]]) -> dict[str, float]:
    found = {name: [parts[one] for one in of if one in parts] for name, of in groups.items()}
    return {name: sum(some) for name, some in found.items() if any(some)}
