"""The built-in workload files against published figures."""

import os
import subprocess
import sys
import time

import pytest

from phaze.errors import InputError
from phaze.workload.library import builtin_names, find_workload, list_workloads
from phaze.workload.load import load_workload
from phaze.workload.workload import Attention, Mode
from phaze.workload.workload_file import read_spec

# Published counts. BERT: Hugging Face's BertForMaskedLM of bert-large-uncased; GPT-2 XL, OPT-350m and
# Llama-2-7b: sums over the published checkpoints' shapes.
EXACT = {
    "bert-large": 335_174_458,
    "gpt2-xl": 1_557_611_200,
    "opt-350m": 331_196_416,
    "llama2-7b": 6_738_415_616,
}
# Megatron-LM (arXiv 1909.08053) prints 2.5 B, 8.3 B, 336 M; Brown et al. 175 B.
ROUNDED = {
    "gpt3": (174.6e9, 175.2e9),
    "megatron-gpt2-54": (2.45e9, 2.55e9),
    "megatron-gpt2-72": (8.25e9, 8.35e9),
    "megatron-bert": (335e6, 340e6),
}
GPT_FAMILY = ["gpt3", "gpt2-xl", "megatron-gpt2-xl", "megatron-gpt2-54", "megatron-gpt2-72"]


@pytest.mark.parametrize("name", EXACT)
def test_parameter_count_is_the_published_one(name):
    assert load_workload(name).parameter_count == EXACT[name]


@pytest.mark.parametrize("name", ROUNDED)
def test_parameter_count_rounds_to_the_published_one(name):
    low, high = ROUNDED[name]
    assert low <= load_workload(name).parameter_count <= high


@pytest.mark.parametrize("name", GPT_FAMILY)
@pytest.mark.parametrize("attention", Attention)
def test_model_flops_equal_the_megatron_formula(name, attention):
    """72 B s l h^2 (1 + s/6h + V/12lh), the form without recompute (arXiv 2104.04473, section 5.1)."""
    spec = read_spec(find_workload(name))
    d, s, batch = spec.dimensions, spec.sequence_length, 2
    formula = 72 * batch * s * d.layers * d.hidden**2
    formula *= 1 + s / (6 * d.hidden) + d.vocabulary / (12 * d.layers * d.hidden)
    chain = load_workload(name, attention=attention).chain(batch, 1)
    assert chain.model_flops == pytest.approx(formula, rel=1e-9)


@pytest.mark.parametrize("name", builtin_names())
def test_prefill_is_a_third_of_training(name):
    training = load_workload(name).chain(1, 1)
    prefill = load_workload(name, Mode.PREFILL).chain(1, 1)
    assert training.model_flops == pytest.approx(3 * prefill.model_flops, rel=1e-12)
    assert all(layer.backward is None and layer.saved_bytes == 0 for layer in prefill.layers)
    assert all(layer.working_bytes > 0 for layer in prefill.layers)


@pytest.mark.parametrize("name", builtin_names())
def test_every_part_of_a_file_has_a_source(name):
    spec = read_spec(find_workload(name))
    assert spec.name == name
    given = {"dimensions", "sequence_length", "global_batch", "numerics", "expert_plan"}
    assert given <= spec.source.keys()
    assert all(len(text) > 20 for text in spec.source.values())


@pytest.mark.parametrize("name", builtin_names())
def test_expert_plan_fits_1024_devices_and_an_admissible_width(name):
    workload = load_workload(name)
    plan = workload.expert_plan
    assert plan is not None
    pipeline, tensor, data = plan
    assert pipeline * tensor * data <= 1024
    assert tensor in workload.tensor_parallel_widths(8)


def test_list_agrees_with_the_workloads():
    for summary in list_workloads():
        workload = load_workload(summary.name)
        assert summary.parameters == workload.parameter_count
        assert summary.global_batch == workload.global_batch(7)


def test_widths():
    assert load_workload("gpt2-xl").tensor_parallel_widths(8) == (1, 5)
    assert load_workload("gpt3").tensor_parallel_widths(8) == (1, 2, 4, 8)
    assert load_workload("megatron-gpt2-54").tensor_parallel_widths(8) == (1, 2, 4)


def test_numerics():
    training = load_workload("gpt3").numerics
    assert (training.state_bytes, training.gradient_bytes, training.optimizer_traffic_bytes) == (18, 4, 30)
    forward_only = load_workload("gpt3", Mode.PREFILL).numerics
    assert (forward_only.state_bytes, forward_only.gradient_bytes) == (2, 0)
    assert (forward_only.optimizer_traffic_bytes, forward_only.optimizer_vector_cycles) == (0, 0)


def test_names_are_forgiving_and_wrong_ones_get_the_nearest():
    assert load_workload("GPT 3").name == "gpt3"
    with pytest.raises(InputError, match=r"unknown workload 'gtp3'; nearest: gpt3"):
        load_workload("gtp3")
    with pytest.raises(InputError, match="known: bert-large"):
        load_workload("zzzzzzzz")


def test_overrides():
    short = load_workload("gpt3", sequence_length=1024, global_batch=96)
    assert short.global_batch(1024) == 96
    assert short.chain(2, 1).model_flops < load_workload("gpt3").chain(1, 1).model_flops
    with pytest.raises(InputError, match="exceeds the model's 2048 positions"):
        load_workload("gpt3", sequence_length=4096)
    for wrong in ({"global_batch": 0}, {"sequence_length": -1}):
        with pytest.raises(InputError, match="must be at least 1"):
            load_workload("gpt3", **wrong)


def test_chain_is_cached_and_quick():
    workload = load_workload("gpt3")
    begin = time.perf_counter()
    first = workload.chain(2, 8)
    assert time.perf_counter() - begin < 2  # 0.1 s here; the bound only catches a change of order
    assert workload.chain(2, 8) is first


def test_chains_do_not_depend_on_the_hash_seed():
    code = (
        "import hashlib; from phaze.workload.load import load_workload;"
        "w = load_workload('bert-large');"
        "print(hashlib.sha256(repr([w.chain(2, t) for t in (1, 4)]).encode()).hexdigest())"
    )
    seen = set()
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        )
        seen.add(done.stdout)
    assert len(seen) == 1
