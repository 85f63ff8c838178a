"""Money, carbon and energy of a cluster at work: by part, so much per second of use and so much per joule.

Joules are those of the accelerators, as the model counts them. Every total is the same function of seconds and
joules, growing in both, so that bounds on the two bound it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, reduce

import numpy as np

from phaze.arrays import Floats
from phaze.hardware.architecture_table import ArchitectureTable
from phaze.hardware.cluster_network import Network
from phaze.hardware.economics.economic_figures import YEAR_S, Economics
from phaze.hardware.economics.embodied_carbon import embodied_parts_kg
from phaze.hardware.economics.network_share import network_usd, network_w
from phaze.hardware.economics.package_price import price_parts_usd

JOULE_PER_KWH = 3.6e6
HOUR_S = 3600.0


@dataclass(frozen=True)
class Rates:
    """What is spent by part: `per_s` (A,) per second of use of the whole cluster, `per_j` per joule."""

    per_s: Mapping[str, Floats]
    per_j: Mapping[str, float]

    def parts(self, seconds: Floats | float, joules: Floats | float) -> dict[str, Floats]:
        """What some work spends by part, (A,) each, from its seconds and the joules of the accelerators."""
        return {
            name: each * seconds + self.per_j.get(name, 0.0) * np.asarray(joules)
            for name, each in self.per_s.items()
        }

    def total(self, seconds: Floats | float, joules: Floats | float) -> Floats:
        """The sum of the parts, (A,), in their order."""
        return reduce(np.add, self.parts(seconds, joules).values())

    def take(self, rows: slice | np.ndarray) -> Rates:
        """Those of some architectures."""
        return Rates({name: each[rows] for name, each in self.per_s.items()}, self.per_j)


@dataclass(frozen=True)
class ClusterRates:
    """Rates of money in USD, of emissions in kg CO2e, and of energy on site in J, of clusters of (A,) chips.

    `price_usd` and `capital_usd` (A,): what one package costs to make, and a device with all of its system.
    """

    usd: Rates
    kg: Rates
    joules: Rates
    price_usd: Floats
    capital_usd: Floats

    def take(self, rows: slice | np.ndarray) -> ClusterRates:
        """Those of some architectures."""
        told = self.usd.take(rows), self.kg.take(rows), self.joules.take(rows)
        return ClusterRates(*told, self.price_usd[rows], self.capital_usd[rows])


def cluster_rates(
    table: ArchitectureTable,
    area_mm2: Floats,
    tdp_w: Floats,
    devices: int,
    network: Network,
    economics: Economics,
) -> ClusterRates:
    """Rates of clusters of so many devices on a network, for architectures of some area and TDP, (A,) each."""
    return _Cluster(table, area_mm2, tdp_w, devices, network, economics).rates()


def designing_usd(table: ArchitectureTable, economics: Economics) -> Floats:
    """What designing a chip and its mask sets cost in USD, (A,), however many are made."""
    e = economics
    found: Floats = e.column(table, "design_usd") + e["mask_sets"] * e.column(table, "mask_set_usd")
    return found


@dataclass(frozen=True)
class _Cluster:
    table: ArchitectureTable
    area_mm2: Floats
    tdp_w: Floats
    devices: int
    network: Network
    economics: Economics

    def rates(self) -> ClusterRates:
        making = price_parts_usd(self.table, self.area_mm2, self.economics)
        bought = self._bought_usd(making)
        capital = reduce(np.add, bought.values())
        building = self.economics["building_usd_per_w"] * self._equipment_w
        rent = self.economics.maybe("rent_usd_per_device_hour")
        usd = self._owned(bought, capital, building) if rent is None else self._rented(rent)
        return ClusterRates(
            usd, self._carbon(), self._energy(), reduce(np.add, making.values()), capital + building
        )

    # -- money -----------------------------------------------------------------------------------------------

    def _bought_usd(self, making: Mapping[str, Floats]) -> dict[str, Floats]:
        """Price of the hardware of one device, by part: the chip, its design, its seller, and the system around it."""
        e = self.economics
        design = designing_usd(self.table, e) / e["volume_chips"]
        margin = e["seller_gross_margin"]
        made = reduce(np.add, [*making.values(), design])
        return {
            **making,
            "design": design,
            "margin": made * (margin / (1.0 - margin)),
            "hosts": self._each(e["host_usd"]),
            "network": self._network_usd,
            "racks": self._each(e["rack_usd"]),
        }

    def _owned(self, bought: Mapping[str, Floats], capital: Floats, building: Floats) -> Rates:
        """Straight-line write-off by part, what equal payments with interest are above it, repairs, electricity."""
        e = self.economics
        years, building_years, interest = e["lifetime_years"], e["building_years"], e["interest_per_year"]
        above = capital * _interest_share(interest, years) + building * _interest_share(
            interest, building_years
        )
        yearly = {name: usd / years for name, usd in bought.items()} | {
            "building": building / building_years,
            "interest": above,
            "maintenance": capital * e["maintenance_per_year"],
        }
        used_s = YEAR_S * e["utilisation"]
        usd_per_j = e["electricity_usd_per_kwh"] * e["power_usage_effectiveness"] / JOULE_PER_KWH
        per_s = {name: self.devices * usd / used_s for name, usd in yearly.items()}
        return Rates(per_s | {"electricity": self._around_w * usd_per_j}, {"electricity": usd_per_j})

    def _rented(self, usd_per_hour: float) -> Rates:
        return Rates({"rent": self._each(self.devices * usd_per_hour / HOUR_S)}, {})

    # -- emissions and energy ----------------------------------------------------------------------------------

    def _carbon(self) -> Rates:
        e = self.economics
        made = embodied_parts_kg(self.table, self.area_mm2, e) | {"hosts": self._each(e["host_kg"])}
        used_s = e["lifetime_years"] * YEAR_S * e["utilisation"]
        kg_per_j = e["carbon_intensity_kg_per_kwh"] * e["power_usage_effectiveness"] / JOULE_PER_KWH
        per_s = {name: self.devices * kg / used_s for name, kg in made.items()}
        return Rates(per_s | {"electricity": self._around_w * kg_per_j}, {"electricity": kg_per_j})

    def _energy(self) -> Rates:
        above = self.economics["power_usage_effectiveness"] - 1.0
        return Rates(
            {
                "accelerators": self._each(0.0),
                "hosts": self._each(self.devices * self.economics["host_w"]),
                "network": self.devices * self._network_w,
                "cooling": self._around_w * above,
            },
            {"accelerators": 1.0, "cooling": above},
        )

    @property
    def _around_w(self) -> Floats:
        """Power of all hosts, switches and adapters."""
        return self.devices * (self.economics["host_w"] + self._network_w)

    @property
    def _equipment_w(self) -> Floats:
        """Power that the building has to provide for one device with its share of hosts and switches."""
        return self.tdp_w + self.economics["host_w"] + self._network_w

    @cached_property
    def _network_usd(self) -> Floats:
        return network_usd(self.table, self.devices, self.network, self.economics)

    @cached_property
    def _network_w(self) -> Floats:
        return network_w(self.table, self.devices, self.network, self.economics)

    def _each(self, value: float) -> Floats:
        return np.full(len(self.table), value)


def _interest_share(interest: float, years: float) -> float:
    """Share of a sum by which equal yearly payments with interest exceed its straight-line write-off."""
    if interest == 0.0:
        return 0.0
    return interest / (1.0 - float((1.0 + interest) ** -years)) - 1.0 / years
