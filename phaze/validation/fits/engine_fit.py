"""Constants of inference engines, fitted to published runs, and their error on models and chips that were left out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby, product

import numpy as np
from numpy.typing import NDArray

from phaze.arrays import Floats
from phaze.cost.fidelity import Fidelity
from phaze.parallel.serving.replicas.steady_state import Cycle
from phaze.parallel.serving.serving_engine import EngineFit, Overheads, load_engine
from phaze.validation.sets.serving.engine_runs import (
    RunRow,
    decode_cycle,
    engine_cycle,
    engine_replica,
    mean_first_s,
    served_times,
)

CONSTANTS = ("step_s", "sequence_s", "expert_layer_s")
_ROUNDS = 30  # of least squares that approach least absolute errors
_SMALL_S = 1e-6


def engine_fits(rows: Sequence[RunRow], name: str) -> dict[str, tuple[Overheads, tuple[EngineFit, ...]]]:
    """Constants of every engine among the rows of a data set, least mean absolute errors.

    Those of passes by the time per token, then that of requests by the time to the first one.
    """
    found: dict[str, tuple[Overheads, tuple[EngineFit, ...]]] = {}
    for engine in sorted({row.run.engine for row in rows}):
        own = [row for row in rows if row.run.engine == engine]
        tokens = _token_fit(own)
        passes = Overheads(*tokens.constants.tolist())
        waits = served_times(own, Fidelity.ANALYTIC)[2] > 0
        at_once = [row for row, late in zip(own, waits, strict=True) if not late and not row.run.apart]
        first = _first_fit(at_once, passes)
        fits = (
            tokens.told(f"{name} token_time", CONSTANTS),
            first.told(f"{name} first_token", ("request_s",)),
        )
        found[engine] = replace(passes, request_s=float(first.constants[0])), fits
    return found


@dataclass(frozen=True)
class LinearFit:
    """Times that constants of zero or more add to: `base` (R,), `slopes` (R, K), both over what was measured.

    `groups` (R,): rows that are left out together.
    """

    base: Floats
    slopes: Floats
    groups: NDArray[np.int64]

    @cached_property
    def constants(self) -> Floats:
        """The constants of all rows, (K,)."""
        return self._fitted(np.ones(len(self.base), dtype=bool))

    def error(self, constants: Floats) -> float:
        """Mean absolute error as a share."""
        return float(np.abs(self.base + self.slopes @ constants - 1).mean())

    @property
    def left_out(self) -> float:
        """Mean error of rows under the constants that the other groups give; NaN for a single group."""
        errors = []
        for group in np.unique(self.groups):
            away = self.groups == group
            if away.all():
                return float("nan")
            predicted = self.base[away] + self.slopes[away] @ self._fitted(~away)
            errors.append(np.abs(predicted - 1))
        return float(np.concatenate(errors).mean())

    def told(self, to: str, names: Sequence[str]) -> EngineFit:
        """The fit as an engine's file tells it."""
        return EngineFit(
            to=to,
            constants=tuple(n for n, value in zip(names, self.constants, strict=True) if value > 0),
            rows=len(self.base),
            before_pct=round(100 * self.error(np.zeros(len(names))), 1),
            error_pct=round(100 * self.error(self.constants), 1),
            left_out_pct=None if np.isnan(self.left_out) else round(100 * self.left_out, 1),
        )

    def _fitted(self, kept: NDArray[np.bool_]) -> Floats:
        """Least absolute errors by weighted least squares; of all sets of constants above zero, the best."""
        best, least = np.zeros(self.slopes.shape[1]), np.inf
        for free in product((False, True), repeat=self.slopes.shape[1]):
            found = self._free(kept, np.array(free))
            error = float(np.abs(self.base[kept] + self.slopes[kept] @ found - 1).mean())
            if (found >= 0).all() and error < least:
                best, least = found, error
        return best

    def _free(self, kept: NDArray[np.bool_], free: NDArray[np.bool_]) -> Floats:
        found = np.zeros(len(free))
        if not free.any():
            return found
        slopes, wanted = self.slopes[kept][:, free], 1 - self.base[kept]
        weight = np.ones(len(wanted))
        for _ in range(_ROUNDS):
            root = np.sqrt(weight)[:, None]
            found[free] = np.linalg.lstsq(slopes * root, wanted * root[:, 0], rcond=None)[0]
            weight = 1 / np.maximum(np.abs(slopes @ found[free] - wanted), 1e-3)
        return found


def _token_fit(rows: Sequence[RunRow]) -> LinearFit:
    base, slopes = np.zeros(len(rows)), np.zeros((len(rows), len(CONSTANTS)))
    for some in _alike(rows):
        first, _ = _cycle([rows[row] for row in some], Overheads())
        base[some] = first.tpot_s
        for k, name in enumerate(CONSTANTS):
            slow = replace(first, replica=replace(first.replica, overheads=Overheads(**{name: _SMALL_S})))
            slopes[some, k] = (slow.tpot_s - first.tpot_s) / _SMALL_S
    return _over(rows, base, slopes, np.array([row.token_s for row in rows]))


def _first_fit(rows: Sequence[RunRow], passes: Overheads) -> LinearFit:
    base = np.zeros(len(rows))
    for some in _alike(rows):
        cycle, waiting = _cycle([rows[row] for row in some], passes)
        base[some] = mean_first_s(cycle, np.array([rows[row].clients for row in some]), waiting)
    return _over(rows, base, np.ones((len(rows), 1)), np.array([row.first_s for row in rows]))


def _over(rows: Sequence[RunRow], base: Floats, slopes: Floats, measured: Floats) -> LinearFit:
    """Times over what was measured; grouped by model and chip."""
    _, groups = np.unique([f"{row.run.model} {row.run.system}" for row in rows], return_inverse=True)
    return LinearFit(base / measured, slopes / measured[:, None], groups)


def _alike(rows: Sequence[RunRow]) -> Iterator[list[int]]:
    """Positions of the rows of each run."""
    order = sorted(range(len(rows)), key=lambda row: repr(rows[row].run))
    for _, alike in groupby(order, key=lambda row: rows[row].run):
        yield list(alike)


def _cycle(rows: Sequence[RunRow], overheads: Overheads) -> tuple[Cycle, Floats]:
    """The cycle of rows of one run, and what requests wait for a place."""
    run, clients = rows[0].run, np.array([row.clients for row in rows])
    plain = engine_replica(run, Fidelity.CALIBRATED, int(np.ceil(clients.max())))
    replica = replace(plain, overheads=overheads)
    if run.apart:
        return decode_cycle(replica, clients, np.array([row.first_s for row in rows])), np.zeros(len(rows))
    return engine_cycle(replica, clients, load_engine(run.engine).policies[0])
