"""The built-in workload files against published figures."""

import os
import pickle
import subprocess
import sys

import pytest

from phaze.errors import InputError
from phaze.workload.families.model_family import Extent
from phaze.workload.graph_workload import GraphWorkload
from phaze.workload.workload import Attention, Mode
from phaze.workload.workload_file import read_spec
from phaze.workload.workload_library import (
    builtin_names,
    builtin_spec,
    count_parameters,
    find_workload,
    list_workloads,
)
from phaze.workload.workload_loader import FamilyModel, load_workload

TRANSFORMERS = {"decoder", "encoder", "encoder-decoder", "vit"}
# Published counts: sums over the shapes of the published checkpoints (of BERT: Hugging Face's
# BertForMaskedLM; of vision transformers: timm's, with 1000 classes; of DeepSeek-V3: without the
# multi-token module and the 14848 offsets of its routers, which are not trained by gradient; of Llama 4: without
# the vision tower of 871,932,416).
EXACT = {
    "bert-base": 109_514_298,
    "bert-large": 335_174_458,
    "bloom-176b": 176_247_271_424,
    "deepseek-v2": 235_741_434_880,
    "deepseek-v3": 671_026_419_200 - 14_848,
    "falcon-h1-34b": 33_642_221_312,
    "gemma-2b": 2_506_172_416,
    "gpt-oss-120b": 116_829_156_672,
    "gpt-oss-20b": 20_914_757_184,
    "granite-3.3-8b": 8_170_864_640,
    "jamba-mini": 51_570_323_328,
    "gpt2-xl": 1_557_611_200,
    "llama2-7b": 6_738_415_616,
    "llama3-405b": 405_853_388_800,
    "llama3-70b": 70_553_706_496,
    "llama3.1-70b": 70_553_706_496,
    "llama3-8b": 8_030_261_248,
    "llama4-maverick": 401_583_781_376 - 871_932_416,
    "llama4-scout": 108_641_793_536 - 871_932_416,
    "mamba2-2.7b": 2_702_599_680,
    "mistral-7b": 7_241_732_096,
    "mistral-small-24b": 23_572_403_200,
    "mixtral-8x22b": 140_620_634_112,
    "mixtral-8x7b": 46_702_792_704,
    "nemotron-h-8b": 8_100_852_736,
    "olmo2-13b": 13_716_198_400,
    "olmo2-7b": 7_298_617_344,
    "opt-1.3b": 1_315_758_080,
    "opt-350m": 331_196_416,
    "phi-4": 14_659_507_200,
    "qwen2-7b": 7_615_616_512,
    "qwen3-235b-a22b": 235_093_634_560,
    "qwen3-30b-a3b": 30_532_122_624,
    "qwen3-32b": 32_762_123_264,
    "qwen3-8b": 8_190_735_360,
    "t5-11b": 11_307_321_344,
    "t5-v1.1-xxl": 11_135_332_352,
    "vit-b16": 86_567_656,
    "vit-g14": 1_844_440_680,
    "vit-l16": 304_326_632,
}
# Counts as they are printed, to the last digit. Megatron-LM: arXiv 1909.08053 and, for the table of sizes,
# 2104.04473, table 1; GPT-3: 2005.14165, table 2.1; Kimi K2 and MiniMax-M2: the sizes of
# their checkpoints.
PRINTED = {
    "glm-5": "744e9",
    "granite-4.0-h-small": "32e9",
    "kimi-k2": "1e12",
    "minimax-m2": "229e9",
    "gpt3": "175e9",
    "gpt3-13b": "13e9",
    "gpt3-2.7b": "2.7e9",
    "gpt3-6.7b": "6.7e9",
    "gpt3-large": "760e6",
    "gpt3-small": "125e6",
    "gpt3-xl": "1.3e9",
    "megatron-1.7b": "1.7e9",
    "megatron-3.6b": "3.6e9",
    "megatron-7.5b": "7.5e9",
    "megatron-18.4b": "18.4e9",
    "megatron-39.1b": "39.1e9",
    "megatron-76.1b": "76.1e9",
    "megatron-145.6b": "145.6e9",
    "megatron-310.1b": "310.1e9",
    "megatron-529.6b": "529.6e9",
    "megatron-1008b": "1008.0e9",
    "megatron-gpt2-54": "2.5e9",
    "megatron-gpt2-72": "8.3e9",
}
# In a test of their own; 350 M printed for 355.9 M; never printed.
ELSEWHERE = (
    "deepseek-v3.2",
    "palm-540b",
    "qwen3.5-397b-a17b",
    "megatron-bert",
    "gpt3-medium",
    "megatron-gpt2-xl",
)
# Without tables of tokens, as printed: Gemma 3, arXiv 2503.19786, table 1; GLM-4.5, arXiv 2508.06471, table 1, whose
# note says that embeddings and output layers are left out.
WITHOUT_TABLES = {
    "gemma-3-12b": "10759e6",
    "gemma-3-27b": "25600e6",
    "glm-4.5": "355e9",
    "glm-4.5-air": "106e9",
    "qwen3-next-80b-a3b": "79e9",  # its announcement: 79 B without embedding
}
MODULES = {"glm-4.5": 1}  # for multi-token prediction, of which that note counts the one of the larger model
# Active parameters as printed: arXiv 2401.04088, the announcement of 8x22B, 2405.04434, 2412.19437; 2508.10925,
# table 1; 2508.06471, table 1; the announcement of Llama 4.
ACTIVE = {
    "mixtral-8x7b": "12.9e9",
    "mixtral-8x22b": "39e9",
    "deepseek-v2": "21e9",
    "deepseek-v3": "37e9",
    "glm-4.5": "32e9",
    "glm-4.5-air": "12e9",
    "granite-4.0-h-small": "9e9",
    "jamba-mini": "12e9",
    "qwen3-next-80b-a3b": "3e9",
    "qwen3.5-397b-a17b": "17e9",
    "gpt-oss-120b": "5.13e9",
    "gpt-oss-20b": "3.61e9",
    "llama4-maverick": "17e9",
    "llama4-scout": "17e9",
}
LOOKED_UP = ("deepseek-v2", "deepseek-v3", "gpt-oss-120b", "gpt-oss-20b")  # a lookup multiplies no matrix
NO_TABLES = ("glm-4.5", "glm-4.5-air", "qwen3-next-80b-a3b")
GPT_FAMILY = [
    name
    for name in builtin_names()
    if name.startswith(("gpt2", "gpt3", "megatron", "opt-1.3")) and name not in ("megatron-bert", "gpt3-13b")
]


