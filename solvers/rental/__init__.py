"""Which fleet to rent: replicas of serving configurations under a budget and what is available, exactly."""

from phaze.solvers.rental.fleet_composition import (
    Composition,
    RentalConfig,
    RentalProblem,
    compose,
    composition_seconds,
)

__all__ = ["Composition", "RentalConfig", "RentalProblem", "compose", "composition_seconds"]
