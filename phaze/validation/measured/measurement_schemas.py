"""Schemas of the columns of every data set: the one place where the kinds of cells are distinguished."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from phaze.validation.measured.measurement_columns import (
    BATCH,
    BYTES,
    DEVICES,
    LAYERS,
    MAYBE_NO_TIME,
    PADDING,
    RATE,
    SHAPE,
    SHAPES,
    SIZE,
    TEXT,
    TIME,
    Cell,
    Schema,
    absent,
    amount,
    count,
    extents,
    maybe,
    one_of,
)
from phaze.validation.scalesim.scalesim_cycles import Dataflow
from phaze.validation.sets.collective_measurements import COLLECTIVES

_COUNTED: Mapping[str, Cell] = MappingProxyType(
    {
        "layers": LAYERS,
        **dict.fromkeys(
            (
                "hidden",
                "heads",
                "kv_heads",
                "head_dim",
                "vocab",
                "ffn",
                "seq_len",
                "sequence_length",
                "d_model",
            ),
            SIZE,
        ),
        **dict.fromkeys(("m", "k", "n", "M", "K", "N", "rows", "cols", "q_len", "kv_len"), SIZE),
        **dict.fromkeys(("groups", "m_per_group", "array_rows", "array_cols", "batch"), SIZE),
        **dict.fromkeys(("w", "h", "r", "s", "in_ch", "out_ch", "kernel", "in_hw", "out_hw", "stride"), SIZE),
        **dict.fromkeys(("stride_h", "stride_v", "sram_kb_each", "dram_bw_words_per_cycle"), SIZE),
        **dict.fromkeys(("pad_h", "pad_w"), PADDING),
        **dict.fromkeys(
            (
                "tp",
                "pp",
                "cp",
                "dp",
                "gpus",
                "accelerators",
                "n_gpus",
                "n_devices",
                "n_chips",
                "n_accelerators",
                "slices",
            ),
            DEVICES,
        ),
        **dict.fromkeys(("gpus_per_node", "interleave_stages", "ici_tensor_parallel"), DEVICES),
        **dict.fromkeys(("ranks", "ranks_per_node"), DEVICES),
        **dict.fromkeys(
            ("batch_size", "micro_batch", "global_batch", "global_batch_seqs", "local_batch"), BATCH
        ),
        **dict.fromkeys(("gbs", "mbs"), BATCH),
        **dict.fromkeys(("bytes", "n_params", "tokens_per_step"), BYTES),
    }
)
"""Whole numbers by the names of their columns, which mean the same in all sets."""


def _schema(texts: str = "", counts: str = "", times: str = "", **others: Cell) -> dict[str, Cell]:
    """Columns by the names in texts; those with a question mark may be empty."""
    typed = {name: _COUNTED[name.rstrip("?")] for name in counts.split()}
    typed |= dict.fromkeys(times.split(), TIME)
    named = {name.rstrip("?"): maybe(cell) if name.endswith("?") else cell for name, cell in typed.items()}
    return {**dict.fromkeys(texts.split(), TEXT), **named, **others}


_DATAFLOW = one_of(flow.value for flow in Dataflow)
_COLLECTIVE: Schema = _schema(
    "system",
    "ranks ranks_per_node? bytes",
    "time_us",
    collective=one_of(COLLECTIVES),
    library=absent(TEXT),
)
OWN_COLLECTIVES: Schema = MappingProxyType(
    {**_COLLECTIVE, "system": absent(TEXT), "ranks_per_node": absent(DEVICES), "algorithm": absent(TEXT)}
)
"""Columns of a user's own collectives, of one system where no column names it."""

OWN_PRODUCTS: Schema = _schema("dtype", "m n k", "latency_us", batch=absent(SIZE))
"""Columns of a user's own products, (m x k) (k x n), of a batch where a column says so."""
OWN_SERVING: Schema = _schema(
    "workload",
    times="tpot_ms",
    tensor_parallel=DEVICES,
    prompt_tokens=count(2**24),
    output_tokens=count(2**24, 2),
    concurrency=count(4096),
    recipe=absent(TEXT),
)
"""Columns of a user's own served models, a replica each."""

