"""The errors that the model may show, shipped with it."""

from __future__ import annotations

from functools import lru_cache
from importlib import resources

from pydantic import TypeAdapter

from phaze.cost.rung import Rung
from phaze.validation.registry import Metric
from phaze.yaml_file import parse_yaml


@lru_cache(maxsize=1)
def thresholds() -> dict[str, dict[Metric, dict[Rung, float]]]:
    """Largest mean absolute percentage error, by data set, metric and rung."""
    file = resources.files("phaze.validation").joinpath("thresholds.yaml")
    content = parse_yaml(file.read_text(encoding="utf-8"), "validation/thresholds.yaml")
    return TypeAdapter(dict[str, dict[Metric, dict[Rung, float]]]).validate_python(content)


def threshold_pct(name: str, metric: Metric, rung: Rung) -> float | None:
    """The limit of one comparison in percent; None where there is none."""
    return thresholds().get(name, {}).get(metric, {}).get(rung)
