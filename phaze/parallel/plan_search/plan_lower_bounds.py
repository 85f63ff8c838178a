"""Lower bounds on the iterations of many plans: their pipelines, and the gradient synchronisation after them."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from phaze.arrays import Floats, Integers
from phaze.parallel.framework import Framework
from phaze.parallel.parallel_plan import ParallelPlan
from phaze.parallel.pipelines.pipeline_schedule import Schedule, chunks_of
from phaze.parallel.training.exchanges.gradient_sync import DeviceParameters, overlap_window
from phaze.parallel.training.iteration_estimate import Estimator
from phaze.parallel.training.stage_times import ChunkPasses, ZeroExchanges, zero_traffic


def busy_bound_s(schedule: Schedule, stages: int, passes: ChunkPasses, microbatches: ArrayLike) -> Floats:
    """Lower bound of pipelines (n,) whose chunks have such passes (n, C), or longer, of so many microbatches (n,).

    A device does the work of its chunks for every microbatch that comes to its copies of them. Before the first, one
    comes through the chunks ahead; after the last backward pass, gradients go back through them. Where a schedule puts
    weight gradients off these may run meanwhile, and only the device's own share of the passes is sure. In 1F1B a
    device may have too little to do while its first and its last microbatch pass through the chunks behind it.
    """
    own = chunks_of(schedule, stages, passes.weight_s.shape[-1] // stages)
    each = (np.asarray(microbatches) // schedule.weight_copies)[..., None]
    ahead_s, turned_s = passes.passes_s
    work = ahead_s + turned_s
    device = each * _over(np.add, work, own)
    if schedule is Schedule.ONE_F_ONE_B:
        device = np.maximum(device, _turning_s(passes, work, np.asarray(microbatches)[..., None]))
    if not schedule.splits_backward:
        return np.asarray((device + _least_ahead(work, own)).max(axis=-1))
    forward, recomputation, backward = passes.device_s
    back = _least_ahead(np.maximum(recomputation + backward - passes.weight_s, 0.0), own)
    late = np.maximum(back - each * _over(np.add, passes.weight_s, own), 0.0)
    return np.asarray((_least_ahead(forward, own) + device + late).max(axis=-1))


def _turning_s(passes: ChunkPasses, work: Floats, microbatches: Integers) -> Floats:
    """`turning_s` of every device of 1F1B, (n, p), of microbatches (n, 1)."""
    behind = work.sum(axis=-1, keepdims=True) - np.cumsum(work, axis=-1)
    ahead = np.minimum(np.arange(work.shape[-1])[::-1], microbatches - 1)
    forward, recomputation, backward = passes.device_s
    return turning_s(behind, ahead, work, forward, recomputation + backward, microbatches)


def turning_s(
    behind: Floats, ahead: Integers, work: Floats, forward: Floats, turned: Floats, microbatches: Integers
) -> Floats:
    """Seconds of devices of 1F1B, (...), from first start to last end, at least, as they wait for gradients.

    A device runs k forward passes, `ahead`, before the first gradient is back, k backward passes before the last one
    is, with k = p - 1 - i of device i: both times it is kept until all later chunks have done with a microbatch, which
    takes them `behind`. Of what it does besides, a forward pass comes with every backward pass, both of which are
    `work`, or where the last microbatch began before the first was back, only the passes themselves are sure,
    `forward` and `turned`.
    """
    twice = 2 * behind + (microbatches - ahead) * work
    once = behind + forward + (microbatches - ahead - 1) * work + (ahead + 1) * turned
    found: Floats = np.where(microbatches > ahead + 1, np.maximum(twice, once), once)
    return found


def least_rounds(stages: int, microbatches: Integers) -> Floats:
    """At least `busy_bound_s` of 1F1B of one chunk per device, (n,), however a second of work is cut into stages.

    With work w_i of p devices, W in all, A_i before and U_i behind device i, and m microbatches: from m w_i + A_i <= T
    for every device W <= T (1 - (1 - 1/m)^p). Where m > p also W + U_i + (m - p + i) w_i <= T. The means of both over
    all devices are m/p W + ((p-1) W - S)/p and m/p W + 2 S/p, with S the sum of i w_i: a third of the second and two of
    the first leave (m + 2/3 (p - 1))/p W.
    """
    m = np.asarray(microbatches, dtype=np.float64)
    found: Floats = 1 / (1 - (1 - 1 / m) ** stages)
    return np.where(m > stages, np.maximum(found, (m + 2 / 3 * (stages - 1)) / stages), found)


def _least_ahead(seconds: Floats, own: NDArray[np.int64]) -> Floats:
    """Least seconds of all chunks ahead of a device's first one, (n, p)."""
    return _over(np.minimum, np.cumsum(seconds, axis=-1) - seconds, own)


def _over(combine: np.ufunc, seconds: Floats, own: NDArray[np.int64]) -> Floats:
    """Seconds of chunks (n, C) combined over those of every device (p, slots), (n, p); of one each as they are."""
    if own.shape[1] == 1:
        found: Floats = seconds[..., own[:, 0]]
        return found
    return np.asarray(combine.reduce(seconds[..., own], axis=-1))


