"""`--offload` and `--recipe` of plans as they are typed, and what launch recipes say of them."""

from __future__ import annotations

import json
import tomllib

import pytest

TIGHT = ("--arch", "a100", "--workload", "gpt3-6.7b", "--devices", "2", "--global-batch", "8")
HUGE = ("--arch", "a100", "--workload", "gpt3", "--devices", "2", "--pipeline-parallel", "1")
FEW = ("--microbatch", "1", "--chunks", "1", "--schedule", "1f1b")
SMALL = ("--arch", "h100", "--workload", "gpt3-xl", "--devices", "2", "--global-batch", "8", *FEW)


def plan(dse, *arguments):
    code, out, err = dse("plan", *arguments, "--json")
    assert code == 0, err
    return json.loads(out)


def test_what_does_not_fit_fits_with_the_host(dse):
    code, _, err = dse("plan", *TIGHT, *FEW)
    assert code == 3
    assert "--offload any" in err
    document = plan(dse, *TIGHT, *FEW, "--offload", "any")
    best = document["best"]
    assert best["strategy"]["offload"]
    assert best["memory_bytes"] <= 40 * 2**30 < best["memory_bytes"] + best["host_memory_bytes"]
    assert document["request"]["held"]["offloads"][:2] == ["none", "weights"]
    assert document["certificate"]["scope"][-1].startswith("with activations at the host")


def test_tables_tell_of_the_host(dse):
    code, out, _ = dse("plan", *SMALL, "--offload", "weights,optimizer")
    assert code == 0
    assert "weights and optimizer at the host" in " ".join(out.split())
    assert "memory at the host of a device" in out


def test_a_host_that_is_too_small_is_named(dse):
    code, _, err = dse("plan", *HUGE, *FEW, "--offload", "any")
    assert code == 3
    assert "memory of one device's host: given 128 GiB" in err
    assert "more memory per host" in err


def test_fixed_plan_with_offload_and_recipe(dse):
    code, out, _ = dse(
        "evaluate", *SMALL, "--zero", "1", "--offload", "optimizer", "--recipe", "fp8", "--json"
    )
    assert code == 0
    document = json.loads(out)
    (result,) = document["best"]["workloads"].values()
    assert result["placement"]["plan"]["offload"] == ["optimizer"]
    assert document["request"]["recipe"] == "fp8"
    held = {
        "microbatches": [1],
        "chunks": [1],
        "schedules": ["1f1b"],
        "zeros": [1],
        "offloads": ["optimizer"],
    }
    assert document["request"]["held"] == held
    assert any("by recipe fp8" in line for line in document["certificate"]["scope"])


def test_recipes_side_by_side(dse):
    code, out, _ = dse("whatif", *SMALL, "--vary", "recipe=none,fp8", "--json")
    assert code == 0
    slow, fast = (point["plan"]["best"]["iteration_time_s"] for point in json.loads(out)["points"])
    assert fast < slow


def test_offloads_side_by_side(dse):
    code, out, _ = dse("whatif", *SMALL, "--vary", "offload=none,weights+optimizer,any", "--json")
    assert code == 0
    none, away, best = (point["plan"]["best"]["iteration_time_s"] for point in json.loads(out)["points"])
    assert none == best < away


def test_parts_swap_once_for_all_microbatches(dse):
    """Nothing hides the link under `exposed`: with small microbatches a fifth of the bytes is worth its room."""
    tight = (*TIGHT[:-1], "16", "--microbatch", "1", "--framework", "exposed")
    streamed = plan(dse, *tight, "--offload", "any")
    swapped = plan(dse, *tight, "--plans", "swapping")
    assert swapped["best"]["strategy"]["schedule"] == "breadth-first"
    assert swapped["best"]["strategy"]["offload"]
    assert swapped["best"]["iteration_time_s"] < streamed["best"]["iteration_time_s"]
    assert 0 < swapped["best"]["host_link_bytes"] < streamed["best"]["host_link_bytes"]
    code, _, err = dse("plan", "--arch", "tpuv4", *tight[2:], "--plans", "swapping")
    assert code == 2
    assert "host_bandwidth_bytes_per_s" in err


