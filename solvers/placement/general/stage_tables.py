"""Every stage with every option: what it adds to the time, how deep it fits, and lower bounds before any is evaluated.

Pipeline schedules say how many microbatches a stage holds, and give the time of a batch as a maximum of linear
forms. Figures of a stage on a model hold for any data-parallel degree; tables are of one degree.

A stage of depth s (from the end) in a pipeline of depth S, with n microbatches. A slot of work is as long as the
longest of its kind in any stage (1F1B: of a forward and a backward pass together), so the time holds for uneven
stages, too.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields

import numpy as np
from phaze.solvers.arrays import Flags, Floats, Integers
from phaze.solvers.placement.general.general_problem import (
    GeneralProblem,
    Model,
    Recompute,
    Reduced,
    Schedule,
    Transfers,
)
from phaze.solvers.placement.general.layer_levels import Levels


@dataclass(frozen=True)
class Pipeline:
    """One schedule at a number of microbatches and a depth.

    `held[s - 1]`: microbatches whose activations a stage of depth s holds at a time; it does not fall with s.
    `weights` (forms, kinds): seconds per batch are the largest of `weights @ maxima`, where the maxima over
    stages are of the kinds of work (see `kinds`).
    """

    in_flight: Integers
    weights: Floats

    def seconds(self, maxima: Floats) -> float:
        """Seconds per batch."""
        return float((self.weights @ maxima).max())

    @property
    def least_weight(self) -> Floats:
        """Lower bound of what each kind of work adds to the batch per second."""
        least: Floats = self.weights.min(axis=0)
        return least


def kinds(schedule: Schedule) -> tuple[tuple[str, ...], ...]:
    """Works of a stage whose sum is limited by the slowest stage; the reduction comes last."""
    forward, backward, late, reduction = "forward", "backward", "late", "reduction"
    if schedule is Schedule.ONE_F_ONE_B:
        return (forward, backward), (reduction,)
    if schedule.zero_bubble:
        return (forward,), (backward,), (late,), (reduction,)
    return (forward,), (backward,), (reduction,)


def pipeline(problem: GeneralProblem, microbatches: int, depth: int) -> Pipeline:
    """The problem's schedule at a number of microbatches per pipeline and a depth."""
    s = np.arange(1, depth + 1)
    n, fill, schedule = microbatches, depth - 1, problem.schedule
    in_flight = s
    slots = float(n + fill)
    weights = [[slots, slots, 1.0]]
    if schedule is Schedule.ONE_F_ONE_B:
        weights = [[slots, 1.0]]
    elif schedule is Schedule.GPIPE:
        in_flight = np.full_like(s, n)
    elif schedule is Schedule.INTERLEAVED:
        groups = depth // problem.virtual_stages
        whole, rest = np.divmod(2 * s - 1, depth)
        in_flight = groups * whole + np.minimum(groups, rest)
        slots = float(-(-n // groups) * depth + groups - 1)
        weights = [[slots, slots, float(problem.virtual_stages)]]
    else:
        twice = 2 if schedule is Schedule.ZB_H2 else 1
        # Those whose weight gradients are late come on top of those that await the backward pass.
        in_flight = np.full_like(s, twice * fill + 1)
        moved = min(twice * fill, n - 1)
        weights = [[n, n, n, 1.0], [slots, slots, float(n - moved), 1.0]]
    if problem.conventions.in_flight_capped:
        in_flight = np.minimum(in_flight, n)
    return Pipeline(in_flight, np.array(weights))


Passes = tuple[Floats, Floats, Floats]
# Entries of a block of stages and layers: what fits in a processor's cache.
_BLOCK = 1 << 18


@dataclass(frozen=True)
class Figures:
    """Times and sizes of all G stages on one model, (G,) each, per device and microbatch.

    `again_s`: the backward pass with a recomputed forward pass before it; `late_s`: weight gradients, if they
    are computed apart; `largest_bytes`: parameters of the largest layer; `entering_bytes`: all edges from other
    stages; `wide`: some layer is tensor-parallel; `fed`: some edge enters.
    """

    forward_s: Floats
    backward_s: Floats
    again_s: Floats
    late_s: Floats
    parameter_bytes: Floats
    largest_bytes: Floats
    activation_bytes: Floats
    entering_bytes: Floats
    wide: Flags
    fed: Flags


def stage_figures(problem: GeneralProblem, model: Model, levels: Levels) -> Figures:
    """Figures of all stages on one model."""
    calculator = _Calculator(problem, model)
    rows = max(1, _BLOCK // levels.layers)
    blocks = [
        calculator.figures(levels.member(slice(start, start + rows)))
        for start in range(0, levels.stages, rows)
    ]
    return Figures(*(np.concatenate([getattr(b, f.name) for b in blocks]) for f in fields(Figures)))


class _Calculator:
    """Rules of placement-2.md over blocks of stages, (B, L) layers each."""

    def __init__(self, problem: GeneralProblem, model: Model) -> None:
        late = problem.schedule.zero_bubble
        weight_gradient = np.array(model.weight_gradient_s)
        self._model = model
        self._transfers = problem.conventions.transfers
        self._forward = np.array(model.forward_s)
        self._backward = np.array(model.input_gradient_s) + (0.0 if late else weight_gradient)
        self._late = weight_gradient if late else np.zeros_like(weight_gradient)
        self._source = np.array([u for u, _ in problem.edges], dtype=np.int64)
        self._target = np.array([v for _, v in problem.edges], dtype=np.int64)
        self._bytes = np.array(model.boundary_bytes, dtype=np.float64)
        self._transfer = self._bytes / problem.link_bandwidth_bytes_per_s

    def figures(self, member: Flags) -> Figures:
        """Figures of a block of stages."""
        entering = member[:, self._target] & ~member[:, self._source]
        leaving = member[:, self._source] & ~member[:, self._target]
        inside = member.astype(np.float64)
        parameters = np.array(self._model.parameter_bytes)
        passes = self._overlapped if self._transfers is Transfers.OVERLAPPED else self._one_after_another
        forward_s, backward_s, again_s = passes(member, entering, leaving)
        return Figures(
            forward_s=forward_s,
            backward_s=backward_s,
            again_s=again_s,
            late_s=inside @ self._late,
            parameter_bytes=inside @ parameters,
            largest_bytes=(inside * parameters).max(axis=1),
            activation_bytes=inside @ np.array(self._model.activation_bytes),
            entering_bytes=entering.astype(np.float64) @ self._bytes,
            wide=member @ np.array(self._model.is_tensor_parallel),
            fed=np.asarray(entering.any(axis=1)),
        )

    def _one_after_another(self, member: Flags, entering: Flags, leaving: Flags) -> Passes:
        """Forward, backward and recomputed backward passes (B,) when transfers take time of both ends, or none."""
        forward_s, backward_s = (member.astype(np.float64) @ work for work in (self._forward, self._backward))
        crossing_s = np.zeros_like(forward_s)
        if self._transfers is Transfers.EXPOSED:
            crossing_s = (entering | leaving).astype(np.float64) @ self._transfer
        return forward_s + crossing_s, backward_s + crossing_s, forward_s + backward_s + crossing_s

    def _overlapped(self, member: Flags, entering: Flags, leaving: Flags) -> Passes:
        """The same when the receiver alone waits for transfers, behind its earlier work."""
        order, idle = range(member.shape[1]), np.zeros(len(member))
        inputs_s, gradients_s = self._arrivals(entering, self._target), self._arrivals(leaving, self._source)
        recomputed_s = member.astype(np.float64) @ self._forward
        return (
            _waiting(member, self._forward, inputs_s, idle, order),
            _waiting(member, self._backward, gradients_s, idle, order[::-1]),
            _waiting(member, self._backward, gradients_s, recomputed_s, order[::-1]),
        )

    def _arrivals(self, crossing: Flags, receiver: Integers) -> Floats:
        """When the inputs of each layer from other stages are there, (L, B), from the start of the pass."""
        arrival = np.zeros((len(self._forward), len(crossing)))
        for arrives, layer, seconds in zip(crossing.T, receiver, self._transfer, strict=True):
            np.maximum(arrival[layer], arrives * seconds, out=arrival[layer])
        return arrival


def _waiting(member: Flags, latency_s: Floats, arrival_s: Floats, start_s: Floats, order: range) -> Floats:
    """When the last layer of each stage ends (B,): layers run in order, none before its inputs arrive."""
    now = start_s
    for v in order:
        now = np.where(member[:, v], np.maximum(now, arrival_s[v]) + latency_s[v], now)
    return now


# Times closer than this are equal: the rounding of sums of some hundred terms.
TIE = 1e-13
# A stage fits if it fits but for the rounding of its sums.
_MEMORY_SLACK = 1e-12
_ANY_NUMBER = 1 << 40


@dataclass(frozen=True)
class Option:
    """A model, by its number in the problem, with a choice of recomputation and of the ZeRO stage."""

    model: int
    recompute: Recompute
    zero: int


@dataclass(frozen=True, order=True)
class DeviceClass:
    """Devices that a stage takes: the number of their type, and how many."""

    device_type: int
    devices: int


@dataclass(frozen=True)
class StageTable:
    """O options of G stages: `work` (kinds, O, G) seconds, `most_held` (O, G) microbatches that fit in memory.

    `device_class` (O, G): which one of `classes` a stage takes.
    """

    options: tuple[Option, ...]
    classes: tuple[DeviceClass, ...]
    work: Floats
    most_held: Integers
    device_class: Integers

    def deepest(self, line: Pipeline) -> Integers:
        """Largest depth at which a stage fits (O, G), 0 if it fits at none."""
        depth: Integers = np.searchsorted(line.in_flight, self.most_held, side="right")
        return depth

    def within(self, limits: Floats) -> Flags:
        """Whether no work is above its limit (kinds,), at (O, G)."""
        limit = (limits * (1 + TIE))[:, None, None]
        return np.asarray((self.work <= limit).all(axis=0))

    def by_class(self, deepest: Integers) -> Integers:
        """Largest depth at which a stage fits on each class of devices, (classes, G)."""
        found = np.zeros((len(self.classes), deepest.shape[1]), dtype=np.int64)
        for option, depth in enumerate(deepest):
            for number in range(len(self.classes)):
                np.maximum(
                    found[number], np.where(self.device_class[option] == number, depth, 0), out=found[number]
                )
        return found


def stage_table(problem: GeneralProblem, figures: dict[int, Figures], data_parallel: int) -> StageTable:
    """The table of the models whose figures are given, by the rules of placement-2.md."""
    options = tuple(
        Option(model, recompute, zero)
        for zero in problem.zero
        for recompute in _recompute_choices(problem)
        for model in figures
    )
    devices = {m: _devices(problem, problem.models[m], figures[m]) for m in figures}
    classes = {
        m: [DeviceClass(problem.models[m].device_type, int(a)) for a in np.unique(devices[m])]
        for m in figures
    }
    known = sorted({device_class for m in figures for device_class in classes[m]})
    taken = {
        m: np.array([known.index(c) for c in classes[m]])[np.searchsorted(np.unique(devices[m]), devices[m])]
        for m in figures
    }
    return StageTable(
        options=options,
        classes=tuple(known),
        work=np.stack([_work(problem, figures[o.model], o, data_parallel) for o in options], axis=1),
        most_held=np.stack([_most_held(problem, figures[o.model], o, data_parallel) for o in options]),
        device_class=np.stack([taken[o.model] for o in options]),
    )


def _recompute_choices(problem: GeneralProblem) -> tuple[Recompute, ...]:
    """A stage that holds one microbatch does not recompute, even if no other stage may do without."""
    return (Recompute.NONE,) if problem.recompute == (Recompute.NONE,) else tuple(Recompute)


def _devices(problem: GeneralProblem, model: Model, figures: Figures) -> Integers:
    """Devices of each stage (G,): the model's width if some layer of it, or of its group, is tensor-parallel."""
    grouped = problem.schedule is Schedule.INTERLEAVED and any(model.is_tensor_parallel)
    return np.where(figures.wide | grouped, model.tensor_parallel, 1)


def _work(problem: GeneralProblem, figures: Figures, option: Option, data_parallel: int) -> Floats:
    """Seconds of each kind of work, (kinds, G)."""
    half_s = half_reduction_s(problem, data_parallel) * figures.parameter_bytes
    full = option.recompute is Recompute.FULL
    gathers_s = half_s if option.zero == 3 else 0.0
    scatter_s = half_s if option.zero >= 2 else 0.0
    late = problem.schedule.zero_bubble
    counted = np.ones_like(figures.fed) if problem.conventions.reduced is Reduced.EVERY else ~figures.fed
    seconds = {
        "forward": figures.forward_s + gathers_s,
        "backward": (figures.again_s if full else figures.backward_s)
        + (2 if full else 1) * gathers_s
        + (0.0 if late else scatter_s),
        "late": figures.late_s + scatter_s,
        "reduction": np.where(counted, (2, 2, 1, 0)[option.zero] * half_s, 0.0),
    }
    return np.stack([sum(seconds[name] for name in names) for names in kinds(problem.schedule)])


def half_reduction_s(problem: GeneralProblem, data_parallel: int) -> float:
    """Seconds per byte of a reduce-scatter or all-gather over the replicas, half an all-reduce."""
    share = (data_parallel - 1) / data_parallel
    return problem.conventions.reduction_factor / 2 * share / problem.link_bandwidth_bytes_per_s


def _most_held(problem: GeneralProblem, figures: Figures, option: Option, data_parallel: int) -> Integers:
    """Most microbatches that a stage can hold in memory, (G,); 0 if not even one."""
    shares = [1 / data_parallel if option.zero >= stage else 1.0 for stage in (1, 2, 3)]
    states = problem.optimizer_state_ratio * shares[0] + shares[1] + shares[2]
    gathered = (1 - shares[2]) * figures.largest_bytes
    base = states * figures.parameter_bytes + gathered + figures.activation_bytes
    full = option.recompute is Recompute.FULL
    stash = figures.entering_bytes if full else figures.activation_bytes
    device = problem.device_types[problem.models[option.model].device_type]
    room = device.memory_bytes / problem.virtual_stages * (1 + _MEMORY_SLACK) - base
    more = np.full(len(room), _ANY_NUMBER, dtype=np.float64)
    np.divide(room, stash, out=more, where=stash * _ANY_NUMBER > np.maximum(room, 0.0))
    most: Integers = np.where(room < 0, 0, 1 + np.floor(more)).astype(np.int64)
    return np.minimum(most, 1) if option.recompute not in problem.recompute else most


# A sum of many terms may be rounded up: a bound must not.
_ROUNDING = 1 - 1e-12


@dataclass(frozen=True)
class WorkBound:
    """Work that every plan on some models must do, for each kind but the reduction, (kinds - 1,) each.

    `slowest_s`: the slowest layer; `total_s`: all layers; `device_total_s`: all layers, times their devices.
    The reduction is that of the largest layer and of all layers, or of the smallest one that may come first.
    """

    slowest_s: Floats
    total_s: Floats
    device_total_s: Floats
    largest_reduced_bytes: float
    total_reduced_bytes: float

    def largest(self, stages: int, devices: int, half_reduction_s: float) -> Floats:
        """Least possible largest work in at most so many stages on so many devices in all, (kinds,)."""
        work = np.maximum(self.slowest_s, np.maximum(self.total_s / stages, self.device_total_s / devices))
        reduced = max(self.largest_reduced_bytes, self.total_reduced_bytes / stages) * half_reduction_s
        bound: Floats = np.append(work, reduced) * _ROUNDING
        return bound


def work_bound(problem: GeneralProblem, models: Iterable[Model]) -> WorkBound:
    """The bound for plans whose stages choose from some models."""
    models = list(models)
    least = np.min([_layer_work(problem, model) for model in models], axis=0)
    device_work = [_layer_work(problem, model) * _layer_devices(model) for model in models]
    parameters = np.min([model.parameter_bytes for model in models], axis=0)
    halves = min((2, 2, 1, 0)[zero] for zero in problem.zero)
    every = problem.conventions.reduced is Reduced.EVERY
    fed = {v for _, v in problem.edges}
    first = min(float(p) for v, p in enumerate(parameters) if v not in fed)
    return WorkBound(
        slowest_s=least.max(axis=1),
        total_s=least.sum(axis=1),
        device_total_s=np.min(device_work, axis=0).sum(axis=1),
        largest_reduced_bytes=halves * (float(parameters.max()) if every else first),
        total_reduced_bytes=halves * (float(parameters.sum()) if every else 0.0),
    )


def _layer_devices(model: Model) -> Floats:
    return np.where(model.is_tensor_parallel, float(model.tensor_parallel), 1.0)


def _layer_work(problem: GeneralProblem, model: Model) -> Floats:
    """Seconds of each kind of work of each layer, without transfers, recomputation and gathers, (kinds - 1, L)."""
    late = problem.schedule.zero_bubble
    weight_gradient = np.array(model.weight_gradient_s)
    seconds = {
        "forward": np.array(model.forward_s),
        "backward": np.array(model.input_gradient_s) + (0.0 if late else weight_gradient),
        "late": weight_gradient,
    }
    return np.stack([sum(seconds[name] for name in names) for names in kinds(problem.schedule)[:-1]])
