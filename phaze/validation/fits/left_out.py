"""Errors on what constants were not fitted on: each run, device, source and framework left out of the fit in turn.

A fit is worked out anew without what is left out, from the derivatives of all predictions by the constants
(Gauss and Newton, least mean |log(predicted / measured)|), so that nobody types such a figure in.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from math import exp, log
from statistics import geometric_mean
from typing import Protocol, TypeVar

import numpy as np

from phaze.arrays import Flags, Floats
from phaze.cost.collective_algorithms import levels
from phaze.cost.fidelity import Fidelity
from phaze.cost.kernels.expert_exchanges import ExchangeLaw
from phaze.cost.kernels.fitted_constants import GENERIC, Constants, OwnConstants, law_of
from phaze.cost.kernels.kernel_laws import alone_s
from phaze.cost.kernels.link_constants import is_plain, law_file
from phaze.hardware.architecture import Architecture, to_table
from phaze.hardware.network_tiers import LinkLaw
from phaze.parallel.framework import Framework, list_frameworks, load_framework
from phaze.parallel.training.iteration_estimate import Estimator
from phaze.validation.data_set_registry import OWN_SETS, SECONDS
from phaze.validation.fits.kernel_calibration import Predictor, Recorder, numbers
from phaze.validation.measured.measured_cases import Row
from phaze.validation.measured.published_runs import PublishedRun, RunGroup, best_iteration, estimator
from phaze.validation.model_validation import Compared
from phaze.validation.sets.collective_measurements import Exchanges
from phaze.validation.sets.kernels.exchange_measurements import RoutedExchange

T = TypeVar("T")

FOLDS = 12
"""Parts that runs are left out in, where there are more of them."""
_STEP = 0.1  # of the logarithm of a constant, for derivatives
_FAR = 1.5  # the farthest that a refit moves one
_HOLD = 0.02  # weight of that distance: decides where no run says anything
_ROUNDS = 30  # of least squares that approach least absolute errors

_TIED = {"dispatch_backward_s": "dispatch_s"}
"""Constants that were fitted as one with another."""


@dataclass(frozen=True)
class LeftOut:
    """Mean absolute percentage error on what was left out of a fit, and what adds most to it."""

    error_pct: float
    most: str


Errors = Mapping[str, LeftOut]
"""By what was left out: run, device, source, framework."""


def refit(errors: Floats, slopes: Floats) -> Floats:
    """Changes of the logarithms of constants (K,) that make the mean absolute value of errors + slopes x change least.

    `errors`: logarithms of predicted over measured values (R,); `slopes`: their derivatives (R, K).
    """
    change: Floats = np.zeros(slopes.shape[1])
    for _ in range(_ROUNDS):
        weight = 1 / np.maximum(np.abs(errors + slopes @ change), 1e-3)
        normal = (slopes * weight[:, None]).T @ slopes + _HOLD * len(errors) * np.eye(len(change))
        found = np.linalg.solve(normal, (slopes * weight[:, None]).T @ errors)
        change = np.array([-min(max(one, -_FAR), _FAR) for one in found.tolist()])
    return change


def percent(errors: Floats) -> float:
    """Mean absolute percentage error of logarithms of predicted over measured values."""
    return float(100 * np.abs(np.exp(errors) - 1).mean())


# -- constants of frameworks


@dataclass(frozen=True)
class Constant:
    """A constant with the same value in some frameworks, which a fit moves together."""

    name: str
    value: float
    frameworks: frozenset[str]


@dataclass(frozen=True)
class FittedRuns:
    """Runs of one comparison, the constants that were fitted to it, and what the model says with others."""

    title: str
    runs: Sequence[PublishedRun]
    _known: dict[RunGroup, Estimator] = field(default_factory=dict)

    @property
    def constants(self) -> tuple[Constant, ...]:
        """Those that the frameworks of the runs say were fitted to them."""
        found: dict[tuple[str, float], set[str]] = {}
        for framework in {run.framework.name: run.framework for run in self.runs}.values():
            for name in fitted_to(framework, self.title):
                if name in _TIED:
                    continue
                found.setdefault((name, float(getattr(framework, name))), set()).add(framework.name)
        return tuple(Constant(name, value, frozenset(who)) for (name, value), who in sorted(found.items()))

    def errors(self, values: Mapping[Constant, float], which: Collection[int] | None = None) -> Floats:
        """Logarithms of predicted over measured values, of some runs, with other values of constants."""
        each = range(len(self.runs)) if which is None else which
        return np.array([self._error(self.runs[i], values) for i in each])

    def _error(self, run: PublishedRun, values: Mapping[Constant, float]) -> float:
        new = {c.name: v for c, v in values.items() if run.framework.name in c.frameworks}
        new |= {
            both: new[one]
            for both, one in _TIED.items()
            if one in new and both in fitted_to(run.framework, self.title)
        }
        changed = _replaced(run, new)
        found = best_iteration(changed, estimator(changed, Fidelity.CALIBRATED, self._known))
        return log(run.figure(found) / run.measured)

    def left_out(self) -> dict[str, LeftOut]:
        """Errors with each run (or part of the runs), device and framework left out of the fit in turn."""
        constants = self.constants
        if not constants or not len(self.runs):
            return {}
        errors = self.errors({})
        slopes = np.stack([self._slope(errors, constant) for constant in constants], axis=1)
        chips = [run.chip.name for run in self.runs]
        folds = {"run": [str(i % FOLDS) for i in range(len(self.runs))], "device": chips}
        found = {
            kind: LeftOut(percent(left), _worst(chips, errors, left))
            for kind, names in folds.items()
            if (left := _each_out(errors, slopes, names)) is not None
        }
        unseen = self._unseen(constants)
        changed = ", ".join(
            f"{c.name} {c.value:.3g} -> {elsewhere(c.name, self.title):.3g}" for c in constants[:_NAMED]
        )
        most = f"{_worst([run.framework.name for run in self.runs], errors, unseen)}; {changed}"
        return found | {"framework": LeftOut(percent(unseen), most)}

    def _slope(self, errors: Floats, constant: Constant) -> Floats:
        """Derivatives of the errors by the logarithm of a constant (of what it stretches, where it is a factor)."""
        which = [i for i, run in enumerate(self.runs) if run.framework.name in constant.frameworks]
        slope = np.zeros(len(errors))
        moved = self.errors({constant: constant.value * exp(_STEP)}, which)
        slope[which] = (moved - errors[which]) / _STEP
        return slope

    def _unseen(self, constants: Sequence[Constant]) -> Floats:
        """Errors where the constants are those of the other frameworks, whose fits never saw this comparison."""
        return self.errors({one: elsewhere(one.name, self.title) for one in constants})


_NAMED = 4
"""Constants that are named, at most."""


def _worst(names: Sequence[str], fitted: Floats, left: Floats) -> str:
    """Which name's rows grow most, all its rows together, and from what error to what."""
    growth = np.abs(np.expm1(left)) - np.abs(np.expm1(fitted))
    of = np.array(names)
    worst = max(dict.fromkeys(names), key=lambda name: float(growth[of == name].sum()))
    rows = of == worst
    return f"{worst} ({rows.sum()} of {len(rows)} rows): {percent(fitted[rows]):.1f} -> {percent(left[rows]):.1f} %"


