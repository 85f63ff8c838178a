"""Bytes on every device of a plan, from the definitions, for `recount`."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass

import numpy as np

from phaze.placement.pipelines.order import Kind, Order
from phaze.placement.pipelines.schedule import Schedule
from phaze.placement.strategy.recount_layers import RecountedLayers
from phaze.placement.strategy.recount_parts import Block, Parameters
from phaze.placement.strategy.strategy import Offload, Zero
from phaze.workload.operators.operator_graph import OpKind
from phaze.workload.work import Layer


@dataclass(frozen=True)
class RecountedMemory(RecountedLayers):
    """Memory of a strategy."""

    def kept_bytes(self, block: Block) -> float:
        """What a microbatch keeps of a group until its backward pass, on the device unless activations are away."""
        s, layers = self.strategy, [self.layers[i] for i in block.layers]
        if not block.again:
            return sum(layer.saved_bytes + layer.cache_bytes for layer in layers)
        found = sum(self._results_bytes(layer, s.kept) for layer in layers)
        return found if "input" in s.offloaded else found + self._input_bytes(block)

    def away_bytes(self, block: Block) -> float:
        """What its host keeps of a group that recomputes."""
        s = self.strategy
        if not block.again:
            return 0.0
        found = sum(self._results_bytes(self.layers[i], s.offloaded) for i in block.layers)
        return found + self._input_bytes(block) if "input" in s.offloaded else found

    def _input_bytes(self, block: Block) -> float:
        sharding = self.strategy.sharding
        return self.layers[block.layers[0]].input_bytes / (sharding.tensor if sharding.sequence else 1)

    def _results_bytes(self, layer: Layer, names: Set[str]) -> float:
        works = [w for w in layer.forward.works if w.gemms and w.name.split("+")[0] in names]
        return float(sum(w.gemms[-1].c_bytes for w in works))

    def working_bytes(self, block: Block) -> float:
        """Alive only while a group runs: where it recomputes, all it keeps for its own backward pass as well."""
        layers = [self.layers[i] for i in block.layers]
        kept = sum(layer.saved_bytes for layer in layers) if block.again else 0.0
        return max(layer.working_bytes for layer in layers) + kept

    def memory(self, device: int, order: Order) -> dict[str, float]:
        """Bytes on a device that runs its actions in an order, by what they hold (`MemoryBreakdown`)."""
        s, said, n = self.strategy, self.framework, self.numerics
        blocks = [block for c in self.devices[device] for block in self.chunks[c]]
        kept, away = (self._most_held(device, order, each) for each in (self.kept_bytes, self.away_bytes))
        held = {**self._states_bytes(blocks), "host_bytes": away}
        moved = {
            Offload.WEIGHTS: ("weights_bytes",),
            Offload.OPTIMIZER: ("gradients_bytes", "optimizer_bytes"),
        }
        for what, names in moved.items():
            for name in names if what in s.offload else ():
                held["host_bytes"] += held[name]
                held[name] = 0.0
        if Offload.ACTIVATIONS in s.offload:
            held["host_bytes"] += kept
            kept = min(kept, 2 * max(self.kept_bytes(block) for block in blocks))
        scores = sum(
            layer.saved_bytes
            for b in blocks
            for i in b.layers
            if (layer := self.layers[i]).kind == OpKind.LOSS
        )
        working = max(map(self.working_bytes, blocks)) + said.score_copies * scores
        lost = 1 + said.fragmentation
        return held | {
            "activations_bytes": lost * kept,
            "working_bytes": lost * working,
            "buffers_bytes": self._passing_bytes(blocks, n.weight_bytes),
            "reserved_bytes": said.reserved_bytes,
        }

    def _most_held(self, device: int, order: Order, each: Callable[[Block], float]) -> float:
        """The most that microbatches keep at once on a device, from its own order of actions.

        A forward pass starts to keep what the end of the weight gradient frees. In prefill caches are handed on.
        """
        bytes_of = np.zeros(len(self.chunks))
        for chunk in self.devices[device]:
            bytes_of[chunk] = sum(map(each, self.chunks[chunk]))
        if not bytes_of.any():
            return 0.0
        if self.strategy.schedule is Schedule.FORWARD:
            return float(bytes_of.max())
        starts = order.kind == Kind.FORWARD
        ends = (order.kind == Kind.BACKWARD) | (order.kind == Kind.WEIGHT_GRADIENT)
        return float(np.cumsum((starts * 1.0 - ends) * bytes_of[order.chunk]).max())

    def _states_bytes(self, blocks: Sequence[Block]) -> dict[str, float]:
        """Weights, gradients and states of the optimizer, wherever they lie."""
        s, said, n = self.strategy, self.framework, self.numerics
        held = sum((self.parameters(block.layers) for block in blocks), Parameters())
        divided, whole = self.divided(held), held.total
        rest = n.state_bytes - n.weight_bytes - n.gradient_bytes
        each = [
            own if told is None else told
            for own, told in (
                (n.weight_bytes, said.weight_bytes),
                (n.gradient_bytes, said.gradient_bytes),
                (rest, said.optimizer_bytes),
            )
        ]
        scaled = sum(self.layers[i].scaled_weight_bytes for block in blocks for i in block.layers)
        less = s.zero >= Zero.GRADIENTS and said.reduces_every_microbatch
        return {
            "weights_bytes": each[0] * divided if s.zero >= Zero.WEIGHTS else each[0] * whole + scaled,
            "gradients_bytes": each[1] * (divided if less else whole),
            "optimizer_bytes": each[2] * (divided if s.zero >= Zero.OPTIMIZER else whole),
        }

    def _passing_bytes(self, blocks: Sequence[Block], weight_bytes: float) -> float:
        """Weights that are whole only for a while, and gradients of two groups on their way to the host."""
        s, said, found = self.strategy, self.framework, 0.0
        sizes = [self.parameters(block.layers).total for block in blocks if block.repeats]
        ends = sum(self.parameters(block.layers).total for block in blocks if not block.repeats)
        two = min(2 * max(sizes, default=0.0), sum(sizes))
        each = weight_bytes if said.gathered_bytes is None else said.gathered_bytes
        if s.zero >= Zero.WEIGHTS:
            found += weight_bytes * ends  # gradients of embeddings and head, to the end of backward
        if s.zero >= Zero.WEIGHTS and not s.reshards and Offload.WEIGHTS not in s.offload:
            found += each * (sum(sizes) + ends)
        elif s.zero >= Zero.WEIGHTS or Offload.WEIGHTS in s.offload:
            found += each * (two + ends)
        if Offload.OPTIMIZER in s.offload:
            gradient = self.numerics.gradient_bytes if said.gradient_bytes is None else said.gradient_bytes
            found += gradient * two / (self.ranks if s.zero >= Zero.GRADIENTS else 1)
        return found