_LONG_S = 1e30  # computation that any exchange hides behind


@cache
def _places(schedule: Schedule, stages: int, chunks: int) -> bytes:
    """Chunks of all devices, as a key."""
    return chunks_of(schedule, stages, chunks).tobytes()


def rest_key(estimator: Estimator, plan: ParallelPlan) -> Hashable:
    """Key of plans to which `rest_s` comes to the same, for as many ZeRO stages, orders and choices of hosts.

    Microbatches and recompute aside these have the same parameters in the same places, and as much to hide behind.
    """
    e, s, microbatches = estimator, plan, estimator.microbatches(plan)
    runs = 0 if _hides_in_passes(e.framework) else microbatches // s.schedule.weight_copies
    return (
        *(e.layouts.sizes(s).content(s.grain), id(e.division(s)), s.sharding, s.data_parallel, runs),
        *(_places(s.schedule, s.pipeline_parallel, s.chunks), s.chunks, overlap_window(s, microbatches)),
    )


def _hides_in_passes(framework: Framework) -> bool:
    """Whether nothing is known of exchanges of ZeRO in the passes of a microbatch before these are known."""
    return framework.hides_gathers or not framework.launches_add_up


def rest_s(estimator: Estimator, pipelines: Sequence[Sequence[ParallelPlan]]) -> list[float]:
    """Lower bound of what the fastest plan takes beyond a pipeline without exchanges of ZeRO, whatever is recomputed.

    Of each of several pipelines, whose plans differ in ZeRO and order. Passes may be longer than they are known
    to be: the least of what follows them is where they hide most of it, or nothing.
    """
    e, framework = estimator, estimator.framework
    plans = [s for some in pipelines for s in some]
    which = np.repeat(np.arange(len(pipelines)), [len(some) for some in pipelines])
    counts, tied, sizes = _distinct(e, [some[0] for some in pipelines])
    every, experts, whole = np.einsum("nkg,ing->ink", counts, sizes)[:, which]
    held = DeviceParameters(every - experts - whole, experts, whole, counts.sum(axis=2)[which], tied[which])
    exchanges, none = e.exchanges(*plans), np.zeros(every.shape)
    hides = framework.hides_reduction or framework.hides_gathers
    beside = [none, none + _LONG_S] if hides else [none]
    syncs = e.gradient_syncs_beside(exchanges, held, [(passes_s, passes_s) for passes_s in beside])
    total_s = np.min([one.total_s for one in syncs], axis=0)
    found = total_s.max(axis=1) + framework.iteration_s
    if not _hides_in_passes(framework):
        moving = ZeroExchanges(sizes[:, which], np.arange(sizes.shape[2]), exchanges, framework)
        sides = zip(*(zero_traffic(s, framework, e.rates.wire_bytes) for s in plans), strict=True)
        groups_s = np.sum([moving.groups_s(side) for side in sides], axis=(0, 1))
        each = [e.microbatches(s) // s.schedule.weight_copies for s in plans]
        found += each * np.einsum("vkg,vg->vk", counts[which], groups_s).min(axis=1)
    first = np.searchsorted(which, np.arange(len(pipelines)))
    least: list[float] = np.minimum.reduceat(found, first).tolist()
    return least


def _distinct(estimator: Estimator, pipelines: Sequence[ParallelPlan]) -> tuple[Floats, Floats, Floats]:
    """Groups of each kind on distinct devices, (N, K, G), and parameters that these share with another stage, (N, K).

    Last, `LayerSizes.parameters` of the kinds, (3, N, G). Pipelines of fewer kinds than others have some devices
    twice, or groups without parameters.
    """
    each = [_devices(estimator, s) for s in pipelines]
    most = np.max([devices.shape for devices, _ in each], axis=0)
    found, sizes = np.zeros((len(each), *most)), np.zeros((3, len(each), most[1] - 1))
    for row, (devices, own) in enumerate(each):
        found[row, :, : devices.shape[1]] = devices[np.minimum(np.arange(most[0]), len(devices) - 1)]
        sizes[:, row, : own.shape[1]] = own
    return found[..., 1:], found[..., 0], sizes


def _devices(estimator: Estimator, plan: ParallelPlan) -> tuple[Floats, Floats]:
    """The same of one pipeline, tied parameters in front of the groups."""
    s, layers = plan, estimator.layouts.sizes(plan)
    sizes, which = layers.sizes(s.grain)
    chunks = np.add.reduceat(np.eye(sizes.shape[1])[which], estimator.division(s).first_groups, axis=0)
    devices = chunks[chunks_of(s.schedule, s.pipeline_parallel, s.chunks)].sum(axis=1)
    tied = np.zeros((len(devices), 1))
    tied[[0, -1]] = layers.tied_parameters
    rows = np.concatenate([tied, devices], axis=1).tolist()
    return np.array([*dict.fromkeys(map(tuple, rows))]), sizes