def _each_out(errors: Floats, slopes: Floats, names: Sequence[str]) -> Floats | None:
    """Errors with what has each of the names left out; None where all have the same."""
    kinds = sorted(set(names))
    if len(kinds) < 2:
        return None
    left = np.empty(len(errors))
    for kind in kinds:
        out: Flags = np.array([name == kind for name in names])
        change = refit(errors[~out], slopes[~out])
        left[out] = errors[out] + slopes[out] @ change
    return left


def _replaced(run: PublishedRun, new: Mapping[str, float]) -> PublishedRun:
    return replace(run, framework=run.framework.model_copy(update=dict(new))) if new else run


def fitted_to(framework: Framework, title: str) -> tuple[str, ...]:
    """Names of a framework's constants that were fitted to a comparison."""
    return tuple(name for one in framework.fitted if one.to == title for name in one.constants)


@cache
def elsewhere(name: str, title: str) -> float:
    """A constant of a framework that nobody ran: the mean of those fitted to other comparisons, else its default.

    Geometric for factors, whose default is 1; plain for shares and times, whose default is 0.
    """
    default = float(Framework.model_fields[name].default)
    found = [
        float(getattr(framework, name))
        for framework in map(load_framework, list_frameworks())
        if any(one.to != title and name in one.constants for one in framework.fitted)
        and name not in fitted_to(framework, title)
    ]
    if not found:
        return default
    return geometric_mean(found) if default == 1.0 else float(np.mean(found))


