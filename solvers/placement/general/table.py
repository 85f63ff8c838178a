"""Every stage with every option at one data-parallel degree: what it adds to the time, and how deep it fits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from phaze.solvers.arrays import Flags, Floats, Integers
from phaze.solvers.placement.general.figures import Figures
from phaze.solvers.placement.general.pipeline import Pipeline, kinds
from phaze.solvers.placement.general.problem import GeneralProblem, Model, Recompute, Reduced, Schedule

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
        depth: Integers = np.searchsorted(line.held, self.most_held, side="right")
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
