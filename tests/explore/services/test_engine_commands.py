"""Commands that start a plan: what the options of each engine say is what the plan says."""

from __future__ import annotations

import argparse
import re
import shlex
from dataclasses import replace

import pytest
from serving_cases import served, served_mixture, space

from phaze.explore.documents.engine_commands import start_commands
from phaze.parallel.serving import Targets
from phaze.parallel.serving.serving_search import best_of
from phaze.workload.expert_load import ExpertLoad
from phaze.workload.operators.kv_cache import CacheFormat


def commands(made):
    plan = best_of(made)
    return plan, {
        (engine, pool.role.value): command
        for engine, pool, command in start_commands(plan, made.traffic, made.options)
    }


def number(command, option):
    found = re.search(rf"{option} (\d+)", command)
    return int(found[1]) if found else None


def test_one_pool_on_three_engines(tmp_path):
    made = space(served(tmp_path), devices=2, batch=12, chunk=64, kv_cache_format=CacheFormat.FP8)
    plan, found = commands(made)
    (pool,) = plan.pools
    vllm, sglang, trtllm = (found[e, "prefill and decode"] for e in ("vllm", "sglang", "tensorrt-llm"))
    assert number(vllm, "--tensor-parallel-size") == number(sglang, "--tp-size") == pool.tensor_parallel
    assert number(vllm, "--pipeline-parallel-size") == number(trtllm, "--pp_size") == pool.pipeline_parallel
    assert number(vllm, "--max-num-batched-tokens") == number(trtllm, "--max_num_tokens") == 64 + pool.batch
    assert number(sglang, "--chunked-prefill-size") == 64
    assert number(vllm, "--max-model-len") == 256 + 64
    assert "--kv-cache-dtype fp8" in vllm
    assert "--enable-mixed-chunk" in sglang


def test_replicas_that_share_experts_are_one_server(tmp_path):
    made = space(served_mixture(tmp_path), devices=4, batch=12, chunk=64, largest_batch=8)
    shared = replace(best_of(made), pools=tuple(replace(p, expert_parallel=2) for p in best_of(made).pools))
    for engine, pool, command in start_commands(shared, made.traffic, made.options):
        if engine == "vllm":
            assert "--data-parallel-size 2 --enable-expert-parallel" in command
        if engine == "sglang":
            assert number(command, "--tp-size") == 2 * pool.tensor_parallel
            assert number(command, "--dp-size") == 2


def test_copies_of_experts_are_as_many_on_every_rank(tmp_path):
    load = ExpertLoad(1.0, 3)
    made = space(
        served_mixture(tmp_path), devices=4, batch=12, disaggregate=False, largest_batch=8, expert_load=load
    )
    plan = best_of(made)
    (pool,) = plan.pools
    shared = replace(plan, pools=(replace(pool, expert_parallel=2, tensor_parallel=2, redundant_experts=4),))
    found = {engine: command for engine, _, command in start_commands(shared, made.traffic, made.options)}
    assert pool.experts == 8
    assert "--enable-eplb --eplb-config '{\"num_redundant_experts\": 4}'" in found["vllm"]
    assert number(found["sglang"], "--ep-num-redundant-experts") == 4


def test_two_pools_are_two_kinds_of_servers(tmp_path):
    made = space(served(tmp_path), devices=2, batch=8, targets=Targets(), disaggregate=True)
    _, found = commands(made)
    assert set(found) == {("sglang", "prefill"), ("sglang", "decode")}
    assert "--disaggregation-mode decode" in found["sglang", "decode"]


@pytest.mark.parametrize("share", [0.8])
def test_memory_is_what_was_planned(tmp_path, share):
    made = space(served(tmp_path), devices=1, batch=4, memory_share=share, disaggregate=False)
    _, found = commands(made)
    assert "--gpu-memory-utilization 0.8" in found["vllm", "prefill and decode"]


def own_parser(engine):
    """The parser of an engine's own package: `pip install sglang` (0.5.23 was tried), `pip install vllm` (0.8.5)."""
    if engine == "sglang":
        module = pytest.importorskip("sglang.srt.server_args", exc_type=ImportError)
        parser = argparse.ArgumentParser()
        module.ServerArgs.add_cli_args(parser)
        return parser
    module = pytest.importorskip("vllm.engine.arg_utils", exc_type=ImportError)
    return module.EngineArgs.add_cli_args(pytest.importorskip("vllm.utils").FlexibleArgumentParser())


@pytest.mark.parametrize("engine", ["sglang", "vllm"])
def test_an_engine_itself_reads_its_commands(tmp_path, engine):
    parser = own_parser(engine)
    cached = {"chunk": 64, "kv_cache_format": CacheFormat.FP8}
    one = space(served(tmp_path), devices=2, batch=12, **cached)
    pools = space(served(tmp_path), devices=2, batch=8, targets=Targets(), disaggregate=True)
    experts = space(served_mixture(tmp_path), devices=4, batch=12, chunk=64, largest_batch=8)
    read = 0
    for made in (one, pools, experts):
        plan = best_of(made)
        if made is experts:
            plan = replace(plan, pools=tuple(replace(pool, expert_parallel=2) for pool in plan.pools))
        for name, pool, command in start_commands(plan, made.traffic, made.options):
            if name == engine:
                words = shlex.split(command.replace("$MODEL", "model"))
                told = parser.parse_args(words[3:])
                width = getattr(told, "tp_size" if engine == "sglang" else "tensor_parallel_size")
                assert width == pool.tensor_parallel * (pool.expert_parallel if engine == "sglang" else 1)
                read += 1
    assert read >= 2
