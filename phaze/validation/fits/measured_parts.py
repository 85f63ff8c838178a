"""Rows of one comparison on one device, by the laws that they need: kernels, exchanges, routed exchanges."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, TypeVar

import numpy as np

from phaze.arrays import Floats
from phaze.cost.collectives.collective_algorithms import levels
from phaze.cost.fidelity import Fidelity
from phaze.cost.kernels.expert_exchanges import ExchangeLaw
from phaze.cost.kernels.fitted_constants import Constants, OwnConstants, law_of
from phaze.cost.kernels.kernel_laws import alone_s
from phaze.cost.kernels.link_constants import is_plain, law_file
from phaze.hardware.architecture import Architecture, to_table
from phaze.hardware.network_tiers import LinkLaw
from phaze.validation.data_set_registry import OWN_SETS, SECONDS
from phaze.validation.fits.kernel_calibration import Predictor, Recorder
from phaze.validation.measured.measured_cases import Row
from phaze.validation.model_validation import Compared
from phaze.validation.sets.collective_measurements import Exchanges
from phaze.validation.sets.kernels.exchange_measurements import RoutedExchange

T = TypeVar("T")

_SAMPLE = 120
"""Rows of a data set and chip that are fitted and judged, evenly spaced."""


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


def parts_of(one: Compared) -> Iterator[Part]:
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
