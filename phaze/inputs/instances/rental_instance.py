"""The instance of which fleet to rent, as `dse solve fleet` reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import BaseModel, ConfigDict, Field

from phaze.errors import InfeasibleError, InputError, Shortfall
from phaze.yaml_file import checked

if TYPE_CHECKING:
    from phaze.solvers.rental import RentalProblem

_Amount = Annotated[float, Field(strict=True, gt=0, le=1e12, allow_inf_nan=False)]
_Rate = Annotated[float, Field(strict=True, ge=0, le=1e12, allow_inf_nan=False)]
_Count = Annotated[int, Field(strict=True, ge=0, le=10**6)]


class _Instance(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class _Config(_Instance):
    name: str
    price_usd_per_hour: _Amount
    devices: Annotated[dict[str, _Count], Field(min_length=1)]
    requests_per_s: dict[str, _Rate]


class _Rental(_Instance):
    configs: Annotated[tuple[_Config, ...], Field(min_length=1, max_length=1000)]
    requests: Annotated[dict[str, _Amount], Field(min_length=1, max_length=100)]
    budget_usd_per_hour: _Amount
    available: dict[str, _Count]


def read_rental(data: object) -> tuple[RentalProblem, tuple[str, ...]]:
    """The problem, and the names of its workloads. Raises InputError."""
    from phaze.solvers.rental import RentalConfig, RentalProblem

    told = checked(_Rental, data, "$")
    names = tuple(told.requests)
    for config in told.configs:
        if unknown := sorted(set(config.requests_per_s) - set(names)):
            raise InputError(f"{config.name} has a rate for {unknown[0]}, of which there are no requests")
        if unknown := sorted(set(config.devices) - set(told.available)):
            raise InputError(
                f"{config.name} takes {unknown[0]}, and available does not say how many there are"
            )
        if not any(config.devices.values()):
            raise InputError(f"{config.name} takes no device")
    configs = tuple(
        RentalConfig(
            c.name, c.price_usd_per_hour, c.devices, tuple(c.requests_per_s.get(name, 0.0) for name in names)
        )
        for c in told.configs
    )
    requests = tuple(told.requests.values())
    return RentalProblem(configs, requests, told.budget_usd_per_hour, told.available), names


def why_no_fleet(problem: RentalProblem, names: tuple[str, ...], within_s: float | None) -> InfeasibleError:
    """What is missing: a rate of a workload, budget, or devices."""
    from dataclasses import replace
    from math import inf

    from phaze.solvers.rental import compose

    for w, name in enumerate(names):
        if not any(config.rates_per_s[w] > 0 for config in problem.configs):
            return InfeasibleError(f"no configuration serves {name}")
    dearest = sum(c.price_usd * sum(problem.available.values()) for c in problem.configs)
    richer = replace(problem, budget_usd=dearest)
    needed = compose(richer, inf if within_s is None else within_s)
    if not needed.feasible:
        time = "" if within_s is None else f" within {within_s:g} s"
        return InfeasibleError(
            f"the devices that are available do not serve all requests{time}, whatever the budget"
        )
    price = needed.price_usd
    short = Shortfall("budget for an hour", problem.budget_usd, price, "USD", ("a larger budget",))
    return InfeasibleError(
        f"a budget of {problem.budget_usd:g} USD per hour does not serve all requests; {price:g} USD would",
        (short,),
    )
