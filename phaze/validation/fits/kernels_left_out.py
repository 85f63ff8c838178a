"""Errors on what constants of kernels were not fitted on: each device and each source left out of the fit in turn."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import exp

import numpy as np

from phaze.arrays import Floats
from phaze.cost.kernels.fitted_constants import GENERIC, OwnConstants
from phaze.validation.fits.kernel_calibration import numbers
from phaze.validation.fits.least_absolute import STEP, Errors, LeftOut, percent, refit, worst
from phaze.validation.fits.measured_parts import Part, parts_of
from phaze.validation.model_validation import Compared

_REFITS = 2  # times that derivatives are worked out anew


def refitted(file: str, start: object, donors: Sequence[Part]) -> Mapping[str, float]:
    """The constants of a law that fit some rows best, by steps from a start; all chips weigh the same."""
    best = numbers(start)
    errors = _over(donors, {file: best})
    for _ in range(_REFITS):
        free = [name for name, value in best.items() if value > 0]
        moved = [_moved(best, {name: STEP}) for name in free]
        slopes = np.stack([(_over(donors, {file: one}) - errors) / STEP for one in moved], axis=1)
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
    parts = [part for one in compared for part in parts_of(one)]
    fits = _Fits(parts)
    for title in dict.fromkeys(part.title for part in parts):
        progress(f"{title}: left out")
        own = [part for part in parts if part.title == title]
        found = {kind: fits.left_out(own, kind) for kind in ("device", "source")}
        yield title, {kind: value for kind, value in found.items() if value is not None}


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
        return LeftOut(percent(unseen), worst(names, np.concatenate(errors), unseen))

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