def test_one_device_says_its_parts(dse):
    parts = ("--pipeline-parallel", "1", "--schedule", "breadth-first", "--chunks", "8")
    line = (*TIGHT, "--microbatch", "1", "--plans", "swapping", "--offload", "weights+optimizer", *parts)
    assert "breadth-first x 8" in " ".join(dse("plan", *line)[1].split())


def test_memory_and_link_of_a_host_are_sized(dse):
    """More of either is never slower, and too little memory fits nothing."""
    for field, values in (
        ("host_memory_capacity_bytes", "32GiB,64GiB,128GiB"),
        ("host_bandwidth_bytes_per_s", "4GB/s,32GB/s,64GB/s"),
    ):
        code, out, _ = dse(
            *("whatif", *TIGHT, *FEW, "--offload", "any", "--framework", "exposed"),
            *("--vary", f"{field}={values}", "--json"),
        )
        assert code == 0
        plans = [point["plan"] for point in json.loads(out)["points"]]
        if field == "host_memory_capacity_bytes":
            assert plans.pop(0) is None
        seconds = [one["best"]["iteration_time_s"] for one in plans]
        assert seconds == sorted(seconds, reverse=True)
        assert field == "host_memory_capacity_bytes" or seconds[0] > seconds[-1]


def test_any_keeps_to_what_the_framework_can(dse):
    document = plan(dse, *SMALL, "--framework", "torchtitan-2025", "--offload", "any")
    told = [document["best"], *document["next_best"]]
    assert {tuple(one["strategy"]["offload"]) for one in told} <= {(), ("weights", "optimizer")}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--offload", "optimiser"), "did you mean optimizer?"),
        (("--offload", "none+weights"), "'none' is not known"),
        (("--offload", ""), "choose none, any, or of weights, activations, optimizer"),
        (("--offload", "weights", "--framework", "torchtitan-2025"), "it does offload: optimizer+weights"),
        (("--offload", "weights", "--framework", "megatron-lm-2022"), "it does offload: nothing"),
        (("--offload", "any", "--arch", "tpuv4"), "host_bandwidth_bytes_per_s"),
        (("--recipe", "fp16"), "--recipe 'fp16' is not known"),
    ],
)
def test_bad_input_is_one_sentence(dse, arguments, words):
    code, out, err = dse("plan", *SMALL, *arguments)
    assert code == 2
    assert words in err
    assert out == ""
    assert err.count("\n") == 1


def test_launch_recipes_say_what_runs_and_what_does_not(dse, tmp_path):
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(plan(dse, *SMALL, "--offload", "optimizer", "--recipe", "mxfp8")))
    _, out, err = dse("plan", "export", str(path))
    assert "megatron-core-2024 runs offload none in place of optimizer" in err
    assert "--optimizer-cpu-offload" not in out
    assert "--fp8-recipe mxfp8" in out
    _, out, err = dse("plan", "export", str(path), "--for", "torchtitan")
    assert tomllib.loads(out)["model"]["converters"] == ["quantize.linear.mx"]
    assert "torchtitan-2025 runs offload none in place of optimizer" in err
    _, out, err = dse("plan", "export", str(path), "--for", "maxtext")
    assert "optimizer_memory_host_offload=true" in out
    assert "MaxText has no recipe mxfp8" in err


def test_activations_at_the_host_are_remarked_on(dse, tmp_path):
    path = tmp_path / "plan.json"
    path.write_text(
        json.dumps(plan(dse, *SMALL, "--arch", "gb200", "--offload", "activations", "--recipe", "nvfp4"))
    )
    told = {target: dse("plan", "export", str(path), "--for", target) for target in ("torchtitan", "maxtext")}
    assert "torchtitan-2025 runs offload none in place of activations" in told["torchtitan"][2]
    assert "no recipe nvfp4" in told["torchtitan"][2]
    assert "decoder_layer_input=offload" in told["maxtext"][2]
    _, out, err = dse("plan", "export", str(path))
    assert "--fp4-format e2m1" in out
    assert "--cpu-offloading-num-layers" in err
