"""What devices serve at most by their exchanges alone: bounds of whole grids of layers before any layer is costed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from phaze.cost.collectives.collective_times import link_s
from phaze.parallel.serving.replicas.layer_grid import LayerGrid
from phaze.tolerances import BOUND_ROUNDING
from phaze.workload.work import Layer


@dataclass(frozen=True)
class ExchangeBound:
    """Seconds that collectives take for every token on the devices of a grid, at least, and what follows from them.

    A device's collectives run one after the other, and what they send is proportional to the tokens of a pass, logits
    aside. No law of a collective is faster per byte for fewer of them (`Law`: a start, a part that grows as the bytes
    and one that grows as their root), so that a token takes least in the largest pass.
    """

    grid: LayerGrid

    @cached_property
    def token_s(self) -> float:
        """Seconds for a token in all layers but the head; nothing where experts are loaded unevenly."""
        grid = self.grid
        if grid.width == grid.experts == 1 or grid.load is not None:
            return 0.0
        most = grid.token_points[-1]
        chain = grid.token_chain(most)
        often = np.bincount(chain.index, weights=~grid.samples, minlength=len(chain.layers)).tolist()
        pass_s = 0.0
        for times, layer in zip(often, chain.layers, strict=True):
            pass_s += times * self._exchanges_s(layer) if times else 0.0
        return pass_s / most * (1 - BOUND_ROUNDING)

    def _exchanges_s(self, layer: Layer) -> float:
        """Seconds of all collectives of a layer."""
        links = self.grid.chip.table["link_bandwidth_bytes_per_s"]
        found = [work.link for work in layer.forward.works if work.link is not None]
        return sum(float(link_s(link, self.grid.chip.among.model.network, links)[0]) for link in found)

    def requests_per_s(self, tokens: float) -> float:
        """Requests that a device serves at most, of so many tokens each; in a pipeline, of a part of the layers."""
        seconds = self.grid.width * self.token_s * tokens
        return 1 / seconds if seconds else np.inf
