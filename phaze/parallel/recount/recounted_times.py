"""Recount of the times of a plan in plain loops: chunks and synchronisation, also where architectures differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from phaze.cost.optimizer_step import optimizer_s_per_parameter
from phaze.parallel.chunk_division import Division
from phaze.parallel.parallel_plan import Offload, Zero
from phaze.parallel.pipelines.action_order import ActionOrder
from phaze.parallel.pipelines.pipeline_schedule import Schedule
from phaze.parallel.recount.recounted_memory import RecountedMemory
from phaze.parallel.recount.recounted_parts import (
    RecountedGroup,
    RecountedPass,
    RecountedSync,
    backward_s,
    forward_s,
    through_s,
)
from phaze.parallel.training.layer_costs import LayerCosts
from phaze.workload.work import Collective

_HOST = ("host_bandwidth_bytes_per_s", "host_memory_bandwidth_bytes_per_s")


@dataclass(frozen=True)
class Recount(RecountedMemory):
    """One plan on one architecture of a cluster; `figures`, `division`: the layers, and the chunks to check."""

    _counted: dict[RecountedGroup, tuple[RecountedPass, RecountedPass, RecountedPass]] = field(
        default_factory=dict
    )
    _synchronised: dict[int, RecountedSync] = field(default_factory=dict)

    # -- passes

    @cached_property
    def passes(self) -> list[tuple[RecountedPass, RecountedPass, RecountedPass]]:
        """Forward, forward again and backward of every chunk."""
        if self.plan.offload and self._swaps:
            return self._swapping_passes()
        alike: dict[tuple[RecountedGroup, ...], tuple[RecountedPass, RecountedPass, RecountedPass]] = {}
        for blocks in map(tuple, self.chunks):
            if blocks not in alike:
                alike[blocks] = self._passes(blocks)
                self._wait(alike[blocks], len(self.chunks))
        return [alike[tuple(blocks)] for blocks in self.chunks]

    @property
    def _swaps(self) -> bool:
        """Whether weights and gradients move once for each chunk, all microbatches of which run together."""
        return self.plan.schedule is Schedule.BREADTH_FIRST

    def _swapping_passes(self) -> list[tuple[RecountedPass, RecountedPass, RecountedPass]]:
        """The same where chunks of a device wait for one another to be moved."""
        found = [self._passes(blocks) for blocks in self.chunks]
        for own in self.devices:
            self._swap([found[c][0] for c in own], own, turned=False)
            self._swap(
                [found[c][2] for c in own[::-1]],
                own[::-1],
                turned=True,
                again=[found[c][1] for c in own[::-1]],
            )
        for three in found:
            self._wait(three, len(found))
        return found

    def _swap(
        self,
        sides: Sequence[RecountedPass],
        own: Sequence[int],
        *,
        turned: bool,
        again: Sequence[RecountedPass] = (),
    ) -> None:
        """What a microbatch waits in each chunk of a device for weights that come and gradients that leave, once each.

        A clock of the device, its link in and its link out, chunk by chunk; room for two chunks each way.
        """
        link, m = float(self.table[_HOST[0]][0]), self.microbatches
        now = came = 0.0
        ended, left = [0.0, 0.0], [0.0, 0.0]
        kept_before = 0.0
        for place, (side, chunk) in enumerate(zip(sides, own, strict=True)):
            moved = [self._moved_bytes(block) for block in self.chunks[chunk]]
            weights, kept, gradients = (sum(column) for column in zip(*moved, strict=True))
            gradients *= turned
            if not self.framework.hides_offload:
                side.moved_s += (weights + gradients) / link / m
                continue
            computes = m * (side.device_s + (again[place].device_s if turned else 0.0))
            came = max(came, ended[place]) + (m * kept_before + weights) / link
            start, kept_before = max(now, came, left[place]), kept * turned
            end = start + computes
            left.append(max(left[-1], end) + gradients / link)
            finish = max(end, left[-1]) if turned and place + 1 == len(own) else end
            side.moved_s += (finish - now - computes) / m
            now = end
            ended.append(end)

    def _passes(self, blocks: Sequence[RecountedGroup]) -> tuple[RecountedPass, RecountedPass, RecountedPass]:
        sides = forward, recomputation, backward = RecountedPass(), RecountedPass(), RecountedPass()
        alone_s: dict[RecountedGroup, tuple[float, float]] = {}
        for block, times in Counter(blocks).items():
            each = one, two, three = self._alone(block)
            for side, some in zip(sides, each, strict=True):
                side.join(some, times)
            alone_s[block] = one.layers_s, two.layers_s + three.layers_s
        ahead_s, behind_s = ([alone_s[block][turn] for block in blocks] for turn in (0, 1))
        self._exchange(forward, blocks, ahead_s, turned=False)
        self._exchange(backward, blocks, behind_s, turned=True)
        if self.plan.offload:
            self._move(forward, blocks, ahead_s, turned=False)
            self._move(backward, blocks, behind_s, turned=True)
        return forward, recomputation, backward

    def _alone(self, block: RecountedGroup) -> tuple[RecountedPass, RecountedPass, RecountedPass]:
        """Forward, forward again and backward of one group of layers; of equal ones only once."""
        if block in self._counted:
            return self._counted[block]
        framework, costs = self.framework, self.layer_costs
        one, two, three = RecountedPass(), RecountedPass(), RecountedPass()
        for together in block.again:
            for place in together:
                side = costs.ending if place == together[-1] else costs.recomputation
                two.add(side, block.layers[place], framework, framework.dispatch_s)
        for layer in block.layers:
            one.add(costs.forward, layer, framework, framework.dispatch_s)
            three.add(costs.backward, layer, framework, framework.dispatch_backward_s)
        self._counted[block] = one, two, three
        return one, two, three

    def _exchange(
        self,
        side: RecountedPass,
        blocks: Sequence[RecountedGroup],
        compute_s: Sequence[float],
        *,
        turned: bool,
    ) -> None:
        """Exchanges of ZeRO in a pass: what they add, and what computation hides of them."""
        s, framework = self.plan, self.framework
        gathers = s.zero is Zero.WEIGHTS and not s.stays_whole and (s.reshards or not turned)
        reduces = turned and s.zero >= Zero.GRADIENTS and framework.reduces_every_microbatch
        alike = dict.fromkeys(block.layers for block in blocks)
        mixed = self._mixes
        gathered = {one: self._gathering_s(one) if gathers or mixed else 0.0 for one in alike}
        reduces = reduces or (mixed and turned and framework.reduces_every_microbatch)
        reduced = {one: self._reducing_s(one) if reduces else 0.0 for one in alike}
        gather = [gathered[block.layers] * (block.sharded or not mixed) for block in blocks]
        reduce = [reduced[block.layers] * (block.sharded or not mixed) for block in blocks]
        if not (any(gather) or any(reduce)):
            return
        if not framework.hides_gathers:
            side.gathered_s, side.reduced_s = sum(gather), sum(reduce)
            return
        both = alone = self._beside_s(blocks, compute_s, gather, reduce, turned=turned)
        if not any(gather):
            alone = 0.0, 0.0
        elif any(reduce):
            alone = self._beside_s(blocks, compute_s, gather, [0.0] * len(blocks), turned=turned)
        side.gathered_s = alone[0]
        side.reduced_s = both[0] - side.gathered_s
        side.hidden_s += sum(gather) + sum(reduce) - both[1]

    @cached_property
    def _mixes(self) -> bool:
        """Whether replicas divide the weights of some blocks and keep those of others whole."""
        return any(block.sharded for chunk in self.chunks for block in chunk)

    def _gathering_s(self, layers: tuple[int, ...]) -> float:
        """Weights of a group, in as many exchanges as the framework makes of it."""
        framework, held = self.framework, self.parameters(layers)
        ranks = self.ranks * (self.plan.sharding.tensor if held.replicated > 0 else 1)
        copied = framework.gather_rank_s * ranks if held.total > 0 and self.wire_bytes[0] > 0 else 0.0
        return framework.gathers * (self.gather_s(self.wire_bytes[0] / framework.gathers, held) + copied)

    def _reducing_s(self, layers: tuple[int, ...]) -> float:
        return self.reduce_s(self.wire_bytes[1], self.parameters(layers))

    def _beside_s(
        self,
        blocks: Sequence[RecountedGroup],
        compute_s: Sequence[float],
        gather_s: Sequence[float],
        reduce_s: Sequence[float],
        *,
        turned: bool,
    ) -> tuple[float, float]:
        """Seconds that exchanges beside computation add to a pass, with and without what they slow it down by."""
        alone = sum(compute_s)
        beside = min(sum(gather_s) + sum(reduce_s), alone)
        slower = 1 + self.framework.interference * (beside / alone if alone > 0 else 0.0)
        run = backward_s if turned else forward_s
        repeats = [block.sharded if self._mixes else block.repeats for block in blocks]
        added = (run(repeats, [f * c for c in compute_s], gather_s, reduce_s) - alone for f in (slower, 1.0))
        return next(added), next(added)

    def _move(
        self,
        side: RecountedPass,
        blocks: Sequence[RecountedGroup],
        compute_s: Sequence[float],
        *,
        turned: bool,
    ) -> None:
        """Transfers with the host in a pass: the longer of these waits and those for other devices counts."""
        link, inward, outward = float(self.table[_HOST[0]][0]), [], []
        for block in blocks:
            weights, kept, gradients = self._moved_bytes(block)
            if self._swaps:
                weights = gradients = 0.0
            inward.append((weights + kept if turned else weights) / link)
            outward.append((gradients if turned else kept) / link)
        if not self.framework.hides_offload:
            side.moved_s = sum(inward) + sum(outward)
            return
        turn = slice(None, None, -1) if turned else slice(None)
        through = through_s(list(compute_s)[turn], inward[turn], outward[turn], drains=turned)
        waits = through - sum(compute_s)
        side.moved_s = max(waits - side.gathered_s - side.reduced_s, 0.0)

    def _moved_bytes(self, block: RecountedGroup) -> tuple[float, float, float]:
        """Weights, activations and gradients of a group that cross the link to the host in a pass."""
        s, held, (weight, gradient) = self.plan, self.parameters(block.layers), self.wire_bytes
        divided = self.divided(held)
        return (
            weight * (divided if s.zero >= Zero.WEIGHTS else held.total) * (Offload.WEIGHTS in s.offload),
            self.kept_bytes(block) * (Offload.ACTIVATIONS in s.offload),
            gradient
            * (divided if s.zero >= Zero.GRADIENTS else held.total)
            * (Offload.OPTIMIZER in s.offload),
        )

    def _wait(self, three: tuple[RecountedPass, RecountedPass, RecountedPass], chunks: int) -> None:
        """Waits of the device for launches of a microbatch's passes."""
        framework = self.framework
        launched = [side.launched_s for side in three]
        launched[0] += framework.microbatch_s / chunks
        busy = [side.device_s for side in three]
        missing = max(sum(launched) - sum(busy), 0.0)
        for side, launch, device in zip(three, launched, busy, strict=True):
            if framework.blocking:
                side.waited_s = launch
            elif framework.waits:
                side.waited_s = max(launch - device, 0.0)
            else:
                side.waited_s = missing * device / sum(busy) if sum(busy) > 0 else 0.0

    # -- what follows

    def gradient_sync(self, device: int) -> RecountedSync:
        """Gradient synchronisation after the last microbatch of a device."""
        if device not in self._synchronised:
            self._synchronised[device] = self._gradient_sync(device)
        return self._synchronised[device]

    def _gradient_sync(self, device: int) -> RecountedSync:
        s, framework, own = self.plan, self.framework, self.devices[device]
        blocks = [block for c in own for block in self.chunks[c]]
        whole = [block for block in blocks if not block.sharded]
        late_blocks = whole if framework.reduces_every_microbatch else blocks
        held, kept, summed = map(self.parameters_of, (blocks, whole, late_blocks))
        weight, gradient = self.wire_bytes
        late = s.zero < Zero.GRADIENTS or not framework.reduces_every_microbatch
        apart = s.zero in (Zero.OPTIMIZER, Zero.GRADIENTS) or s.stays_whole
        reduce, gather = (
            self.reduce_s(gradient, summed) * late,
            self.gather_s(weight, kept) * apart,
        )
        behind = self._window * sum(self.passes[c][1].pass_s + self.passes[c][2].pass_s for c in own)
        ahead = self._window * sum(self.passes[c][0].pass_s for c in own)
        reduced = self._late_s(behind, reduce, len(late_blocks)) if framework.hides_reduction else reduce
        gathered = self._late_s(ahead, gather, len(whole)) if framework.hides_gathers else gather
        mine = self.divided(held) if s.zero else held.total
        return RecountedSync(
            reduced + self.tied_s(device),
            mine * self._step_s * framework.optimizer_stretch,
            gathered,
            max(reduce - reduced, 0.0) + max(gather - gathered, 0.0),
        )

    @property
    def _window(self) -> float:
        """Passes of a microbatch that exchanges at the ends of an iteration have beside them."""
        s = self.plan
        if s.schedule not in (Schedule.INTERLEAVED, Schedule.BREADTH_FIRST):
            return 1.0
        together = s.pipeline_parallel if s.schedule is Schedule.INTERLEAVED else self.microbatches
        return (1 + (s.chunks - 1) * min(together, self.microbatches)) / s.chunks

    def _late_s(self, beside_s: float, exchange_s: float, pieces: int) -> float:
        """Exposed communication: seconds that an exchange of equal pieces adds to the computation beside it."""
        count = max(pieces, 1)
        exposed = max(exchange_s / count, exchange_s - beside_s * (count - 1) / count)
        return exposed + self.framework.interference * min(exchange_s - min(exposed, exchange_s), beside_s)

    def tied_s(self, device: int) -> float:
        """Sum of gradients of a table that the first and the last device both have, each its own."""
        s, gradient = self.plan, self.wire_bytes[1]
        if s.joins_ends or device not in (0, s.pipeline_parallel - 1):
            return 0.0
        tied = sum(elements for _, elements in self.layers[self.layer_costs.chain.index[0]].tied)
        apart = s.pipeline_stride * (s.pipeline_parallel - 1)
        return self.exchange_s(Collective.ALL_REDUCE, gradient * tied, 2, apart)

    @cached_property
    def _step_s(self) -> float:
        """Seconds of the optimizer per parameter, on the device or its host; new weights go where they are needed."""
        s, numerics = self.plan, self.numerics
        step = float(optimizer_s_per_parameter(self.table, numerics)[0])
        if Offload.OPTIMIZER in s.offload:
            step = numerics.optimizer_traffic_bytes / float(self.table[_HOST[1]][0])
        if (Offload.OPTIMIZER in s.offload) != (Offload.WEIGHTS in s.offload):
            step += self.wire_bytes[0] / float(self.table[_HOST[0]][0])
        return step