def shallow(name):
    """The file of a built-in workload with as few blocks as show all of their forms."""
    spec = builtin_spec(name)
    fewest = {field: least for field, (least, _) in spec.dimensions.repeats.items()}
    return spec.model_copy(update={"dimensions": spec.dimensions.model_copy(update=fewest)})


def builtin_count(name):
    return count_parameters(builtin_spec(name).dimensions)


@pytest.mark.parametrize("name", EXACT)
def test_parameter_count_is_the_published_one(name):
    assert builtin_count(name).total == EXACT[name]


def test_the_library_is_large_and_every_count_is_checked():
    assert len(builtin_names()) >= 46
    checked = {*EXACT, *PRINTED, *ELSEWHERE, *WITHOUT_TABLES}
    assert {s.name for s in list_workloads() if s.family in TRANSFORMERS} == checked


def rounds_to(count, printed):
    """Whether the count, rounded to the digits of the printed one, is that."""
    figures, _, power = printed.partition("e")
    places = len(figures.partition(".")[2])
    return round(count / 10 ** int(power), places) == float(figures)


@pytest.mark.parametrize("name", PRINTED)
def test_parameter_count_rounds_to_the_printed_one(name):
    assert rounds_to(builtin_count(name).total, PRINTED[name])


@pytest.mark.parametrize("name", WITHOUT_TABLES)
def test_parameter_count_without_tables_rounds_to_the_printed_one(name):
    d = builtin_spec(name).dimensions
    tables = d.vocabulary * d.hidden * (1 if d.tied_embeddings else 2)
    count = count_parameters(d.model_copy(update={"ahead": MODULES.get(name, 0)})).total
    assert rounds_to(count - tables, WITHOUT_TABLES[name])