_GPT = "layers hidden heads vocab seq_len"
_GEMM = "m k n"
_VTRAIN: Schema = _schema(
    "gpu", "layers hidden heads seq_len tp dp pp micro_batch n_gpus global_batch", "iteration_ms"
)
_NEUSIGHT_MODEL = "layers hidden heads ffn vocab seq_len batch_size"
_ATTENTION = "batch q_len kv_len heads kv_heads head_dim"
_SYSTOLIC = "M K N array_rows array_cols"
_COLLECTIVES = (
    *("aiconfigurator_nccl", "deepbench_allreduce", "llmcompass_a100", "ml_engineering"),
    *("sailor_aceso", "vidur", "vtrain_allreduce"),
)

_READ: Schema = MappingProxyType(
    {
        **dict.fromkeys(("power_w", "power_limit_w", "sm_clock_mhz"), maybe(RATE)),
        "capped": maybe(amount(0.0, 1.0)),
    }
)
"""What a GPU's meter shows of a kernel."""

_EXCHANGE_US = (
    *(f"{way}_{part}_us" for way in ("dispatch", "combine") for part in ("transmit", "notify")),
    *(f"{way}_avg_t_us" for way in ("dispatch", "combine")),
)
_EXCHANGE: Schema = MappingProxyType(
    {
        **dict.fromkeys(("node_num", "num_gpus", "moe_ep_size", "message_size"), maybe(SIZE)),
        **dict.fromkeys(("num_tokens", "hidden_size", "topk"), maybe(SIZE)),
        **dict.fromkeys(("dispatch_sms", "combine_sms"), maybe(count(2**16, 0))),
        **dict.fromkeys(("latency_ms", *_EXCHANGE_US), maybe(amount(0.0))),
    }
)

