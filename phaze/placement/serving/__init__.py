"""Serving plans: how a cluster answers requests, from operator costs to tokens per second under latency targets."""

from phaze.placement.serving.plan import Binding, Policy, Pool, ServingPlan
from phaze.placement.serving.requests import ServingOptions, Targets, Traffic
from phaze.placement.serving.search import best_of, best_serving_plan
from phaze.placement.serving.space import ServingSpace

__all__ = [
    "Binding",
    "Policy",
    "Pool",
    "ServingOptions",
    "ServingPlan",
    "ServingSpace",
    "Targets",
    "Traffic",
    "best_of",
    "best_serving_plan",
]
