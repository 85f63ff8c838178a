"""The instance of a strategy for each layer, as `dse solve layers` reads it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Annotated

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from phaze.errors import InfeasibleError, InputError, Shortfall
from phaze.yaml_file import checked

if TYPE_CHECKING:
    from phaze.solvers.layerwise import LayerProblem

_MOST_LAYERS = 1000
_Seconds = Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)]
_Bytes = Annotated[float, Field(ge=0, le=1e18, allow_inf_nan=False)]


class _Instance(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class _Layers(_Instance):
    name: str
    repeat: Annotated[int, Field(ge=1, le=_MOST_LAYERS)] = 1
    time_s: tuple[_Seconds | None, ...]
    memory_bytes: tuple[_Bytes | None, ...]


class _Choice(_Instance):
    strategies: Annotated[tuple[str, ...], Field(min_length=1, max_length=256)]
    layers: Annotated[tuple[_Layers, ...], Field(min_length=1, max_length=_MOST_LAYERS)]
    change_s: tuple[tuple[_Seconds, ...], ...]
    memory_limit_bytes: _Bytes


@dataclass(frozen=True)
class NamedLayers:
    """A problem, and the names of its layers and strategies."""

    problem: LayerProblem
    layers: tuple[str, ...]
    strategies: tuple[str, ...]

    def rows(self, chosen: Sequence[int]) -> list[dict[str, object]]:
        """Runs of layers of one name under one strategy, with the seconds and bytes of each run."""
        p, found, first = self.problem, list[dict[str, object]](), 0
        for (name, strategy), run in groupby(zip(self.layers, chosen, strict=True)):
            last = first + len(list(run)) - 1
            here = slice(first, last + 1)
            found.append(
                {
                    "first": first,
                    "last": last,
                    "layers": name,
                    "strategy": self.strategies[strategy],
                    "time_s": float(p.time_s[here, strategy].sum()),
                    "memory_bytes": float(p.memory_bytes[here, strategy].sum()),
                }
            )
            first = last + 1
        return found


def read_layers(data: object) -> NamedLayers:
    """The problem with its names; null stands for a strategy that a layer cannot have. Raises InputError."""
    from phaze.solvers.layerwise import LayerProblem

    told = checked(_Choice, data, "$")
    count, layers = len(told.strategies), [each for each in told.layers for _ in range(each.repeat)]
    if len(set(told.strategies)) < count:
        raise InputError("two strategies have one name")
    if len(layers) > _MOST_LAYERS:
        raise InputError(f"there are {len(layers)} layers, more than {_MOST_LAYERS}")
    if {len(told.change_s), *map(len, told.change_s)} != {count}:
        raise InputError(f"change_s must be {count} lists of {count} seconds, from each strategy to each")
    for each in told.layers:
        _check_layer(each, told.strategies)
    time_s = np.array([[np.inf if t is None else t for t in each.time_s] for each in layers])
    memory = np.array([[m or 0.0 for m in each.memory_bytes] for each in layers])
    change = np.broadcast_to(np.array(told.change_s, dtype=float), (len(layers), count, count))
    problem = LayerProblem(time_s, memory, change, told.memory_limit_bytes)
    return NamedLayers(problem, tuple(each.name for each in layers), told.strategies)


def _check_layer(each: _Layers, strategies: Sequence[str]) -> None:
    if {len(each.time_s), len(each.memory_bytes)} != {len(strategies)}:
        raise InputError(
            f"{each.name} needs one time_s and one memory_bytes for each of {len(strategies)} strategies"
        )
    for strategy, seconds, held in zip(strategies, each.time_s, each.memory_bytes, strict=True):
        if (seconds is None) != (held is None):
            raise InputError(f"{each.name} has only one of time_s and memory_bytes under {strategy}")
    if all(seconds is None for seconds in each.time_s):
        raise InputError(f"{each.name} has no strategy")


def why_no_choice(problem: LayerProblem) -> InfeasibleError:
    """How much memory the leanest choice takes."""
    least, limit = problem.least_bytes, problem.limit_bytes
    short = Shortfall("memory", limit, least, "bytes", ("more memory", "a leaner strategy"))
    told = f"the leanest strategies of all layers hold {least:.6g} bytes, and the limit is {limit:.6g}"
    return InfeasibleError(told, (short,))
