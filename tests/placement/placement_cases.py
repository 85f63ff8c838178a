"""Random small placement problems, and their optimum by enumeration, written from the definitions alone."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations, pairwise
from math import ceil, inf

import numpy as np
from hypothesis import strategies as st

from phaze.hardware.network import two_tiers
from phaze.hardware.tiers import LinkLaw, Tier
from phaze.placement.cluster import Cluster, FixedDegrees, Recompute
from phaze.placement.planner import Planner, Rates
from phaze.scheduling.layers import LayerTimes
from phaze.workload.degrees import Sharding
from phaze.workload.work import Layer, LayerChain, Pass
from phaze.workload.workload import Numerics

EMPTY = Pass((), ())
FREE = st.just(FixedDegrees())


@dataclass(frozen=True)
class Case:
    planner: Planner
    forward_s: tuple[float, ...]
    backward_s: tuple[float, ...]
    link: float
    optimizer: float

    @property
    def times(self):
        return LayerTimes(np.array([self.forward_s]), np.array([self.backward_s]))

    @property
    def rates(self):
        return Rates(np.array([self.link]), np.array([self.optimizer]))

    def iteration_s(self):
        return float(self.planner.iteration_s(self.times, self.rates)[0][0])

    def best(self):
        return self.planner.best(self.times, self.rates)

    def change(self, **what):
        return replace(self, planner=replace(self.planner, **what))

    def in_network(self, **what):
        cluster = self.planner.cluster
        return self.change(cluster=replace(cluster, network=cluster.network.changed(**what)))


@st.composite
def cases(draw, fixed=FREE, max_layers=7):
    """Small numbers, so that ties, infeasible memory and costs of every size occur."""

    def number(high, low=0):
        return draw(st.integers(low, high))

    drawn = draw(st.lists(st.integers(0, 3), min_size=1, max_size=max_layers))
    index = tuple(sorted(set(drawn)).index(kind) for kind in drawn)
    kinds = max(index) + 1
    training = draw(st.booleans())
    keeps_cache = not training and draw(st.booleans())
    layers = tuple(
        Layer(
            kind=str(k),
            forward=EMPTY,
            backward=EMPTY if training else None,
            parameters=number(5),
            saved_bytes=0.0 if keeps_cache else float(number(6)),
            working_bytes=float(number(3)),
            input_bytes=float(number(3)),
            output_bytes=float(number(12)),
            model_flops=1.0,
            cache_bytes=0.0 if training else float(number(4)),
        )
        for k in range(kinds)
    )
    width, microbatch = draw(st.sampled_from([1, 1, 2])), draw(st.sampled_from([1, 2]))
    names = tuple(map(str, range(len(index))))
    chain = LayerChain("random", microbatch, Sharding(width), layers, index, names, keeps_cache)
    network = two_tiers(
        scale_up_devices=draw(st.sampled_from([2, 4, 8])),
        scale_up_bandwidth_bytes_per_s=draw(st.sampled_from([None, None, 3.0])),
        scale_up_latency_s=draw(st.sampled_from([0.0, 0.25])),
        scale_out_bandwidth_bytes_per_s=draw(st.sampled_from([0.5, 2.0, 8.0])),
        scale_out_latency_s=draw(st.sampled_from([0.0, 0.5])),
    )
    if draw(st.booleans()):
        middle = Tier(
            devices=2 * network.scale_up_devices,
            bandwidth_bytes_per_s=draw(st.sampled_from([1.0, 3.0])),
            law=LinkLaw(step_s=draw(st.sampled_from([0.0, 0.25])), efficiency=0.5),
            oversubscription=draw(st.sampled_from([1.0, 2.0])),
        )
        network = network.model_copy(update={"tiers": (network.tiers[0], middle, network.tiers[1])})
    recompute = draw(st.sampled_from(list(Recompute))) if training else Recompute.NONE
    asked = draw(fixed)
    if recompute is Recompute.FULL and draw(st.booleans()):
        asked = replace(asked, recompute=recompute)
    planner = Planner(
        chain=chain,
        numerics=Numerics(4.0, 2.0, 1.0, 1.0) if training else Numerics(2.0, 0.0, 0.0, 0.0),
        cluster=Cluster(number(8, width), microbatch * number(9, 1), network),
        recompute=recompute,
        memory_bytes=float(number(120, 5)),
        fixed=asked,
    )
    seconds = [(float(number(9)), float(number(9)) if training else 0.0) for _ in layers]
    return Case(planner, *zip(*seconds, strict=True), draw(st.sampled_from([1.0, 4.0])), number(2) / 4)


def fixed_full(planner):
    """Whether full recompute was asked for, so that the last stage recomputes as well."""
    return planner.fixed.recompute is Recompute.FULL


def optimum_s(case):
    """Least iteration time over every data degree, stage count and partition; infinite if nothing fits."""
    planner, fixed = case.planner, case.planner.fixed
    cluster, chain = planner.cluster, planner.chain
    layers = len(chain.index)
    microbatches = cluster.global_batch // chain.microbatch
    best = inf
    for d in [fixed.data_parallel] if fixed.data_parallel else range(1, cluster.devices + 1):
        for stages in [fixed.pipeline_parallel] if fixed.pipeline_parallel else range(1, layers + 1):
            if d > microbatches or d * stages * chain.tensor_parallel > cluster.devices:
                continue
            for cuts in combinations(range(1, layers), stages - 1):
                best = min(best, plan_s(case, d, (0, *cuts, layers)))
    return best


def plan_s(case, d, ends):
    """Iteration time of one plan; infinite if it does not fit in memory."""
    planner = case.planner
    chain, cluster, network = planner.chain, planner.cluster, planner.cluster.network
    layers = [chain.layers[i] for i in chain.index]
    each = ceil(cluster.global_batch // chain.microbatch / d)
    stages, width = len(ends) - 1, chain.tensor_parallel

    def tier(devices):
        one = next(t for t in network.tiers if t.devices is None or t.devices >= devices)
        pace = case.link if one.bandwidth_bytes_per_s is None else one.bandwidth_bytes_per_s
        return pace * one.law.efficiency / one.oversubscription, one.law.step_s

    training = layers[0].backward is not None

    def seconds(size, pace):
        return 0.0 if size == 0 else size / pace if pace else inf

    def cut_s(position):
        if position in (0, len(layers)):
            return 0.0
        size = layers[position - 1].output_bytes
        pace, wait = tier(d * width * stages)
        inner_pace, inner_wait = tier(width)
        gather = seconds(size * (width - 1) / width, inner_pace) + (width - 1) * inner_wait
        return (2 if training else 1) * (seconds(size / width, pace) + wait) + gather

    slowest, largest = 0.0, 0
    for number, (first, end) in enumerate(pairwise(ends)):
        from_end = stages - number
        mine, held = layers[first:end], min(from_end, each)
        state = planner.numerics.state_bytes * sum(x.parameters for x in mine)
        state += (each if chain.keeps_cache else 1) * sum(x.cache_bytes for x in mine)
        keeping = state + held * sum(x.saved_bytes for x in mine) + max(x.working_bytes for x in mine)
        redoing = (
            state
            + held * sum(x.input_bytes for x in mine)
            + max(x.working_bytes + x.saved_bytes for x in mine)
        )
        full = planner.recompute is Recompute.FULL
        everywhere = fixed_full(planner)
        again = full and (from_end > 1 or everywhere or keeping > planner.memory_bytes)
        if (redoing if again else keeping) > planner.memory_bytes:
            return inf
        work = sum(
            case.forward_s[i] * (2 if again else 1) + case.backward_s[i] for i in chain.index[first:end]
        )
        slowest = max(slowest, work + cut_s(first) + cut_s(end))
        largest = max(largest, sum(x.parameters for x in mine))
    pace, wait = tier(d * width)
    gradients = planner.numerics.gradient_bytes * largest
    reduction = seconds(2 * (d - 1) / d * gradients, pace) + (2 * (d - 1) * wait if training else 0.0)
    return slowest * (each + stages - 1) + reduction + (largest * case.optimizer if training else 0.0)