@dataclass(frozen=True)
class MixedRecount:
    """One plan on a pipeline; `each` has it counted as if all devices were as one of them, in their order."""

    each: Sequence[Recount]

    @property
    def layer_costs(self) -> LayerCosts:
        """The layers, on the first device."""
        return self.each[0].layer_costs

    @property
    def division(self) -> Division:
        """The chunks to check."""
        return self.each[0].division

    @property
    def chunks(self) -> list[list[RecountedGroup]]:
        """Groups of layers of every chunk."""
        return self.each[0].chunks

    @property
    def devices(self) -> list[list[int]]:
        """Chunks of every device."""
        return self.each[0].devices

    @cached_property
    def passes(self) -> list[tuple[RecountedPass, RecountedPass, RecountedPass]]:
        """Forward, forward again and backward of every chunk, on the first of its devices."""
        return [self.each[self._device(chunk)].passes[chunk] for chunk in range(len(self.chunks))]

    def _device(self, chunk: int) -> int:
        return next(device for device, own in enumerate(self.devices) if chunk in own)

    @cached_property
    def transfers_s(self) -> list[float]:
        """Seconds of a transfer from each chunk to the next: both devices take part, the slower one says how long."""
        found = []
        for way in range(len(self.chunks) - 1):
            ends = (self.each[self._device(chunk)] for chunk in (way, way + 1))
            found.append(max(end.transfers_s[way] for end in ends))
        return found

    def gradient_sync(self, device: int) -> RecountedSync:
        """Gradient synchronisation after the last microbatch of a device; a sum of both ends ends for both at once."""
        found, ends = self.each[device].gradient_sync(device), (self.each[0], self.each[-1])
        if device not in (0, len(self.each) - 1):
            return found
        late_s = max(one.tied_s(device) for one in ends) - self.each[device].tied_s(device)
        return replace(found, reduction_s=found.reduction_s + late_s)

    def memory(self, device: int, order: ActionOrder) -> dict[str, float]:
        """Bytes on a device that runs its actions in an order."""
        return self.each[device].memory(device, order)
