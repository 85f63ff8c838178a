"""The data sets that the model is compared with, by the name of their file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from phaze.validation.cases import Judged
from phaze.validation.columns import Columns
from phaze.validation.sets import attention, collectives, layers, products, silicon, systolic


class Metric(StrEnum):
    """What a set measures; collectives below 1 MiB are `latency_small`."""

    LATENCY = "latency"
    LATENCY_SMALL = "latency_small"
    AREA = "area"
    POWER = "power"


@dataclass(frozen=True)
class DataSet:
    """One comparison: the stem of a CSV file, what is compared, and how its rows are judged."""

    name: str
    metric: Metric
    judge: Callable[[Columns], Judged]


_COLLECTIVES: tuple[str, ...] = (
    "coll_aiconfigurator_nccl",
    "coll_llmcompass_a100",
    "coll_ml_engineering",
    "coll_sailor_aceso",
    "coll_vidur",
    "coll_vtrain_allreduce",
)

DATA_SETS: tuple[DataSet, ...] = (
    DataSet("chip_specs", Metric.AREA, silicon.areas),
    DataSet("chip_specs", Metric.POWER, silicon.powers),
    *(DataSet(name, Metric.LATENCY, collectives.large) for name in _COLLECTIVES),
    *(DataSet(name, Metric.LATENCY_SMALL, collectives.small) for name in _COLLECTIVES),
    DataSet("op_attention_context_aiconfigurator", Metric.LATENCY, attention.aiconfigurator),
    DataSet("op_attention_generation_aiconfigurator", Metric.LATENCY, attention.aiconfigurator),
    DataSet("op_gemm_aiconfigurator", Metric.LATENCY, products.aiconfigurator),
    DataSet("op_gemm_tpu_v4", Metric.LATENCY, products.tpu_v4),
    DataSet("op_gpt3_layer_llmcompass", Metric.LATENCY, layers.gpt3_layer),
    DataSet("op_llm_layer_vidur_fp16", Metric.LATENCY, layers.vidur),
    DataSet("op_llmcompass_fp16", Metric.LATENCY, layers.llmcompass),
    DataSet("systolic_scalesim_compute_cycles", Metric.LATENCY, systolic.compute_cycles),
)
