"""Every strategy of ours keeps the contract of strategies."""

from __future__ import annotations

import pytest

from phaze.errors import InputError
from phaze.explore.strategies.strategy_registry import STRATEGIES, strategy
from phaze.testing.strategy_contract import StrategyContract


class TestStrategies(StrategyContract):
    @pytest.fixture(params=STRATEGIES.built_in)
    def strategy(self, request):
        try:
            return strategy(request.param)
        except InputError as missing:
            pytest.skip(str(missing))
