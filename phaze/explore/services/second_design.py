"""What a second design and its mask sets must save to pay: a fleet of two chips in the place of one of one chip.

A design that V devices share costs w / V for every device and second. A fleet of V devices of one chip makes V t tokens
per second, t each; one of two chips that makes as many writes off w_a + w_b, however many of either it has. So the
second design must save (w_a + w_b - w) / (V t) on a token, and pays from the V on at which that is what it saves.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from phaze.explore.documents.serving_document import SecondDesign, serving_cost
from phaze.explore.services.service_request import MILLION
from phaze.hardware.architecture import Architecture, to_table
from phaze.hardware.cluster_network import Network
from phaze.hardware.economics.cluster_rates import cluster_rates, designing_usd
from phaze.hardware.economics.economic_figures import Economics
from phaze.hardware.silicon.die_area import area_mm2
from phaze.hardware.silicon.package_power import tdp_w
from phaze.parallel.serving import ServingPlan, ServingSpace


@dataclass(frozen=True)
class Fleet:
    """A service and its chips: a plan in its space of plans, and so many devices of each chip."""

    plan: ServingPlan
    space: ServingSpace
    chips: Sequence[tuple[Architecture, int]]

    @classmethod
    def of(cls, plan: ServingPlan, space: ServingSpace) -> Fleet:
        """That of a plan."""
        if space.pool_chips is None:
            return cls(plan, space, [(space.architecture, plan.devices)])
        return cls(plan, space, [(space.chip_of(pool.role), pool.devices) for pool in plan.pools])

    def designed_usd(self, economics: Economics) -> float:
        """What designing all chips costs."""
        return sum(float(designing_usd(to_table([chip]), economics)[0]) for chip, _ in self.chips)

    def written_off_usd_per_s(self, economics: Economics) -> list[float]:
        """Of designing each chip, by second of use."""
        return [_written_off_usd_per_s(chip, self.space.network, economics) for chip, _ in self.chips]

    def besides_usd(self, economics: Economics) -> float | None:
        """Of a million tokens without designing; None where the dies fit on no wafer."""
        cost = serving_cost(self.plan, self.space, economics)
        if cost is None:
            return None
        each_s, volume = MILLION / self.plan.tokens_per_s, economics["volume_chips"]
        written = zip(self.chips, self.written_off_usd_per_s(economics), strict=True)
        designed = sum(devices * usd / volume for (_, devices), usd in written)
        return cost.cost_per_million_tokens_usd - designed * each_s


def second_design(one: Fleet, two: Fleet, economics: Economics) -> SecondDesign | None:
    """What two chips in the place of one save, and must save; None where devices are rented or fit on no wafer."""
    before, after = one.besides_usd(economics), two.besides_usd(economics)
    if before is None or after is None or economics.maybe("rent_usd_per_device_hour") is not None:
        return None
    volume, devices = economics["volume_chips"], one.plan.devices
    extra_per_s = sum(two.written_off_usd_per_s(economics)) - sum(one.written_off_usd_per_s(economics))
    # Of a million tokens, were the fleet a single chip.
    of_one_chip = extra_per_s * MILLION / (one.plan.tokens_per_s / devices)
    saved, must_save = before - after, of_one_chip / volume
    return SecondDesign(
        extra_usd=two.designed_usd(economics) - one.designed_usd(economics),
        volume_chips=volume,
        must_save_per_million_tokens_usd=must_save,
        saved_per_million_tokens_usd=saved,
        pays=saved >= must_save,
        pays_from_chips=float(max(1, math.ceil(of_one_chip / saved))) if saved > 0 else None,
    )


def _written_off_usd_per_s(chip: Architecture, network: Network, economics: Economics) -> float:
    """USD by second of use that a chip's designing costs: what a device pays, times the devices that share it.

    All else that a device pays does not depend on their number, so that half of it is left where twice as many share.
    """
    table, volume = to_table([chip]), economics["volume_chips"]
    area, tdp = area_mm2(table), tdp_w(table)
    at, twice = (
        float(
            cluster_rates(table, area, tdp, 1, network, economics.changed(volume_chips=volume * n)).usd.total(
                1.0, 0.0
            )[0]
        )
        for n in (1, 2)
    )
    return (at - twice) * 2 * volume
