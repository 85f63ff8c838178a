"""Errors on what constants were not fitted on: each run, device, source and framework left out of the fit in turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from phaze.cost.fidelity import Fidelity
from phaze.validation.fits.frameworks_left_out import frameworks_left_out
from phaze.validation.fits.kernels_left_out import kernels_left_out
from phaze.validation.fits.least_absolute import Errors
from phaze.validation.model_validation import Compared


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
