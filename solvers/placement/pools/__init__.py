"""A chain of layers on a pipeline whose stages take devices of several pools, each of which holds so many."""

from phaze.solvers.placement.pools.pool_chain import PoolChain, PoolStage, pool_plan_value
from phaze.solvers.placement.pools.pool_chain_search import PoolPlan, PoolSearch

__all__ = ["PoolChain", "PoolPlan", "PoolSearch", "PoolStage", "pool_plan_value"]