TABLES: Mapping[str, Schema] = MappingProxyType(
    {
        "chip_area_breakdown": _schema("chip component", area_mm2=amount(0.0)),
        "chip_specs": _schema("chip", times="die_mm2? tdp_w?", note=absent(TEXT)),
        **dict.fromkeys((f"coll_{name}" for name in _COLLECTIVES), _COLLECTIVE),
        "e2e_llmfoundry_fsdp": _schema(
            "gpu sharding act_ckpt act_offload precision",
            "layers d_model heads vocab seq_len n_params n_gpus micro_batch global_batch_seqs",
            "iteration_s",
        ),
        "e2e_megatron_bridge": _schema(
            "release model arch system precision fsdp tp pp cp vp ep n_gpus mbs gbs",
            "layers? hidden? heads? kv_heads? vocab? seq_len?",
            "iteration_s",
            ffn_or_expert_ffn=maybe(SIZE),
        ),
        "e2e_mlperf_gpt3_175b": _schema(
            "round accelerator precision",
            f"{_GPT} n_accelerators global_batch tp? pp? micro_batch?",
            "step_s?",
        ),
        "e2e_mlperf_bert_resnet": _schema(
            "system accelerator benchmark",
            "n_accelerators global_batch",
            samples_per_s_logged=maybe(RATE),
            samples_per_s_incl_eval=RATE,
        ),
        "e2e_mlperf_training": _schema(
            "round submitter benchmark accelerator network precision_words",
            "accelerators global_batch tp? pp? cp?",
            "step_s?",
        ),
        "e2e_neusight_distributed": _schema(
            "device model option", f"{_NEUSIGHT_MODEL} n_devices", "latency_ms"
        ),
        "e2e_neusight_models_fp32": _schema("device model mode option", _NEUSIGHT_MODEL, "latency_ms"),
        "e2e_torchtitan": _schema(
            "gpu model parallelism options precision act_ckpt provenance",
            "n_gpus local_batch seq_len",
            tokens_per_s_per_gpu=RATE,
            memory_gib=maybe(TIME),
        ),
        "e2e_nanotron_ultrascale": _schema(
            "model tied_embeddings",
            "gpus micro_batch global_batch dp pp tp sequence_length layers hidden ffn heads vocab",
            "step_s? peak_memory_gb?",
            status=one_of(("measured", "crashed_or_oom")),
            zero_stage=count(1, 0),
        ),
        "e2e_sailor": _schema(
            "model gpu_per_stage_replica flag",
            f"{_GPT} tp pp dp n_gpus gpus_per_node micro_batch global_batch",
            "iteration_s",
            layers_per_stage=extents(";"),
            peak_mem_bytes=BYTES,
        ),
        "e2e_vtrain_multi_node": _VTRAIN,
        "e2e_vtrain_single_node": _VTRAIN,
        "e2e_korthikanti_times": _schema(
            "config metric", f"{_GPT} tp pp n_gpus global_batch micro_batch interleave_stages?", "value"
        ),
        "e2e_literature": _schema(
            "accelerator parallelism framework",
            "layers? hidden? heads? vocab? seq_len? n_accelerators? global_batch_seqs?",
            "step_s? tokens_per_s? throughput_seqs_per_s? tflops_per_acc? mfu_pct?",
        ),
        "e2e_megatron": _schema(
            "table gpu scheme",
            f"{_GPT} tp pp n_gpus global_batch micro_batch?",
            "iteration_s_derived? iteration_ms_reported?",
        ),
        "e2e_maxtext_tpu": _schema(
            "chip model remat precision arch_note",
            "n_chips? slices? seq_len? ici_tensor_parallel? hidden? layers? heads? ffn?",
            "tokens_per_s_per_chip? tflops_per_chip? mfu_pct? per_device_batch?",
        ),
        "e2e_tpu_recipes": _schema(
            "chip model precision", "n_chips? global_batch? seq_len? tokens_per_step?", "step_s?"
        ),
        "e2e_optimum_habana": _schema("suite test device metric", "", "value"),
        "e2e_trainium": _schema(
            "accelerator model topology", "n_chips? micro_batch? global_batch? seq_len?", "step_s?"
        ),
        "gpu_idle": _schema("device state", power_w=maybe(RATE)),
        "gpu_products": _schema("device dtype", "batch m n k", "latency_us", **_READ),
        "gpu_kernels": _schema("device op dtype", "rows cols", "latency_us", **_READ),
        "gpu_attention": _schema("device op backend", _ATTENTION, "latency_us", causal=count(1, 0), **_READ),
        "gpu_steps": _schema(
            "device model precision",
            f"{_NEUSIGHT_MODEL} kv_heads",
            "step_s",
            compiled=count(1, 0),
            **dict.fromkeys(("peak_bytes", "reserved_bytes"), maybe(count(2**50, 0))),
            energy_j=maybe(TIME),
            power_w=maybe(RATE),
        ),
        "gpu_decode": _schema(
            "device workload",
            times="tpot_ms",
            tensor_parallel=DEVICES,
            prompt_tokens=count(2**24),
            output_tokens=count(2**24, 2),
            concurrency=count(4096),
        ),
        "mem_korthikanti": _schema("model config metric", "layers hidden heads tp pp micro_batch", "value"),
        "power_splitwise": _schema(
            "model gpu",
            "tp batch",
            "prompt_ms token_ms",
            **dict.fromkeys(("prompt_tokens", "output_tokens"), SIZE),
            average_power_fraction=maybe(RATE),
        ),
        "kernel_power_aiconfigurator": _schema(
            "device op framework dtype kv_cache_dtype",
            "m? k? n? batch? heads? kv_heads? head_dim?",
            "latency_ms",
            **dict.fromkeys(("isl", "step", "window_size"), maybe(count(2**32, 0))),
            **dict.fromkeys(("num_tokens", "hidden_size", "inter_size", "topk"), maybe(SIZE)),
            **dict.fromkeys(("num_experts", "moe_tp_size", "moe_ep_size"), maybe(SIZE)),
            **dict.fromkeys(("power_w", "power_limit_w"), RATE),
            loop_s_at_least=amount(0.0),
        ),
        "kernels_alltoall": MappingProxyType(
            {**_schema("system op op_name dtype kernel_source"), **_EXCHANGE}
        ),
        "kernels_mla": _schema(
            "device op framework kv_cache_dtype kernel_source",
            "batch heads",
            "latency_ms",
            isl=SIZE,
            step=count(2**32, 0),
        ),
        "kernels_moe": _schema(
            "device op dtype distribution kernel_source",
            "",
            "latency_ms",
            **dict.fromkeys(("num_tokens", "hidden_size", "inter_size", "topk"), maybe(SIZE)),
            **dict.fromkeys(("num_experts", "moe_tp_size", "moe_ep_size"), maybe(SIZE)),
        ),
        "serving_aiconfigurator": _schema(
            "model_family system engine mode gemm_quant precision speculative_decoding flags source_kind",
            "",
            "ttft_ms tpot_ms",
            **dict.fromkeys(("isl", "osl"), SIZE),
            **dict.fromkeys(("concurrency", "decode_batch_size", "batch_size"), maybe(RATE)),
            **dict.fromkeys(
                (
                    "gpus_likely",
                    *(
                        f"{pool}{degree}_size"
                        for pool in ("", "decode_")
                        for degree in ("tp", "attention_dp", "moe_tp", "moe_ep")
                    ),
                ),
                maybe(DEVICES),
            ),
        ),
        "serving_tensorrt_llm_overview": _schema(
            "model device format",
            "",
            "",
            **dict.fromkeys(("isl", "osl"), SIZE),
            **dict.fromkeys(("tp", "pp"), DEVICES),
            output_tokens_per_s=RATE,
        ),
        "op_attention_context_aiconfigurator": _schema("device framework", _ATTENTION, "latency_ms"),
        "op_attention_generation_aiconfigurator": _schema("device framework", _ATTENTION, "latency_ms"),
        "op_conv_deepbench": _schema(
            "device dtype",
            "batch w h in_ch out_ch pad_w pad_h stride_h stride_v r? s?",
            "fwd_ms? bwd_input_ms? bwd_weight_ms?",
        ),
        "op_conv_neusight_fp32": _schema(
            "device", "batch in_ch out_ch kernel in_hw stride out_hw", "latency_ms"
        ),
        "op_bmm_neusight_fp16_h100": _schema("device dtype", f"batch {_GEMM}", "latency_ms"),
        "op_gemm_aiconfigurator": _schema("device dtype framework", _GEMM, "latency_ms"),
        "op_gemm_deepbench": _schema("device dtype", _GEMM, "latency_ms"),
        "op_gemm_deepgemm_fp8_h800": _schema("device dtype", "groups m_per_group k n", "latency_us"),
        "op_gemm_neusight_fp32": _schema("device dtype", f"batch {_GEMM}", "latency_ms"),
        "op_gemm_tpu_v4": _schema("device dtype", _GEMM, "kernel_us"),
        "op_gemm_tpu_v6e_v7": _schema("device dtype timing", _GEMM, "latency_us"),
        "op_gpt3_layer_llmcompass": _schema(
            "device phase op", "tp batch seq_len kv_len hidden heads", "latency_us"
        ),
        "op_in_model_neusight_fp32": _schema(
            "device mode op",
            input_shapes=SHAPES,
            output_shape=SHAPE,
            fwd_ms_median=MAYBE_NO_TIME,
            bwd_ms_median=MAYBE_NO_TIME,
        ),
        "op_llm_layer_vidur_fp16": _schema("device model op kind", "m n k?", "latency_ms_median"),
        "op_llmcompass_fp16": _schema("device op dtype", "m n k?", "latency_us"),
        "op_mamf_max_achievable_matmul": _schema("device dtype", _GEMM, achieved_tflops=RATE),
        "op_vector_neusight_fp32": _schema("device op", "rows cols", "latency_ms"),
        "op_vector_tpu_v4": _schema("device op", times="latency_us", shape=extents("x")),
        "op_tpu_microbench_bf16": _schema("device op", "m? k? n? bytes?", "latency_us"),
        "op_transformer_aceso_profiles": _schema(
            "device op_name dtype", "micro_batch batch m n k?", "fwd_us bwd_us"
        ),
        "systolic_scalesim_compute_cycles": _schema("", _SYSTOLIC, "compute_cycles", dataflow=_DATAFLOW),
        "systolic_scalesim_stalls": _schema(
            "",
            f"{_SYSTOLIC} sram_kb_each dram_bw_words_per_cycle",
            "tool_total_cycles",
            dataflow=_DATAFLOW,
        ),
    }
)
"""Columns of each set that are read, by the stem of its file."""
