"""Every figure of the report keeps the contract of figures."""

from __future__ import annotations

import pytest

from phaze.report.figures.figure_registry import FIGURES
from phaze.testing.figure_contract import FigureContract


class TestFigures(FigureContract):
    @pytest.fixture(params=FIGURES.built_in)
    def figure(self, request):
        return FIGURES.find(request.param)