def test_of_palm_the_printed_count_leaves_out_the_norms():
    """540.35 B, arXiv 2204.02311, table 1; 119 scales of 18432."""
    assert rounds_to(builtin_count("palm-540b").total - 119 * 18432, "540.35e9")


def test_of_qwen3_5_the_vision_tower_is_missing():
    """397 B are printed. Its tower by the published config: 27 blocks of 1152 with 4304 inside, 16 x 16 x 2 patches of
    3 colours, 2304 positions, and 4 x 1152 merged to 4096."""
    block = 4 * 1152**2 + 4 * 1152 + 2 * 1152 * 4304 + 4304 + 1152 + 4 * 1152
    merger = 2 * 1152 + 4608 * 4609 + 4608 * 4096 + 4096
    tower = 27 * block + (3 * 2 * 16 * 16 + 1) * 1152 + 2304 * 1152 + merger
    assert rounds_to(builtin_count("qwen3.5-397b-a17b").total + tower, "397e9")


def test_of_megatron_bert_only_the_pooler_and_the_sentence_head_are_missing():
    """336 M are printed in arXiv 1909.08053, table 4."""
    assert rounds_to(builtin_count("megatron-bert").total + 1024 * 1025 + 2 * 1025, "336e6")


@pytest.mark.parametrize("name", ACTIVE)
def test_active_parameters_round_to_the_printed_ones(name):
    """Of the table of tokens, some count nothing."""
    d = builtin_spec(name).dimensions
    left_out = d.vocabulary * d.hidden * ((name in LOOKED_UP) + 2 * (name in NO_TABLES))
    assert rounds_to(builtin_count(name).active - left_out, ACTIVE[name])


def test_a_model_without_experts_is_all_active():
    for name in ("gpt3", "t5-11b", "vit-b16"):
        assert builtin_count(name).active == builtin_count(name).total


@pytest.mark.parametrize("name", GPT_FAMILY)
@pytest.mark.parametrize("attention", Attention)
def test_model_flops_equal_the_megatron_formula(name, attention):
    """72 B s l h^2 (1 + s/6h + V/12lh), the form without recompute (arXiv 2104.04473, section 5.1)."""
    spec = shallow(name)
    d, s, batch = spec.dimensions, spec.sequence_length, 2
    formula = 72 * batch * s * d.layers * d.hidden**2
    formula *= 1 + s / (6 * d.hidden) + d.vocabulary / (12 * d.layers * d.hidden)
    chain = GraphWorkload(FamilyModel(name, spec, Extent(batch, s), attention), Mode.TRAINING).chain(batch, 1)
    assert chain.model_flops == pytest.approx(formula, rel=1e-9)


@pytest.mark.parametrize("name", builtin_names())
def test_prefill_is_a_third_of_training(name):
    """Exactly so where a transformer starts from token ids; pixels and a state of zeros need no gradient."""
    spec = shallow(name)
    model = FamilyModel(name, spec, Extent(1, spec.sequence_length or 1), Attention.FLASH)
    training, prefill = (GraphWorkload(model, m).chain(1, 1) for m in (Mode.TRAINING, Mode.PREFILL))
    exact = model.spec.sequence_length and model.spec.family in TRANSFORMERS
    least = 1 if exact else 0.97
    assert 3 * least * (1 - 1e-12) <= training.model_flops / prefill.model_flops <= 3 * (1 + 1e-12)
    assert all(layer.backward is None and layer.saved_bytes == 0 for layer in prefill.layers)
    assert all(layer.working_bytes > 0 for layer in prefill.layers)