def frameworks_left_out(
    compared: Sequence[Compared], progress: Callable[[str], None]
) -> Iterator[tuple[str, Errors]]:
    """Errors by title of every comparison of training runs that constants were fitted to."""
    for one in compared:
        runs = [run for run in one.judged.runs if isinstance(run, PublishedRun)]
        title = f"{one.comparisons[Fidelity.CALIBRATED].name} {one.comparisons[Fidelity.CALIBRATED].metric}"
        fitted = FittedRuns(title, runs)
        if fitted.constants:
            progress(f"{title}: left out")
            yield one.title, fitted.left_out()


# -- constants of laws of kernels

_SAMPLE = 120
"""Rows of a data set and chip that are fitted and judged, evenly spaced."""
_REFITS = 2  # times that derivatives are worked out anew


class Part(Protocol):
    """Rows of one comparison on one device; `files`: the laws that any of them needs."""

    @property
    def title(self) -> str:
        """Title of the comparison."""

    @property
    def device(self) -> str:
        """Chip, or network."""

    @property
    def family(self) -> str:
        """Family of the chip."""

    @property
    def files(self) -> frozenset[str]:
        """Laws that any of them needs."""

    def alone(self, file: str) -> Part | None:
        """Those that need one law alone; None where there are none."""

    def needing(self, file: str) -> Part | None:
        """Those that need a law, alone or beside others; None where there are none."""

    def law(self, file: str, family: str) -> object | None:
        """Constants of a family of one of the laws."""

    def errors(self, own: OwnConstants) -> Floats:
        """Logarithms of predicted over measured seconds, by own constants of some laws."""


@dataclass(frozen=True)
class MeasuredKernels:
    """Some rows of a data set on one chip; `asked`: the laws, by file, that each of them needs."""

    title: str
    chip: Architecture
    rows: tuple[Row, ...]
    asked: tuple[Mapping[str, object], ...]

    @classmethod
    def of(cls, title: str, rows: Sequence[Row]) -> MeasuredKernels:
        """Evenly spaced ones of all rows on a chip."""
        some = _spread(rows)
        return cls(title, rows[0].chip, some, tuple(laws_asked(row) for row in some))

    @property
    def device(self) -> str:
        """Its template's name."""
        return self.chip.name

    @property
    def family(self) -> str:
        """Family of the chip."""
        return str(self.chip.value("family"))

    @cached_property
    def files(self) -> frozenset[str]:
        """Laws that any of them needs."""
        return frozenset(file for asked in self.asked for file in asked)

    def alone(self, file: str) -> MeasuredKernels | None:
        """Those that need one law alone; None where there are none."""
        return self._of([i for i, asked in enumerate(self.asked) if set(asked) == {file}])

    def needing(self, file: str) -> MeasuredKernels | None:
        """Those that need a law, alone or beside others; None where there are none."""
        return self._of([i for i, asked in enumerate(self.asked) if file in asked])

    def _of(self, kept: Sequence[int]) -> MeasuredKernels | None:
        rows, asked = tuple(self.rows[i] for i in kept), tuple(self.asked[i] for i in kept)
        return MeasuredKernels(self.title, self.chip, rows, asked) if kept else None

    def law(self, file: str, family: str) -> object | None:
        """Constants of a family of one of the laws."""
        kind: type[object] = type(next(asked[file] for asked in self.asked if file in asked))
        return law_of(kind, file, family)

    @cached_property
    def predictor(self) -> Predictor:
        """Their seconds by given constants."""
        return Predictor(self.chip, self.rows)

    def errors(self, own: OwnConstants) -> Floats:
        """Logarithms of predicted over measured seconds."""
        measured = np.array([row.measured_s for row in self.rows])
        found: Floats = np.log(self.predictor(Constants(self.family, own)) / measured)
        return found


