"""What `evaluate` says must make physical sense: magnitudes on real chips, and better hardware is never slower."""

from dataclasses import replace
from pathlib import Path

import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phaze.cost.fidelity import Fidelity
from phaze.cost.pass_energy import static_w
from phaze.errors import InfeasibleError
from phaze.explore.answers.main_job import evaluate
from phaze.explore.request.explore_request import Task
from phaze.hardware.architecture import Architecture, load_architecture, to_table
from phaze.hardware.cluster_network import load_network
from phaze.hardware.derived_figures import hbm_capacity_bytes, macs, peak_flops_per_s
from phaze.hardware.hardware_fields import default_values
from phaze.workload.workload import Mode
from phaze.workload.workload_loader import load_workload

LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
NETWORKS = ("bvlc_alexnet", "resnet50", "squeezenet", "vgg19", "zfnet512")
FAST = (("gpt3", "tpuv4"), ("gpt3", "h100"), ("bvlc_alexnet", "a100-80gb"))
SLOW = (
    ("bert-large", "h100"),
    ("gpt2-xl", "tpuv4"),
    ("llama2-7b", "a100-80gb"),
    ("megatron-gpt2-54", "phaze-reference"),
    ("megatron-gpt2-72", "h100"),
    ("opt-350m", "tpuv4"),
    ("resnet50", "a100-80gb"),
    ("squeezenet", "h100"),
    ("vgg19", "tpuv4"),
    ("zfnet512", "phaze-reference"),
)
NETWORK = load_network()


def check(name, chip, mode=Mode.TRAINING):
    """Evaluate one workload on one chip and hold the result against bounds worked out here."""
    path = LIGHT / f"light_{name}.onnx"
    workload = load_workload(str(path) if name in NETWORKS else name, mode=mode)
    task = Task(workload, 8 if name in NETWORKS else 128, NETWORK, held={"microbatches": (1,)})
    architecture = load_architecture(chip)
    design = evaluate(task, architecture)
    result = next(iter(design.workloads.values()))
    table = to_table([architecture])
    rate = 2 * float(macs(table)[0]) * float(table["clock_hz"][0])
    model_flops = result.mfu * result.iteration_time_s * task.devices * float(peak_flops_per_s(table)[0])
    parts = result.breakdown.spent
    average_w = result.energy_per_iteration_j / result.iteration_time_s / task.devices
    assert 0 < result.mfu < 1
    assert result.iteration_time_s >= model_flops / (task.devices * rate)
    assert sum(parts.values()) == pytest.approx(result.iteration_time_s, rel=1e-9)
    assert min(parts.values()) >= -1e-12
    assert 0 < result.memory_bytes <= float(hbm_capacity_bytes(table)[0])
    assert 0 < result.devices_used <= task.devices
    assert float(static_w(table)[0]) < average_w <= design.tdp_w * (1 + 1e-12)
    return result


@pytest.mark.parametrize(("name", "chip"), FAST)
def test_results_are_physical(name, chip):
    check(name, chip)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "chip"), SLOW)
def test_more_results_are_physical(name, chip):
    check(name, chip)


@pytest.mark.parametrize("name", ["bert-large", "zfnet512"])
def test_prefill_is_one_forward_pass(name):
    """No optimizer step, no gradients in memory, at least twice the samples (backward costs two forwards)."""
    forward, training = (check(name, "a100-80gb", mode) for mode in (Mode.PREFILL, Mode.TRAINING))
    assert forward.breakdown.optimizer_s == 0
    assert forward.memory_bytes < training.memory_bytes
    assert forward.throughput_samples_per_s > 2 * training.throughput_samples_per_s


def test_an_h100_computes_most_of_the_time_on_gpt3():
    """Its small arrays, as systolic ones, share local buffers; with one each, the global buffer starves them."""
    chip = load_architecture("h100").replace("systolic", simt=False)
    held = {"tensor": (8,), "pipeline": (8,), "microbatches": (1,)}
    gpt3 = Task(load_workload("gpt3"), 1024, NETWORK, held=held)
    shared = evaluate(gpt3, chip).workloads["gpt3"]
    private = seconds(chip.replace("private", tensor_cores_per_local_buffer=1), gpt3)
    assert shared.iteration_time_s < 0.7 * private
    assert shared.breakdown.compute_s > 0.6 * shared.iteration_time_s


def test_measured_links_carry_less_than_their_bandwidth():
    chip = load_architecture("h100")
    task = Task(
        load_workload("bert-large"),
        8,
        NETWORK,
        64,
        {"data": (1,), "tensor": (8,), "pipeline": (1,), "microbatches": (8,)},
    )
    ideal, measured = (
        evaluate(replace(task, rung=rung), chip).workloads["bert-large"].breakdown.collective_s
        for rung in (Fidelity.ANALYTIC, Fidelity.CALIBRATED)
    )
    assert ideal < measured < 10 * ideal


BASES = st.fixed_dictionaries(
    {
        "tensor_cores": st.sampled_from([1, 6, 64]),
        "tensor_core_rows": st.sampled_from([16, 128]),
        "tensor_core_columns": st.sampled_from([32, 128]),
        "vector_cores": st.sampled_from([1, 8]),
        "vector_core_alus": st.sampled_from([64, 1024]),
        "global_buffer_bytes": st.sampled_from([2**18, 2**22, 2**26]),
        "hbm_bandwidth_bytes_per_s": st.sampled_from([1e11, 2e12]),
        "hbm_capacity_bytes": st.sampled_from([2e8, 3e8, 2e9]),
        "link_bandwidth_bytes_per_s": st.sampled_from([1e9, 3e11]),
    }
)
MORE = (
    "clock_hz",
    "global_buffer_bytes",
    "global_buffer_bytes_per_cycle",
    "hbm_bandwidth_bytes_per_s",
    "hbm_capacity_bytes",
    "link_bandwidth_bytes_per_s",
    "tensor_cores",
    "vector_cores",
)


def seconds(architecture, task):
    """Iteration time of the best placement."""
    return next(iter(evaluate(task, architecture).workloads.values())).iteration_time_s


@settings(max_examples=8, deadline=None)
@given(base=BASES, field=st.sampled_from(MORE), factor=st.sampled_from([2, 3]))
def test_more_of_anything_is_never_slower(tiny, base, field, factor):
    task = Task(tiny, 4, NETWORK, held={"microbatches": (1, 4)})
    chip = Architecture(name="base", fields={**default_values(), **base})
    better = chip.replace("better", **{field: factor * chip.fields[field]})
    assert seconds(better, task) <= seconds(chip, task) * (1 + 1e-9)


def test_a_chip_without_links_trains_what_fits_on_one():
    """Whatever is divided takes for ever there, which is a sentence and no plan."""
    alone = load_architecture("edge")
    task = Task(load_workload("resnet18"), 1, load_network("default"))
    assert evaluate(task, alone).workloads["resnet18"].devices_used == 1
    for name, devices in (("resnet18", 2), ("bert-large", 2)):
        with pytest.raises(InfeasibleError, match="no links to fill devices with"):
            evaluate(Task(load_workload(name), devices, load_network("default")), alone)