@pytest.mark.parametrize("name", builtin_names())
def test_every_part_of_a_file_has_a_source(name):
    spec = read_spec(find_workload(name))
    assert spec.name == name
    assert {"dimensions", "numerics"} <= spec.source.keys()
    for part in ("sequence_length", "global_batch", "expert_plan"):
        assert (getattr(spec, part) is None) == (part not in spec.source)
    assert all(len(text) > 20 for text in spec.source.values())


WITH_PLAN = [name for name in builtin_names() if builtin_spec(name).expert_plan]


@pytest.mark.parametrize("name", WITH_PLAN)
def test_expert_plan_fits_1024_devices_and_an_admissible_width(name):
    workload = load_workload(name)
    plan = workload.expert_plan
    assert plan is not None
    pipeline, tensor, data = plan
    assert pipeline * tensor * data <= 1024
    assert tensor in workload.tensor_parallel_widths(8)


SAMPLE = (
    "resnet18",
    "dlrm",
    "gnmt8",
    "bert-base",
    "deepseek-v3",
    "gpt3-small",
    "mixtral-8x7b",
    "t5-11b",
    "vit-b16",
)


def test_list_agrees_with_the_workloads():
    """Blocks are counted once and multiplied for the list, one by one on the graph of a workload."""
    for summary in (s for s in list_workloads() if s.name in SAMPLE):
        workload = load_workload(summary.name)
        assert summary.parameters == workload.parameter_count
        assert summary.global_batch in (None, workload.global_batch(7))


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
    with pytest.raises(
        InputError, match=r"unknown workload 'zzzzzzzz'; dse workloads lists the \d+ there are"
    ):
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


def test_chain_is_cached():
    workload = load_workload("gpt3")
    assert workload.chain(2, 8) is workload.chain(2, 8)


@pytest.mark.parametrize("name", ["gpt3", "resnet50", "mixtral-8x7b"])
def test_a_workload_goes_to_other_processes(name):
    spec = builtin_spec(name)
    assert pickle.loads(pickle.dumps(spec)) == spec


def test_chains_do_not_depend_on_the_hash_seed():
    code = (
        "import hashlib; from phaze.workload.workload_loader import load_workload;"
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


@pytest.mark.parametrize(
    ("name", "samples"),
    [("gpt3", 1536), ("llama3-8b", 512), ("llama3-70b", 1024), ("llama3-405b", 2048), ("mixtral-8x7b", 128)],
)
def test_the_global_batch_does_not_grow_with_the_devices(name, samples):
    workload = load_workload(name)
    assert workload.global_batch(8) == workload.global_batch(16384) == samples


def test_without_a_published_batch_a_step_has_four_million_tokens():
    for name in ("mistral-7b", "qwen3-8b", "gemma-2b", "mixtral-8x22b"):
        workload = load_workload(name)
        assert workload.global_batch(1024) * workload.sequence_length == 4 * 2**20
    assert load_workload("mistral-7b", sequence_length=3000).global_batch(64) == 1024


def test_samples_without_tokens_count_by_device_up_to_a_limit():
    workload = load_workload("vit-g14")
    assert [workload.global_batch(n) for n in (8, 2048, 16384)] == [256, 65536, 65536]


def test_inference_counts_by_device():
    assert load_workload("mistral-7b", Mode.PREFILL).global_batch(8) == 256
    assert load_workload("mistral-7b", Mode.DECODE).global_batch(8) == 64


def test_groups_of_experts_divide_their_number():
    assert load_workload("mixtral-8x7b").expert_parallel_divisors(64) == (1, 2, 4, 8)
    assert load_workload("deepseek-v3").expert_parallel_divisors(6) == (1, 2, 4)
    assert load_workload("gpt3").expert_parallel_divisors(64) == (1,)


def test_widths_of_plans_divide_the_heads_and_those_of_keys():
    assert load_workload("gpt3").tensor_parallel_divisors(8) == (1, 2, 3, 4, 6, 8)
    assert load_workload("qwen2-7b").tensor_parallel_divisors(28) == (1, 2, 4, 28)
    assert load_workload("resnet50").tensor_parallel_divisors(8) == (1,)
