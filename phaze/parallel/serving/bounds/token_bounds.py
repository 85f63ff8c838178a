"""What devices serve at most by what every token takes: bounds of whole grids before their attention is costed.

First by exchanges alone, for which no layer is costed, then by everything but attention and logits.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from phaze.cost.collectives.collective_times import link_s
from phaze.parallel.serving.replicas.layer_grid import LayerGrid
from phaze.tolerances import BOUND_ROUNDING
from phaze.workload.work import Layer


@dataclass(frozen=True)
class TokenBound:
    """Seconds that every token takes on the devices of a grid, at least, and what follows from them.

    Of collectives alone, or of everything but attention.

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

    def costed_token_s(self, most: float = np.inf) -> float:
        """Seconds for a token in all layers but the head, attention aside, in passes of so many tokens at most.

        Layers are costed for it. Between two points a pass is a straight line of its tokens, so that a token takes
        least at one of the points.
        """
        tokens = self.grid.tokens
        pass_s = (tokens.values[..., 0] * ~self.grid.samples).sum(axis=-1)
        points = tokens.points[: np.searchsorted(tokens.points, most) + 1]
        return float((pass_s[: len(points)] / points).min()) * (1 - BOUND_ROUNDING)

    def requests_per_s(self, tokens: float, *, costed: bool = False, most: float = np.inf) -> float:
        """Requests that a device serves at most, of so many tokens each; in a pipeline, of a part of the layers.

        `costed`: by everything but attention, for which layers are costed, in passes of at most so many tokens.
        """
        seconds = self.grid.width * (self.costed_token_s(most) if costed else self.token_s) * tokens
        return 1 / seconds if seconds else np.inf
