"""The data sets that the model is compared with, by the name of their file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from phaze.validation.measured.measured_cases import Judged
from phaze.validation.measured.measurement_columns import Columns
from phaze.validation.sets import collective_measurements, silicon_measurements
from phaze.validation.sets.kernels import (
    convolution_measurements,
    eager_measurements,
    engine_measurements,
    exchange_measurements,
    expert_measurements,
    gemm_measurements,
    gpu_kernels,
    latent_measurements,
    layer_measurements,
    power_measurements,
    profiler_measurements,
    request_power,
    systolic_measurements,
    vector_measurements,
)
from phaze.validation.sets.serving import engine_runs, overview_runs
from phaze.validation.sets.training import (
    bridge_runs,
    deepspeed_runs,
    fsdp_runs,
    gpu_steps,
    habana_runs,
    literature_runs,
    maxtext_runs,
    megatron_runs,
    mlperf_rounds,
    mlperf_runs,
    nanotron_runs,
    neusight_runs,
    torchtitan_runs,
    trainium_runs,
)


class Metric(StrEnum):
    """What a set measures; collectives below 1 MiB are `latency_small`, gradients `latency_backward`, watts of
    kernels in loops that fill what the meter sees `power_settled`, in short ones `power_short`, and of kernels on
    operands that nothing wrote `power_unwritten`.

    `time` is that of whole iterations, `token_time` that per output token of a served model, `first_token` that to the
    first one, `throughput` its output tokens per second; `fits`: whether a run has memory enough, yes or no; `energy`:
    joules of an iteration; `clock`: that at which products run where the board's power holds it down.
    """

    LATENCY = "latency"
    LATENCY_BACKWARD = "latency_backward"
    LATENCY_SMALL = "latency_small"
    AREA = "area"
    POWER = "power"
    POWER_SETTLED = "power_settled"
    POWER_SHORT = "power_short"
    POWER_UNWRITTEN = "power_unwritten"
    MEMORY = "memory"
    TIME = "time"
    FITS = "fits"
    ENERGY = "energy"
    CLOCK = "clock"
    TOKEN_TIME = "token_time"
    FIRST_TOKEN = "first_token"
    THROUGHPUT = "throughput"


SECONDS = (Metric.LATENCY, Metric.LATENCY_BACKWARD, Metric.LATENCY_SMALL)
"""Metrics of kernels in seconds, which laws of kernels are fitted to."""

OWN_SETS = "gpu_"
"""How the names of sets begin that `dse measure gpu` writes."""


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
    DataSet("chip_area_breakdown", Metric.AREA, silicon_measurements.breakdown),
    DataSet("chip_specs", Metric.AREA, silicon_measurements.areas),
    DataSet("chip_specs", Metric.POWER, silicon_measurements.powers),
    *(DataSet(name, Metric.LATENCY, collective_measurements.large) for name in _COLLECTIVES),
    *(DataSet(name, Metric.LATENCY_SMALL, collective_measurements.small) for name in _COLLECTIVES),
    DataSet("e2e_llmfoundry_fsdp", Metric.TIME, fsdp_runs.llm_foundry),
    DataSet("e2e_megatron_bridge", Metric.TIME, bridge_runs.training),
    DataSet("e2e_mlperf_gpt3_175b", Metric.TIME, mlperf_runs.training),
    DataSet("e2e_mlperf_bert_resnet", Metric.TIME, mlperf_runs.throughput),
    DataSet("e2e_mlperf_training", Metric.TIME, mlperf_rounds.training),
    DataSet("e2e_neusight_distributed", Metric.TIME, neusight_runs.neusight_several_devices),
    DataSet("e2e_neusight_models_fp32", Metric.TIME, neusight_runs.neusight_single_device),
    DataSet("e2e_torchtitan", Metric.TIME, torchtitan_runs.times),
    DataSet("e2e_torchtitan", Metric.MEMORY, torchtitan_runs.memory),
    DataSet("e2e_sailor", Metric.TIME, deepspeed_runs.times),
    DataSet("e2e_sailor", Metric.MEMORY, deepspeed_runs.memory),
    DataSet("e2e_nanotron_ultrascale", Metric.TIME, nanotron_runs.times),
    DataSet("e2e_nanotron_ultrascale", Metric.MEMORY, nanotron_runs.memory),
    DataSet("e2e_nanotron_ultrascale", Metric.FITS, nanotron_runs.fits),
    DataSet("e2e_vtrain_multi_node", Metric.TIME, deepspeed_runs.multi_node),
    DataSet("e2e_vtrain_single_node", Metric.TIME, deepspeed_runs.single_node),
    DataSet("e2e_korthikanti_times", Metric.TIME, megatron_runs.recompute_iterations),
    DataSet("e2e_korthikanti_times", Metric.LATENCY, megatron_runs.forward),
    DataSet("e2e_korthikanti_times", Metric.LATENCY_BACKWARD, megatron_runs.backward),
    DataSet("e2e_literature", Metric.TIME, literature_runs.iterations),
    DataSet("e2e_megatron", Metric.TIME, megatron_runs.published_tables),
    DataSet("e2e_maxtext_tpu", Metric.TIME, maxtext_runs.training),
    DataSet("e2e_tpu_recipes", Metric.TIME, maxtext_runs.recipe_training),
    DataSet("e2e_optimum_habana", Metric.TIME, habana_runs.training),
    DataSet("e2e_trainium", Metric.TIME, trainium_runs.training),
    DataSet("gpu_idle", Metric.POWER, gpu_kernels.idle_watts),
    DataSet("gpu_products", Metric.LATENCY, gpu_kernels.products),
    DataSet("gpu_products", Metric.POWER, gpu_kernels.product_watts),
    DataSet("gpu_products", Metric.CLOCK, gpu_kernels.product_clocks),
    DataSet("gpu_kernels", Metric.LATENCY, gpu_kernels.vectors),
    DataSet("gpu_kernels", Metric.POWER, gpu_kernels.vector_watts),
    DataSet("gpu_attention", Metric.LATENCY, gpu_kernels.attention_forward),
    DataSet("gpu_attention", Metric.LATENCY_BACKWARD, gpu_kernels.attention_backward),
    DataSet("gpu_attention", Metric.POWER, gpu_kernels.attention_watts),
    DataSet("gpu_steps", Metric.TIME, gpu_steps.times),
    DataSet("gpu_steps", Metric.MEMORY, gpu_steps.memory),
    DataSet("gpu_steps", Metric.ENERGY, gpu_steps.energy),
    DataSet("gpu_decode", Metric.TOKEN_TIME, gpu_steps.token_times),
    DataSet("kernel_power_aiconfigurator", Metric.LATENCY, engine_measurements.latencies),
    DataSet("kernel_power_aiconfigurator", Metric.POWER, power_measurements.watts),
    DataSet("kernel_power_aiconfigurator", Metric.POWER_SETTLED, power_measurements.settled_watts),
    DataSet("kernel_power_aiconfigurator", Metric.POWER_SHORT, power_measurements.short_watts),
    DataSet("kernel_power_aiconfigurator", Metric.POWER_UNWRITTEN, power_measurements.unwritten_watts),
    DataSet("power_splitwise", Metric.POWER, request_power.watts),
    DataSet("kernels_alltoall", Metric.LATENCY, exchange_measurements.exchanges),
    DataSet("kernels_mla", Metric.LATENCY, latent_measurements.latent_attention),
    DataSet("kernels_moe", Metric.LATENCY, expert_measurements.layers),
    DataSet("mem_korthikanti", Metric.MEMORY, megatron_runs.layer_memory),
    DataSet("op_attention_context_aiconfigurator", Metric.LATENCY, layer_measurements.aiconfigurator_context),
    DataSet(
        "op_attention_generation_aiconfigurator", Metric.LATENCY, layer_measurements.aiconfigurator_generation
    ),
    DataSet("op_conv_deepbench", Metric.LATENCY, convolution_measurements.deepbench),
    DataSet("op_conv_neusight_fp32", Metric.LATENCY, convolution_measurements.neusight),
    DataSet("op_bmm_neusight_fp16_h100", Metric.LATENCY, gemm_measurements.neusight),
    DataSet("op_gemm_aiconfigurator", Metric.LATENCY, gemm_measurements.aiconfigurator),
    DataSet("op_gemm_deepbench", Metric.LATENCY, gemm_measurements.deepbench),
    DataSet("op_gemm_deepgemm_fp8_h800", Metric.LATENCY, gemm_measurements.deepgemm),
    DataSet("op_gemm_neusight_fp32", Metric.LATENCY, gemm_measurements.neusight),
    DataSet("op_gemm_tpu_v4", Metric.LATENCY, gemm_measurements.tpu_v4),
    DataSet("op_gemm_tpu_v6e_v7", Metric.LATENCY, gemm_measurements.tpu_gemms),
    DataSet("op_gpt3_layer_llmcompass", Metric.LATENCY, layer_measurements.gpt3_layer),
    DataSet("op_in_model_neusight_fp32", Metric.LATENCY, eager_measurements.forward),
    DataSet("op_in_model_neusight_fp32", Metric.LATENCY_BACKWARD, eager_measurements.backward),
    DataSet("op_llm_layer_vidur_fp16", Metric.LATENCY, layer_measurements.vidur),
    DataSet("op_mamf_max_achievable_matmul", Metric.LATENCY, gemm_measurements.best_found),
    DataSet("op_llmcompass_fp16", Metric.LATENCY, layer_measurements.llmcompass),
    DataSet("op_vector_neusight_fp32", Metric.LATENCY, vector_measurements.neusight),
    DataSet("op_vector_tpu_v4", Metric.LATENCY, vector_measurements.tpu_v4),
    DataSet("op_tpu_microbench_bf16", Metric.LATENCY, gemm_measurements.microbenchmarks),
    DataSet("op_transformer_aceso_profiles", Metric.LATENCY, profiler_measurements.forward),
    DataSet("op_transformer_aceso_profiles", Metric.LATENCY_BACKWARD, profiler_measurements.backward),
    DataSet("serving_aiconfigurator", Metric.TOKEN_TIME, engine_runs.token_times),
    DataSet("serving_aiconfigurator", Metric.FIRST_TOKEN, engine_runs.first_times),
    DataSet("serving_aiconfigurator", Metric.THROUGHPUT, engine_runs.throughputs),
    DataSet("serving_tensorrt_llm_overview", Metric.THROUGHPUT, overview_runs.throughputs),
    DataSet("systolic_scalesim_compute_cycles", Metric.LATENCY, systolic_measurements.compute_cycles),
    DataSet("systolic_scalesim_stalls", Metric.LATENCY, systolic_measurements.stalled_cycles),
)
