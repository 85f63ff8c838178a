"""Serving plans: how a cluster answers requests, from operator costs to tokens per second under latency targets."""

from phaze.parallel.serving.serving_plan import Binding, Policy, Pool, ServingPlan
from phaze.parallel.serving.serving_requests import ServingOptions, Targets, Traffic
from phaze.parallel.serving.serving_search import best_of, best_serving_plan
from phaze.parallel.serving.serving_space import ServingSpace

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
