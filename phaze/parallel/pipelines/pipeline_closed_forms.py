"""Times of pipelines of equal chunks without transfers, as formulas.

Each is the longest path through a schedule: the greatest of a few linear forms of the times of a chunk. They hold for
all sizes that `refusal` lets pass, and only for those; published bubbles are the form that counts where, as usual,
f and b are about equal and w is no longer than either.
"""

from __future__ import annotations

from functools import reduce
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from phaze.arrays import Floats
from phaze.parallel.pipelines.pipeline_schedule import Schedule


def closed_form_s(
    schedule: Schedule,
    microbatches: ArrayLike,
    stages: ArrayLike,
    chunks_per_device: ArrayLike,
    f: ArrayLike,
    b: ArrayLike,
    w: ArrayLike,
    pair: ArrayLike | None = None,
) -> Floats:
    """Makespan of a pipeline in s, from the first start to the last end, of all arguments broadcast together.

    GPipe, 1F1B, interleaved and breadth-first: (m v + p - 1)(f + b + w), so that the bubble is (p - 1)(f + b + w)
    (arXiv 1811.06965, 2104.04473, 2211.05953); the others as in `_FORMS`, with their sources there.
    `f`, `b`, `w`: seconds of a microbatch in one chunk, forward pass, input and weight gradient; `pair`: of a forward
    and a backward pass run together (DualPipe), f + b + w if None.
    """
    m, p, v, f, b, w = _arrays(microbatches, stages, chunks_per_device, f, b, w)
    if schedule is Schedule.DUALPIPE:
        return _dualpipe_s(m, p, f, b, w, f + b + w if pair is None else np.asarray(pair, dtype=float))
    if schedule not in _FORMS:
        return (m * v + p - 1) * (f + b + w)
    forms = _FORMS[schedule](p - 1, f, b, w)
    return m * v * (f + b + w) + _greatest(forms.common + forms.last_end, p)


def closed_form_period_s(
    schedule: Schedule,
    microbatches: ArrayLike,
    stages: ArrayLike,
    chunks_per_device: ArrayLike,
    f: ArrayLike,
    b: ArrayLike,
    w: ArrayLike,
    pair: ArrayLike | None = None,
) -> Floats:
    """Period of a pipeline in s, from one iteration to the next where no device waits for the others between them."""
    m, p, v, f, b, w = _arrays(microbatches, stages, chunks_per_device, f, b, w)
    if schedule not in _FORMS:  # some device works, or waits, from the first start to the last end
        return closed_form_s(schedule, m, p, v, f, b, w, pair)
    forms = _FORMS[schedule](p - 1, f, b, w)
    return m * v * (f + b + w) + _greatest(forms.common + forms.period, p)


def _arrays(*values: ArrayLike) -> tuple[Floats, ...]:
    return tuple(np.asarray(value, dtype=float) for value in values)


def _greatest(forms: tuple[Floats, ...], p: Floats) -> Floats:
    """The greatest form; a pipeline of one device has no bubble."""
    return np.where(p > 1, reduce(np.maximum, forms), 0.0)


class _Forms(NamedTuple):
    """Bubbles, the greatest of which counts: in any case, up to the last end, and by period."""

    common: tuple[Floats, ...]
    last_end: tuple[Floats, ...]
    period: tuple[Floats, ...]


def _zb_h1(q: Floats, f: Floats, b: Floats, w: Floats) -> _Forms:
    """Published: (p-1)(f+b-w), 2401.10241 table 2; q = p - 1."""
    return _Forms((q * b, q * (f + b - w)), (q * f,), ())


def _zb_h2(q: Floats, f: Floats, b: Floats, w: Floats) -> _Forms:
    """Published: (p-1)(f+b-2w) by period, the same table."""
    return _Forms((q * (b - f), q * (f + b - 2 * w)), (q * f,), (0 * f,))


def _zb_v(q: Floats, f: Floats, b: Floats, w: Floats) -> _Forms:
    """Published: none by period for equal times, 2405.15362."""
    common = (2 * q * (b - w), (2 * q - 1) * f + b - 2 * q * w, 2 * q * f - (2 * q + 1) * w)
    first = (b + (q - 1) * w, q * b, f + (q - 1) * w)
    last = ((2 * q - 1) * f - (q - 1) * b, 2 * q * f - q * b - w)
    period = (b + (q - 1) * w - q * f, q * (b - f), (q - 1) * (w - f), (q - 1) * (f - b), q * (2 * f - b - w))
    return _Forms(common, first + last, period)


_FORMS = {Schedule.ZB_H1: _zb_h1, Schedule.ZB_H2: _zb_h2, Schedule.ZB_V: _zb_v}
"""Where w is put off; in the other schedules but DualPipe the bubble is one pass of each kind per further device."""


def _dualpipe_s(m: Floats, p: Floats, f: Floats, b: Floats, w: Floats, pair: Floats) -> Floats:
    """Published bubble: h (pair + (b+w) - 3w), h = p/2 - 1; less f since the middle's first pair is left apart."""
    h = p / 2 - 1
    forms = (
        2 * (h + 1) * f + 3 * (h + 1) * b + 3 * w,
        2 * (h + 1) * f + (2 * h + 3) * b + (h + 3) * w,
        3 * (h + 1) * f + (h + 3) * (b + w),
        3 * (h + 1) * f + (2 * h + 3) * b + 3 * w,
    )
    return (m - h - 3) * pair + reduce(np.maximum, forms)
