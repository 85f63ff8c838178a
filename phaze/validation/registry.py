"""The data sets that the model is compared with, by the name of their file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from phaze.validation.cases import Judged
from phaze.validation.columns import Columns
from phaze.validation.sets import (
    attention,
    bridge,
    collectives,
    convolution,
    distributed,
    fsdp,
    in_model,
    layers,
    literature,
    maxtext,
    megatron,
    megatron_tables,
    memory,
    mlperf,
    mlperf_gpt3,
    models,
    products,
    profiles,
    sailor,
    silicon,
    systolic,
    torchtitan,
    tpu,
    tpu_recipes,
    trainium,
    vector,
    vtrain,
)


class Metric(StrEnum):
    """What a set measures; collectives below 1 MiB are `latency_small`, gradients `latency_backward`.

    `time` is that of whole iterations.
    """

    LATENCY = "latency"
    LATENCY_BACKWARD = "latency_backward"
    LATENCY_SMALL = "latency_small"
    AREA = "area"
    POWER = "power"
    MEMORY = "memory"
    TIME = "time"


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
    DataSet("e2e_llmfoundry_fsdp", Metric.TIME, fsdp.llm_foundry),
    DataSet("e2e_megatron_bridge", Metric.TIME, bridge.training),
    DataSet("e2e_mlperf_gpt3_175b", Metric.TIME, mlperf_gpt3.training),
    DataSet("e2e_mlperf_bert_resnet", Metric.TIME, mlperf.throughput),
    DataSet("e2e_neusight_distributed", Metric.TIME, distributed.neusight),
    DataSet("e2e_neusight_models_fp32", Metric.TIME, models.neusight),
    DataSet("e2e_torchtitan", Metric.TIME, torchtitan.times),
    DataSet("e2e_torchtitan", Metric.MEMORY, torchtitan.memory),
    DataSet("e2e_sailor", Metric.TIME, sailor.times),
    DataSet("e2e_sailor", Metric.MEMORY, sailor.memory),
    DataSet("e2e_vtrain_multi_node", Metric.TIME, vtrain.multi_node),
    DataSet("e2e_vtrain_single_node", Metric.TIME, vtrain.single_node),
    DataSet("e2e_korthikanti_times", Metric.TIME, megatron.iterations),
    DataSet("e2e_korthikanti_times", Metric.LATENCY, megatron.forward),
    DataSet("e2e_korthikanti_times", Metric.LATENCY_BACKWARD, megatron.backward),
    DataSet("e2e_literature", Metric.TIME, literature.iterations),
    DataSet("e2e_megatron", Metric.TIME, megatron_tables.iterations),
    DataSet("e2e_maxtext_tpu", Metric.TIME, maxtext.training),
    DataSet("e2e_tpu_recipes", Metric.TIME, tpu_recipes.training),
    DataSet("e2e_trainium", Metric.TIME, trainium.training),
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