@dataclass(frozen=True)
class MeasuredExchanges:
    """Exchanges on one network, in some settings."""

    title: str
    settings: tuple[Exchanges, ...]

    @property
    def device(self) -> str:
        """The network's name."""
        return self.settings[0].system.network.name

    @property
    def family(self) -> str:
        """Family whose constants its links have."""
        return self.settings[0].system.family

    @cached_property
    def files(self) -> frozenset[str]:
        """Laws of the media of all tiers that have fitted ones."""
        return frozenset().union(*map(_media, self.settings))

    def alone(self, file: str) -> MeasuredExchanges | None:
        """Those over one medium alone; None where there are none."""
        kept = tuple(one for one in self.settings if _media(one) == {file})
        return MeasuredExchanges(self.title, kept) if kept else None

    def needing(self, file: str) -> MeasuredExchanges | None:
        """Those over a medium, alone or beside others; None where there are none."""
        kept = tuple(one for one in self.settings if file in _media(one))
        return MeasuredExchanges(self.title, kept) if kept else None

    def law(self, file: str, family: str) -> object | None:
        """Constants of a family on one medium."""
        return law_of(LinkLaw, file, family)

    def errors(self, own: OwnConstants) -> Floats:
        """Logarithms of predicted over measured seconds."""
        return np.concatenate([np.log(one.seconds(self.family, own) / one.measured) for one in self.settings])


@dataclass(frozen=True)
class MeasuredRouting:
    """Exchanges among experts on one system, each by the law of its library."""

    title: str
    runs: tuple[RoutedExchange, ...]

    @classmethod
    def of(cls, title: str, runs: Sequence[RoutedExchange]) -> MeasuredRouting:
        """Evenly spaced ones of each law."""
        by_file: dict[str, list[RoutedExchange]] = {}
        for run in runs:
            by_file.setdefault(run.file, []).append(run)
        return cls(title, tuple(run for of_one in by_file.values() for run in _spread(of_one)))

    @property
    def device(self) -> str:
        """The system's name."""
        return self.runs[0].name

    @property
    def family(self) -> str:
        """Family of its chips."""
        return self.runs[0].system.family

    @cached_property
    def files(self) -> frozenset[str]:
        """Laws of all libraries that were measured."""
        return frozenset(run.file for run in self.runs)

    def alone(self, file: str) -> MeasuredRouting | None:
        """Those of one library; None where there are none."""
        kept = tuple(run for run in self.runs if run.file == file)
        return MeasuredRouting(self.title, kept) if kept else None

    def needing(self, file: str) -> MeasuredRouting | None:
        """The same: each takes one law."""
        return self.alone(file)

    def law(self, file: str, family: str) -> object | None:
        """Constants of a family of one of the laws."""
        return law_of(ExchangeLaw, file, family)

    def errors(self, own: OwnConstants) -> Floats:
        """Logarithms of predicted over measured seconds."""
        constants = Constants(self.family, own)
        said = np.array([run.seconds(constants) for run in self.runs], dtype=np.float64)
        found: Floats = np.log(said / np.array([run.measured_s for run in self.runs]))
        return found


