"""Commands that start a serving plan with vLLM, SGLang or TensorRT-LLM.

Options as documented: vLLM 0.8.5 "Engine Arguments" (docs.vllm.ai), SGLang "Server Arguments" (docs.sglang.io),
TensorRT-LLM 1.1 "trtllm-serve" (nvidia.github.io/TensorRT-LLM). The weights are `$MODEL`, a folder or a name.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator

from phaze.parallel.serving import Policy, Pool, ServingOptions, ServingPlan, Traffic
from phaze.parallel.serving.load.speculation import Speculation
from phaze.parallel.serving.serving_plan import Role


def start_commands(
    plan: ServingPlan, traffic: Traffic, options: ServingOptions
) -> Iterator[tuple[str, Pool, str]]:
    """Engine, pool and command of everything that starts the plan, one command for every replica or group of them.

    Replicas that share experts are one group. Only SGLang's options say which of two pools a server is for, only vLLM's
    that tensor groups hold parts of caches.
    """
    guessed = options.speculation is not None  # only vLLM's options say how without a file beside them
    for pool in plan.pools:
        if len(plan.pools) == 1:
            yield "vllm", pool, " ".join(_vllm(plan, pool, traffic, options))
            if not guessed and pool.context_parallel == 1:
                yield "tensorrt-llm", pool, " ".join(_tensorrt_llm(plan, pool, traffic))
        if not guessed and pool.context_parallel == 1:
            yield "sglang", pool, " ".join(_sglang(plan, pool, traffic, options))


def _tokens(plan: ServingPlan, pool: Pool) -> int:
    """Tokens of the largest pass: prompts with all decoding sequences beside them, or either alone."""
    batch, prompts = math.ceil(pool.batch), plan.chunk_tokens * plan.prompts_per_pass
    if pool.role is Role.PREFILL:
        return prompts
    return prompts + batch if plan.policy is Policy.CHUNKED else max(prompts, batch)


def _whole_length(traffic: Traffic) -> int:
    if traffic.recorded is not None:
        return int((traffic.recorded.prompts + traffic.recorded.outputs).max())
    return traffic.prompt_tokens + traffic.output_tokens


def _vllm(plan: ServingPlan, pool: Pool, traffic: Traffic, options: ServingOptions) -> Iterator[str]:
    yield "vllm serve $MODEL"
    yield f"--tensor-parallel-size {pool.tensor_parallel} --pipeline-parallel-size {pool.pipeline_parallel}"
    if pool.context_parallel > 1:
        yield f"--decode-context-parallel-size {pool.context_parallel}"
    if pool.expert_parallel > 1:
        yield f"--data-parallel-size {pool.expert_parallel} --enable-expert-parallel"
        if (copies := _copies(pool, options)) is not None:
            balancer = json.dumps({"num_redundant_experts": copies})
            yield f"--enable-eplb --eplb-config '{balancer}'"
    yield f"--max-num-seqs {math.ceil(pool.sequences)} --max-num-batched-tokens {_tokens(plan, pool)}"
    yield f"--max-model-len {_whole_length(traffic)} --gpu-memory-utilization {options.memory_share:g}"
    if options.kv_cache_format == "fp8":
        yield "--kv-cache-dtype fp8"
    if plan.cached_share:
        yield "--enable-prefix-caching"
    if options.speculation is not None:
        yield f"--speculative-config '{json.dumps(_speculative(options.speculation))}'"


def _copies(pool: Pool, options: ServingOptions) -> int | None:
    """Copies of experts, in all, as engines want them: as many places on every rank; None: experts stay as numbered.

    TensorRT-LLM takes them from a file beside its command.
    """
    if options.expert_load is None or options.expert_load.redundant is None:
        return None
    ranks, places = pool.tensor_parallel * pool.expert_parallel, pool.experts + pool.redundant_experts
    return -(-places // ranks) * ranks - pool.experts


def _speculative(guessed: Speculation) -> dict[str, object]:
    """Configuration of vLLM's speculative decoding; the weights of a draft are in a folder named `DRAFT`."""
    if guessed.draft is None:
        return {"method": "ngram", "num_speculative_tokens": guessed.tokens, "prompt_lookup_max": 4}
    return {"model": "DRAFT", "num_speculative_tokens": guessed.tokens}


def _sglang(plan: ServingPlan, pool: Pool, traffic: Traffic, options: ServingOptions) -> Iterator[str]:
    group = pool.tensor_parallel * pool.expert_parallel
    yield "python3 -m sglang.launch_server --model-path $MODEL"
    yield f"--tp-size {group} --pp-size {pool.pipeline_parallel}"
    if pool.expert_parallel > 1:  # the newest releases say --attn-dp-size for both, and still take these two
        yield f"--dp-size {pool.expert_parallel} --enable-dp-attention --ep-size {group}"
        if (copies := _copies(pool, options)) is not None:
            yield f"--enable-eplb --ep-num-redundant-experts {copies}"
    yield f"--max-running-requests {math.ceil(pool.sequences) * pool.expert_parallel}"
    yield f"--context-length {_whole_length(traffic)} --mem-fraction-static {options.memory_share:g}"
    if pool.role is not Role.DECODE:
        yield f"--chunked-prefill-size {plan.chunk_tokens * plan.prompts_per_pass}"
    if plan.policy is Policy.CHUNKED:
        yield "--enable-mixed-chunk"
    if options.kv_cache_format == "fp8":
        yield "--kv-cache-dtype fp8_e4m3"
    if pool.role is not Role.BOTH:
        yield f"--disaggregation-mode {pool.role.value}"


def _tensorrt_llm(plan: ServingPlan, pool: Pool, traffic: Traffic) -> Iterator[str]:
    yield "trtllm-serve $MODEL"
    group = pool.tensor_parallel * pool.expert_parallel
    yield f"--tp_size {group} --pp_size {pool.pipeline_parallel}"
    if pool.expert_parallel > 1:  # attention on data-parallel ranks is enabled in the file of further options
        yield f"--ep_size {group}"
    yield f"--max_batch_size {math.ceil(pool.batch)} --max_num_tokens {_tokens(plan, pool)}"
    yield f"--max_seq_len {_whole_length(traffic)}"
