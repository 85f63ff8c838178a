"""A plan on devices of different architectures counted again, for `checker`: each device on its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from phaze.placement.pipelines.order import Order
from phaze.placement.strategy.division import Division
from phaze.placement.strategy.figures import LayerFigures
from phaze.placement.strategy.recount import Recount
from phaze.placement.strategy.recount_parts import Block, Passed, Tail


@dataclass(frozen=True)
class MixedRecount:
    """One strategy on a pipeline; `each` has it counted as if all devices were as one of them, in their order."""

    each: Sequence[Recount]

    @property
    def figures(self) -> LayerFigures:
        """The layers, on the first device."""
        return self.each[0].figures

    @property
    def division(self) -> Division:
        """The chunks to check."""
        return self.each[0].division

    @property
    def chunks(self) -> list[list[Block]]:
        """Groups of layers of every chunk."""
        return self.each[0].chunks

    @property
    def devices(self) -> list[list[int]]:
        """Chunks of every device."""
        return self.each[0].devices

    @cached_property
    def passes(self) -> list[tuple[Passed, Passed, Passed]]:
        """Forward, forward again and backward of every chunk, on the first of its devices."""
        return [self.each[self._device(chunk)].passes[chunk] for chunk in range(len(self.chunks))]

    def _device(self, chunk: int) -> int:
        return next(device for device, own in enumerate(self.devices) if chunk in own)

    @cached_property
    def transfers_s(self) -> list[float]:
        """From each chunk to the next: both devices take part, the slower one says how long."""
        found = []
        for way in range(len(self.chunks) - 1):
            ends = (self.each[self._device(chunk)] for chunk in (way, way + 1))
            found.append(max(end.transfers_s[way] for end in ends))
        return found

    def tail(self, device: int) -> Tail:
        """What follows the last microbatch of a device; a sum of both ends ends for both at once."""
        found, ends = self.each[device].tail(device), (self.each[0], self.each[-1])
        if device not in (0, len(self.each) - 1):
            return found
        late_s = max(one.tied_s(device) for one in ends) - self.each[device].tied_s(device)
        return replace(found, reduction_s=found.reduction_s + late_s)

    def memory(self, device: int, order: Order) -> dict[str, float]:
        """Bytes on a device that runs its actions in an order."""
        return self.each[device].memory(device, order)