def _media(one: Exchanges) -> frozenset[str]:
    reached = levels(one.system.network, one.setting.ranks, one.setting.stride)
    return frozenset(law_file(level.tier.medium) for level in reached if is_plain(level.tier))


def _spread(rows: Sequence[T]) -> tuple[T, ...]:
    places = np.unique(np.linspace(0, len(rows) - 1, min(len(rows), _SAMPLE)).astype(np.intp))
    return tuple(rows[i] for i in places)


def laws_asked(row: Row) -> Mapping[str, object]:
    """Laws that a row's kernels need, by file, with the constants of its chip's family."""
    recorder = Recorder(str(row.chip.value("family")))
    alone_s(row.works, to_table([row.chip]), recorder)
    return recorder.asked


def refitted(file: str, start: object, donors: Sequence[Part]) -> Mapping[str, float]:
    """The constants of a law that fit some rows best, by steps from a start; all chips weigh the same."""
    best = numbers(start)
    errors = _over(donors, {file: best})
    for _ in range(_REFITS):
        free = [name for name, value in best.items() if value > 0]
        moved = [_moved(best, {name: _STEP}) for name in free]
        slopes = np.stack([(_over(donors, {file: one}) - errors) / _STEP for one in moved], axis=1)
        change = dict(zip(free, refit(errors, slopes), strict=True))
        tried = [_moved(best, {name: part * c for name, c in change.items()}) for part in (1.0, 0.5, 0.25)]
        found = [(float(np.abs(e := _over(donors, {file: one})).mean()), i, e) for i, one in enumerate(tried)]
        least, at, after = min(found, key=lambda one: one[:2])
        if least >= float(np.abs(errors).mean()):
            break
        best, errors = tried[at], after
    return best


def _moved(values: Mapping[str, float], logs: Mapping[str, float]) -> dict[str, float]:
    """Constants times the exponentials of some numbers; shares stay at most 1."""
    new = {name: value * exp(float(logs.get(name, 0.0))) for name, value in values.items()}
    return {name: min(value, 1.0) if 1 / 8 < values[name] <= 1 else value for name, value in new.items()}


def _over(donors: Sequence[Part], own: OwnConstants) -> Floats:
    return np.concatenate([one.errors(own) for one in donors])


def kernels_left_out(
    compared: Sequence[Compared], progress: Callable[[str], None]
) -> Iterator[tuple[str, Errors]]:
    """Errors by title of every comparison of kernels, each device and each source left out of the fit in turn."""
    parts = [part for one in compared for part in _parts(one)]
    fits = _Fits(parts)
    for title in dict.fromkeys(part.title for part in parts):
        progress(f"{title}: left out")
        own = [part for part in parts if part.title == title]
        found = {kind: fits.left_out(own, kind) for kind in ("device", "source")}
        yield title, {kind: value for kind, value in found.items() if value is not None}


def _parts(one: Compared) -> Iterator[Part]:
    """Its parts by device; none where rows are judged by anything but their seconds, such as watts of kernels, and none
    of what `dse measure gpu` measures, which no constant may be fitted to.

    The works of those say what a kernel moves and multiplies, not how it is run: an expert layer is two even products.
    """
    told = one.comparisons[Fidelity.ANALYTIC]
    if told.metric not in SECONDS or told.name.startswith(OWN_SETS):
        return
    by_chip: dict[str, list[Row]] = {}
    for row in one.judged.rows:
        by_chip.setdefault(row.chip.name, []).append(row)
    found: list[Part] = [MeasuredKernels.of(one.title, rows) for rows in by_chip.values()]
    systems: dict[tuple[str, str], list[Exchanges]] = {}
    for run in one.judged.runs:
        if isinstance(run, Exchanges):
            systems.setdefault((run.system.network.name, run.system.family), []).append(run)
    found += [MeasuredExchanges(one.title, tuple(settings)) for settings in systems.values()]
    routed: dict[str, list[RoutedExchange]] = {}
    for run in one.judged.runs:
        if isinstance(run, RoutedExchange):
            routed.setdefault(run.name, []).append(run)
    found += [MeasuredRouting.of(one.title, runs) for runs in routed.values()]
    yield from (part for part in found if part.files)


