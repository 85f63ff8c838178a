"""Placements of a small decoder, played again."""

from __future__ import annotations

import pytest
from report_cases import CASES, played


@pytest.fixture(scope="session", params=CASES)
def case(request, tmp_path_factory):
    """Every case in turn."""
    return played(tmp_path_factory.mktemp("case"), request.param)


@pytest.fixture(scope="session")
def pipeline(tmp_path_factory):
    """The replay with four stages, in training."""
    return played(tmp_path_factory.mktemp("pipeline"), "four stages")[1]
