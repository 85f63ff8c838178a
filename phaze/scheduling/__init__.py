"""One layer on one accelerator: operator costs to schedule, latency and bound."""