def _source(part: Part) -> str:
    """Data set of a part, all of whose metrics are left out together."""
    return part.title.partition(" ")[0]


@dataclass(frozen=True)
class _Fits:
    """Fits to all parts but some, each worked out once."""

    parts: Sequence[Part]
    _known: dict[tuple[str, ...], Mapping[str, float] | None] = field(default_factory=dict)

    def left_out(self, own: Sequence[Part], kind: str) -> LeftOut | None:
        """Error of the parts of a comparison by constants that their device or their source has no part in.

        Parts whose laws have nothing else to be fitted to say nothing; None where all are such.
        """
        names: list[str] = []
        errors, left = [], []
        for part in own:
            fitted = {file: self._fit(part, file, kind) for file in part.files}
            if all(one is not None for one in fitted.values()):
                left.append(part.errors({file: one for file, one in fitted.items() if one is not None}))
                errors.append(part.errors({}))
                names += [f"{part.device}, {self._told(part, kind)}"] * len(left[-1])
        if not left:
            return None
        unseen = np.concatenate(left)
        return LeftOut(percent(unseen), _worst(names, np.concatenate(errors), unseen))

    def _told(self, part: Part, kind: str) -> str:
        """What constants of a part's laws were fitted to."""
        same = [self._others(part, file, kind)[1] for file in part.files]
        if all(same):
            return f"by other {'chips' if kind == 'device' else 'sets'} of {part.family}"
        return "by other families" if not any(same) else f"in part by other families than {part.family}"

    def _fit(self, part: Part, file: str, kind: str) -> Mapping[str, float] | None:
        key = (file, kind, part.device) if kind == "device" else (file, kind, _source(part), part.family)
        if key not in self._known:
            self._known[key] = self._refit(part, file, kind)
        return self._known[key]

    def _refit(self, part: Part, file: str, kind: str) -> Mapping[str, float] | None:
        """Fitted to chips of the same family where there are others, else to those of all families."""
        donors, same = self._others(part, file, kind)
        if not donors:
            return None
        family = part.family if same else GENERIC
        start = donors[0].law(file, family)
        return None if start is None else refitted(file, start, donors)

    def _others(self, part: Part, file: str, kind: str) -> tuple[list[Part], bool]:
        """Rows that a law may be fitted to without a part's device or source, and whether they are of its family.

        A law that no row needs alone is fitted to those that need it beside others, which keep their constants.
        """
        alone = any(other.alone(file) is not None for other in self.parts)
        others = [
            rows
            for other in self.parts
            if (other.device != part.device if kind == "device" else _source(other) != _source(part))
            if (rows := other.alone(file) if alone else other.needing(file)) is not None
        ]
        same = [one for one in others if one.family == part.family]
        return same or others, bool(same)


def with_left_out(
    compared: Sequence[Compared], progress: Callable[[str], None] = lambda _: None
) -> tuple[Compared, ...]:
    """The comparisons with their errors on what was left out of the fits."""
    found = dict(kernels_left_out(compared, progress)) | dict(frameworks_left_out(compared, progress))
    return tuple(_with(one, found.get(one.title, {})) for one in compared)


def _with(one: Compared, errors: Errors) -> Compared:
    if not errors:
        return one
    told = {
        "unseen_pct": {kind: found.error_pct for kind, found in errors.items()},
        "unseen_most": {kind: found.most for kind, found in errors.items()},
    }
    calibrated = one.comparisons[Fidelity.CALIBRATED].model_copy(update=told)
    return replace(one, comparisons={**one.comparisons, Fidelity.CALIBRATED: calibrated})
