"""The data sets that the model is compared with, by the name of their file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from phaze.validation.cases import Judged
from phaze.validation.columns import Columns
from phaze.validation.sets import (
    attention,
    collectives,
    convolution,
    in_model,
    layers,
    memory,
    products,
    profiles,
    silicon,
    systolic,
    tpu,
    vector,
)


class Metric(StrEnum):
    """What a set measures; collectives below 1 MiB are `latency_small`, gradients `latency_backward`."""

    LATENCY = "latency"
    LATENCY_BACKWARD = "latency_backward"
    LATENCY_SMALL = "latency_small"
    AREA = "area"
    POWER = "power"
    MEMORY = "memory"


@dataclass(frozen=True)
class DataSet:
    """One comparison: the stem of a CSV file, what is compared, and how its rows are judged."""

    name: str
    metric: Metric
    judge: Callable[[Columns], Judged]


_COLLECTIVES: tuple[str, ...] = (
    "coll_aiconfigurator_nccl",
    "coll_deepbench_allreduce",
    "coll_llmcompass_a100",
    "coll_ml_engineering",
    "coll_sailor_aceso",
    "coll_vidur",
    "coll_vtrain_allreduce",
)

DATA_SETS: tuple[DataSet, ...] = (
    DataSet("chip_area_breakdown", Metric.AREA, silicon.breakdown),
    DataSet("chip_specs", Metric.AREA, silicon.areas),
    DataSet("chip_specs", Metric.POWER, silicon.powers),
    *(DataSet(name, Metric.LATENCY, collectives.large) for name in _COLLECTIVES),
    *(DataSet(name, Metric.LATENCY_SMALL, collectives.small) for name in _COLLECTIVES),
    DataSet("mem_korthikanti", Metric.MEMORY, memory.megatron),
    DataSet("op_attention_context_aiconfigurator", Metric.LATENCY, attention.aiconfigurator_context),
    DataSet("op_attention_generation_aiconfigurator", Metric.LATENCY, attention.aiconfigurator_generation),
    DataSet("op_conv_deepbench", Metric.LATENCY, convolution.deepbench),
    DataSet("op_conv_neusight_fp32", Metric.LATENCY, convolution.neusight),
    DataSet("op_bmm_neusight_fp16_h100", Metric.LATENCY, products.neusight),
    DataSet("op_gemm_aiconfigurator", Metric.LATENCY, products.aiconfigurator),
    DataSet("op_gemm_deepbench", Metric.LATENCY, products.deepbench),
    DataSet("op_gemm_deepgemm_fp8_h800", Metric.LATENCY, products.deepgemm),
    DataSet("op_gemm_neusight_fp32", Metric.LATENCY, products.neusight),
    DataSet("op_gemm_tpu_v4", Metric.LATENCY, products.tpu_v4),
    DataSet("op_gemm_tpu_v6e_v7", Metric.LATENCY, tpu.gemms),
    DataSet("op_gpt3_layer_llmcompass", Metric.LATENCY, layers.gpt3_layer),
    DataSet("op_in_model_neusight_fp32", Metric.LATENCY, in_model.forward),
    DataSet("op_in_model_neusight_fp32", Metric.LATENCY_BACKWARD, in_model.backward),
    DataSet("op_llm_layer_vidur_fp16", Metric.LATENCY, layers.vidur),
    DataSet("op_mamf_max_achievable_matmul", Metric.LATENCY, products.best_found),
    DataSet("op_llmcompass_fp16", Metric.LATENCY, layers.llmcompass),
    DataSet("op_vector_neusight_fp32", Metric.LATENCY, vector.neusight),
    DataSet("op_vector_tpu_v4", Metric.LATENCY, vector.tpu_v4),
    DataSet("op_tpu_microbench_bf16", Metric.LATENCY, tpu.microbenchmarks),
    DataSet("op_transformer_aceso_profiles", Metric.LATENCY, profiles.forward),
    DataSet("op_transformer_aceso_profiles", Metric.LATENCY_BACKWARD, profiles.backward),
    DataSet("systolic_scalesim_compute_cycles", Metric.LATENCY, systolic.compute_cycles),
    DataSet("systolic_scalesim_stalls", Metric.LATENCY, systolic.stalled_cycles),
)
