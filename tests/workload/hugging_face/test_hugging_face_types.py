"""Published configs of Hugging Face against the library's workloads of the same models, whose dimensions come
from the papers; and what of a type no family describes."""

import json
import sys

import pytest

from phaze.errors import InputError, Remark
from phaze.workload.hugging_face.alternating_configs import turns
from phaze.workload.hugging_face.model_config import TRANSLATIONS, translate, why_not
from phaze.workload.workload import Mode
from phaze.workload.workload_loader import load_workload

# As published with the models (huggingface.co, config.json), without what concerns no dimension.
GATED = {"hidden_act": "silu", "tie_word_embeddings": False, "attention_dropout": 0.0}
MIXTRAL = {
    **GATED,
    "model_type": "mixtral",
    "vocab_size": 32000,
    "num_experts_per_tok": 2,
    "num_local_experts": 8,
    "num_key_value_heads": 8,
    "router_aux_loss_coef": 0.02,
    "sliding_window": None,
}
LATENT = {
    **GATED,
    "attention_bias": False,
    "kv_lora_rank": 512,
    "q_lora_rank": 1536,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "max_position_embeddings": 163840,
    "moe_layer_freq": 1,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "topk_group": 4,
    "n_group": 8,
}
DELTA = {
    **GATED,
    "attention_bias": False,
    "full_attention_interval": 4,
    "head_dim": 256,
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128,
    "linear_num_key_heads": 16,
    "linear_value_head_dim": 128,
    "max_position_embeddings": 262144,
    "mlp_only_layers": [],
    "num_experts": 512,
    "num_experts_per_tok": 10,
    "num_key_value_heads": 2,
}
T5 = {
    "model_type": "t5",
    "is_encoder_decoder": True,
    "num_layers": 24,
    "relative_attention_num_buckets": 32,
    "layer_norm_epsilon": 1e-06,
    "vocab_size": 32128,
}
PUBLISHED = {
    "mixtral-8x7b": {
        **MIXTRAL,
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "max_position_embeddings": 32768,
        "num_attention_heads": 32,
        "num_hidden_layers": 32,
    },
    "mixtral-8x22b": {
        **MIXTRAL,
        "hidden_size": 6144,
        "intermediate_size": 16384,
        "max_position_embeddings": 65536,
        "num_attention_heads": 48,
        "num_hidden_layers": 56,
    },
    "deepseek-v2": {
        **LATENT,
        "model_type": "deepseek_v2",
        "first_k_dense_replace": 1,
        "hidden_size": 5120,
        "intermediate_size": 12288,
        "moe_intermediate_size": 1536,
        "n_routed_experts": 160,
        "n_shared_experts": 2,
        "num_experts_per_tok": 6,
        "num_hidden_layers": 60,
        "scoring_func": "softmax",
        "vocab_size": 102400,
    },
    "deepseek-v3": {
        **LATENT,
        "model_type": "deepseek_v3",
        "first_k_dense_replace": 3,
        "hidden_size": 7168,
        "intermediate_size": 18432,
        "moe_intermediate_size": 2048,
        "n_routed_experts": 256,
        "n_shared_experts": 1,
        "num_experts_per_tok": 8,
        "num_hidden_layers": 61,
        "num_nextn_predict_layers": 1,
        "scoring_func": "sigmoid",
        "vocab_size": 129280,
    },
    "qwen2-7b": {
        **GATED,
        "model_type": "qwen2",
        "hidden_size": 3584,
        "intermediate_size": 18944,
        "max_position_embeddings": 32768,
        "max_window_layers": 28,
        "num_attention_heads": 28,
        "num_hidden_layers": 28,
        "num_key_value_heads": 4,
        "sliding_window": 131072,
        "use_sliding_window": False,
        "vocab_size": 152064,
    },
    "qwen3-8b": {
        **GATED,
        "model_type": "qwen3",
        "attention_bias": False,
        "head_dim": 128,
        "hidden_size": 4096,
        "intermediate_size": 12288,
        "max_position_embeddings": 40960,
        "num_attention_heads": 32,
        "num_hidden_layers": 36,
        "num_key_value_heads": 8,
        "use_sliding_window": False,
        "vocab_size": 151936,
    },
    "gemma-2b": {
        "model_type": "gemma",
        "attention_bias": False,
        "head_dim": 256,
        "hidden_act": "gelu",
        "hidden_activation": None,
        "hidden_size": 2048,
        "intermediate_size": 16384,
        "max_position_embeddings": 8192,
        "num_attention_heads": 8,
        "num_hidden_layers": 18,
        "num_key_value_heads": 1,
        "vocab_size": 256000,
    },
    "mistral-7b": {
        "model_type": "mistral",
        "hidden_act": "silu",
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "max_position_embeddings": 32768,
        "num_attention_heads": 32,
        "num_hidden_layers": 32,
        "num_key_value_heads": 8,
        "sliding_window": 4096,
        "tie_word_embeddings": False,
        "vocab_size": 32000,
    },
    "gpt-oss-120b": {
        "model_type": "gpt_oss",
        "attention_bias": True,
        "head_dim": 64,
        "hidden_act": "silu",
        "hidden_size": 2880,
        "intermediate_size": 2880,
        "layer_types": ["sliding_attention", "full_attention"] * 18,
        "max_position_embeddings": 131072,
        "num_attention_heads": 64,
        "num_experts_per_tok": 4,
        "num_hidden_layers": 36,
        "num_key_value_heads": 8,
        "num_local_experts": 128,
        "sliding_window": 128,
        "tie_word_embeddings": False,
        "vocab_size": 201088,
    },
    "glm-4.5": {
        "model_type": "glm4_moe",
        "attention_bias": True,
        "first_k_dense_replace": 3,
        "head_dim": 128,
        "hidden_act": "silu",
        "hidden_size": 5120,
        "intermediate_size": 12288,
        "max_position_embeddings": 131072,
        "moe_intermediate_size": 1536,
        "n_routed_experts": 160,
        "n_shared_experts": 1,
        "num_attention_heads": 96,
        "num_experts_per_tok": 8,
        "num_hidden_layers": 92,
        "num_key_value_heads": 8,
        "num_nextn_predict_layers": 1,
        "tie_word_embeddings": False,
        "use_qk_norm": True,
        "vocab_size": 151552,
    },
    "qwen3-next-80b-a3b": {
        "model_type": "qwen3_next",
        **DELTA,
        "decoder_sparse_step": 1,
        "hidden_size": 2048,
        "intermediate_size": 5120,
        "linear_num_value_heads": 32,
        "moe_intermediate_size": 512,
        "num_attention_heads": 16,
        "num_hidden_layers": 48,
        "shared_expert_intermediate_size": 512,
        "use_sliding_window": False,
        "vocab_size": 151936,
    },
    "qwen3.5-397b-a17b": {
        "model_type": "qwen3_5_moe_text",
        **DELTA,
        "hidden_size": 4096,
        "layer_types": ["linear_attention", "linear_attention", "linear_attention", "full_attention"] * 15,
        "linear_num_value_heads": 64,
        "moe_intermediate_size": 1024,
        "mtp_num_hidden_layers": 1,
        "num_attention_heads": 32,
        "num_hidden_layers": 60,
        "shared_expert_intermediate_size": 1024,
        "vocab_size": 248320,
    },
    "nemotron-h-8b": {
        "model_type": "nemotron_h",
        "attention_bias": False,
        "attention_head_dim": 128,
        "chunk_size": 128,
        "conv_kernel": 4,
        "hidden_size": 4096,
        "hybrid_override_pattern": "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-",
        "intermediate_size": 21504,
        "mamba_head_dim": 64,
        "mamba_num_heads": 128,
        "max_position_embeddings": 8192,
        "mlp_hidden_act": "relu2",
        "n_groups": 8,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "ssm_state_size": 128,
        "tie_word_embeddings": False,
        "use_conv_bias": True,
        "vocab_size": 131072,
    },
    "glm-5": {
        **LATENT,
        "model_type": "glm_moe_dsa",
        "first_k_dense_replace": 3,
        "hidden_size": 6144,
        "index_head_dim": 128,
        "index_n_heads": 32,
        "index_topk": 2048,
        "intermediate_size": 12288,
        "max_position_embeddings": 202752,
        "moe_intermediate_size": 2048,
        "n_routed_experts": 256,
        "n_shared_experts": 1,
        "num_attention_heads": 64,
        "num_experts_per_tok": 8,
        "num_hidden_layers": 78,
        "q_lora_rank": 2048,
        "qk_nope_head_dim": 192,
        "v_head_dim": 256,
        "vocab_size": 154880,
    },
    "bloom-176b": {
        "model_type": "bloom",
        "apply_residual_connection_post_layernorm": False,
        "attention_dropout": 0.0,
        "hidden_dropout": 0.0,
        "n_embed": 14336,
        "n_layer": 70,
        "num_attention_heads": 112,
        "vocab_size": 250880,
    },
    "t5-11b": {
        **T5,
        "d_ff": 65536,
        "d_kv": 128,
        "d_model": 1024,
        "dropout_rate": 0.1,
        "n_positions": 512,
        "num_heads": 128,
    },
    "t5-v1.1-xxl": {
        **T5,
        "d_ff": 10240,
        "d_kv": 64,
        "d_model": 4096,
        "dropout_rate": 0.1,
        "feed_forward_proj": "gated-gelu",
        "num_decoder_layers": 24,
        "num_heads": 64,
        "tie_word_embeddings": False,
    },
    "vit-b16": {
        "model_type": "vit",
        "architectures": ["ViTForImageClassification"],
        "attention_probs_dropout_prob": 0.0,
        "hidden_act": "gelu",
        "hidden_dropout_prob": 0.0,
        "hidden_size": 768,
        "id2label": {str(number): f"class {number}" for number in range(1000)},
        "image_size": 224,
        "intermediate_size": 3072,
        "num_attention_heads": 12,
        "num_channels": 3,
        "num_hidden_layers": 12,
        "patch_size": 16,
        "qkv_bias": True,
    },
}


def saved(folder, config):
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return f"hf:{folder}"


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_configs_are_the_models_of_the_library(tmp_path, name):
    built_in, workload = load_workload(name), load_workload(saved(tmp_path, PUBLISHED[name]))
    assert workload.parameter_count == built_in.parameter_count
    assert workload.tensor_parallel_widths(8) == built_in.tensor_parallel_widths(8)


LLAMA4 = {
    "model_type": "llama4",
    "tie_word_embeddings": False,
    "vision_config": {"hidden_size": 1408},
    "text_config": {
        "attention_bias": False,
        "attention_chunk_size": 8192,
        "head_dim": 128,
        "hidden_act": "silu",
        "hidden_size": 5120,
        "interleave_moe_layer_step": 2,
        "intermediate_size": 8192,
        "intermediate_size_mlp": 16384,
        "max_position_embeddings": 1048576,
        "num_attention_heads": 40,
        "num_experts_per_tok": 1,
        "num_hidden_layers": 48,
        "num_key_value_heads": 8,
        "num_local_experts": 128,
        "use_qk_norm": False,
        "vocab_size": 202048,
    },
}


def test_of_a_model_that_sees_images_the_language_model_is_taken(tmp_path):
    with pytest.warns(Remark, match="of llama4 the language model is taken"):
        workload = load_workload(saved(tmp_path, LLAMA4))
    assert workload.parameter_count == load_workload("llama4-maverick").parameter_count


def test_the_shortest_run_of_layers_that_comes_again():
    assert turns(["a", "a", "b", "a", "a", "b", "a"]) == ["a", "a", "b"]
    assert turns(["a", "b", "b"]) == ["a", "b", "b"]
    assert turns(["a", "a"]) == ["a"]
    assert turns(["a"]) == ["a"]


@pytest.mark.parametrize(
    "name", ["mistral-7b", "qwen3-8b", "gpt-oss-120b", "gemma-2b", "bloom-176b", "deepseek-v3", "vit-b16"]
)
def test_their_forward_passes_do_the_same_work(tmp_path, name):
    bind = {} if name == "vit-b16" else {"sequence_length": 2048}
    sources = name, saved(tmp_path, PUBLISHED[name])
    chains = [load_workload(source, Mode.TRAINING, **bind).chain(1, 1) for source in sources]
    assert chains[0].model_flops == chains[1].model_flops


def test_the_7b_falcon_has_the_parameters_of_its_published_weights(tmp_path):
    config = {
        "model_type": "falcon",
        "alibi": False,
        "bias": False,
        "multi_query": True,
        "parallel_attn": True,
    }
    config |= {"hidden_size": 4544, "num_attention_heads": 71, "num_hidden_layers": 32, "vocab_size": 65024}
    head = 65024 * 4544  # stored twice there, though it is the token table
    assert load_workload(saved(tmp_path, config)).parameter_count == 7_217_189_760 - head


def test_a_window_is_the_one_of_the_config_and_null_is_none():
    mistral = PUBLISHED["mistral-7b"]
    without = {key: value for key, value in mistral.items() if key != "sliding_window"}
    found = [
        translate(config, "there")["dimensions"].get("window")
        for config in (mistral | {"sliding_window": 1024}, mistral | {"sliding_window": None}, without)
    ]
    assert found == [1024, None, 4096]


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("deepseek-v2", {"moe_layer_freq": 2}),
        ("deepseek-v3", {"scoring_func": "softmax"}),
        ("mixtral-8x7b", {"router_jitter_noise": 0.1}),
        ("qwen2-7b", {"use_sliding_window": True}),
        ("gemma-2b", {"hidden_activation": "gelu"}),
        ("bloom-176b", {"apply_residual_connection_post_layernorm": True}),
        ("vit-b16", {"image_size": [224, 112]}),
    ],
)
def test_what_no_family_has_is_named(tmp_path, name, change, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(InputError) as caught:
        load_workload(saved(tmp_path, PUBLISHED[name] | change))
    ((key, value),) = change.items()
    assert f"{PUBLISHED[name]['model_type']!r} is read as it is, but not with {key}: {value};" in str(
        caught.value
    )


def test_qwen_with_experts_in_some_layers_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    config = {"model_type": "qwen3_moe", "decoder_sparse_step": 2, "mlp_only_layers": [0]}
    with pytest.raises(InputError, match=r"not with decoder_sparse_step: 2, mlp_only_layers: \[0\];"):
        load_workload(saved(tmp_path, config))


SMALL = {
    "num_hidden_layers": 2,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 100,
    "max_position_embeddings": 64,
    "pad_token_id": 1,
}
SMALL_EXPERTS = {
    **SMALL,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 48,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
SMALL_LAYERS = {**SMALL, "num_hidden_layers": 8}
SMALL_DELTA = {
    "head_dim": 16,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 16,
}
SMALL_STATE = {"mamba_n_heads": 8, "mamba_d_head": 8, "mamba_d_state": 16, "mamba_n_groups": 2}
SMALL_LATENT = {
    **SMALL_EXPERTS,
    "num_key_value_heads": 4,
    "n_routed_experts": 8,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 4,
    "v_head_dim": 8,
    "n_group": 1,
    "topk_group": 1,
    "first_k_dense_replace": 1,
}
SMALL_INDEXER = {"index_n_heads": 2, "index_head_dim": 16, "index_topk": 8}
SMALL_T5 = {
    "model_type": "t5",
    "num_layers": 2,
    "d_model": 32,
    "num_heads": 4,
    "d_kv": 16,
    "d_ff": 64,
    "vocab_size": 100,
}
SMALL_VIT = {"model_type": "vit", **SMALL, "image_size": 32, "patch_size": 8}
SMALL_CONFIGS = [
    {"model_type": "mistral", **SMALL, "sliding_window": 16},
    {"model_type": "qwen2", **SMALL},
    {"model_type": "qwen3", **SMALL, "head_dim": 16},
    {"model_type": "gemma", **SMALL, "head_dim": 16},
    {"model_type": "bloom", "hidden_size": 32, "n_layer": 2, "n_head": 4, "vocab_size": 100},
    {"model_type": "falcon", **{k: v for k, v in SMALL.items() if k != "num_key_value_heads"}},
    {"model_type": "mixtral", **SMALL_EXPERTS, "num_local_experts": 4},
    {"model_type": "qwen3_moe", **SMALL_EXPERTS, "num_experts": 4, "head_dim": 16},
    {"model_type": "gpt_oss", **SMALL_EXPERTS, "num_local_experts": 4, "head_dim": 16},
    {"model_type": "gemma3_text", **SMALL_LAYERS, "head_dim": 16, "sliding_window": 16},
    {"model_type": "llama4_text", **SMALL_LAYERS, "num_local_experts": 4, "num_experts_per_tok": 1, "head_dim": 16,
     "intermediate_size_mlp": 96, "interleave_moe_layer_step": 2, "attention_chunk_size": 16},
    {"model_type": "glm4_moe", **SMALL_EXPERTS, "n_routed_experts": 4, "head_dim": 16, "use_qk_norm": True,
     "attention_bias": True},
    {"model_type": "minimax_m2", **SMALL_EXPERTS, "num_local_experts": 4, "head_dim": 16},
    {"model_type": "olmo2", **SMALL},
    {"model_type": "qwen3_next", **SMALL_LAYERS, **SMALL_DELTA, "num_experts_per_tok": 2, "num_experts": 4,
     "moe_intermediate_size": 48, "shared_expert_intermediate_size": 48},
    {"model_type": "qwen3_5_moe_text", **SMALL_LAYERS, **SMALL_DELTA, "num_experts_per_tok": 2, "num_experts": 4,
     "moe_intermediate_size": 48, "shared_expert_intermediate_size": 48},
    {"model_type": "qwen3_5_text", **SMALL_LAYERS, **SMALL_DELTA},
    {"model_type": "mamba2", "num_hidden_layers": 2, "hidden_size": 32, "vocab_size": 100, "num_heads": 8,
     "head_dim": 8, "state_size": 16, "n_groups": 2},
    {"model_type": "nemotron_h", **SMALL, "hybrid_override_pattern": "M-M*E", "mamba_num_heads": 8, "head_dim": 16,
     "mamba_head_dim": 8, "ssm_state_size": 16, "n_groups": 2, "n_routed_experts": 4, "num_experts_per_tok": 2,
     "moe_intermediate_size": 24, "moe_shared_expert_intermediate_size": 48},
    {"model_type": "granitemoehybrid", **SMALL_LAYERS, **SMALL_STATE, "num_local_experts": 4,
     "num_experts_per_tok": 2, "shared_intermediate_size": 128,
     "layer_types": ["mamba", "mamba", "attention", "mamba"] * 2},
    {"model_type": "granitemoehybrid", **SMALL, **SMALL_STATE, "num_local_experts": 0,
     "shared_intermediate_size": 128, "layer_types": ["mamba", "attention"]},
    {"model_type": "falcon_h1", **SMALL, **SMALL_STATE, "mamba_d_ssm": 64, "head_dim": 16},
    {"model_type": "jamba", **SMALL_LAYERS, "num_experts": 4, "num_experts_per_tok": 2, "mamba_dt_rank": 4,
     "mamba_d_state": 8},
    {"model_type": "granite", **SMALL},
    {"model_type": "deepseek_v2", **SMALL_LATENT, "q_lora_rank": None, "n_shared_experts": 2},
    {"model_type": "deepseek_v3", **SMALL_LATENT, "q_lora_rank": 24},
    {"model_type": "deepseek_v32", **SMALL_LATENT, **SMALL_INDEXER, "q_lora_rank": 24},
    {"model_type": "glm_moe_dsa", **SMALL_LATENT, **SMALL_INDEXER, "q_lora_rank": 24},
    SMALL_T5,
    {**SMALL_T5, "num_decoder_layers": 3, "feed_forward_proj": "gated-gelu"},
    SMALL_VIT,
    {**SMALL_VIT, "qkv_bias": False},
]  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("config", SMALL_CONFIGS, ids=lambda c: c["model_type"])
def test_parameters_are_those_of_transformers(tmp_path, config):
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    settings = transformers.AutoConfig.for_model(**config)
    task = {"t5": "Seq2SeqLM", "vit": "ImageClassification"}.get(config["model_type"], "CausalLM")
    with torch.device("meta"):
        module = getattr(transformers, f"AutoModelFor{task}").from_config(settings)
    workload = load_workload(saved(tmp_path, config))
    chosen = sum(
        p.numel() for name, p in module.named_parameters() if name.endswith("e_score_correction_bias")
    )
    assert workload.parameter_count == sum(p.numel() for p in module.parameters()) - chosen
    settings.save_pretrained(tmp_path / "saved")  # with every default written out
    assert load_workload(f"hf:{tmp_path / 'saved'}").parameter_count == workload.parameter_count


@pytest.mark.parametrize("entry", TRANSLATIONS.values())
def test_every_older_key_stands_for_one_that_is_read(entry):
    assert set(entry.aliases.values()) <= {*entry.keys.values(), *entry.optional.values()}


@pytest.mark.filterwarnings("ignore")
def test_what_cannot_be_recorded_either_is_named_with_both_reasons(tmp_path, monkeypatch):
    pytest.importorskip("transformers")

    def refuse(*_):
        raise InputError("it has an operator of its own")

    monkeypatch.setattr("phaze.workload.hugging_face.meta_device_build.record", refuse)
    config = {"model_type": "qwen3_moe", **SMALL_EXPERTS, "num_experts": 4, "decoder_sparse_step": 2}
    with pytest.raises(InputError, match="step: 2, and it cannot be recorded: it has an operator"):
        load_workload(saved(tmp_path, config), sequence_length=16)


@pytest.mark.filterwarnings("ignore")
def test_a_type_of_several_classes_is_the_first_of_them(tmp_path):
    """A config that names no architecture: `deit` is one with a head of its own, or with a second to distil from."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    config = {"model_type": "deit", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    config |= {"intermediate_size": 64, "image_size": 32, "patch_size": 8}
    with torch.device("meta"):
        module = transformers.DeiTForImageClassification(transformers.AutoConfig.for_model(**config))
    workload = load_workload(saved(tmp_path, config))
    assert workload.parameter_count == sum(p.numel() for p in module.parameters())


@pytest.mark.parametrize(("shared", "whole"), [(64, True), (32, True), (48, False), (16, False)])
def test_shared_experts_of_another_width_are_no_multiple_and_not_rounded(shared, whole):
    config = {"model_type": "granitemoehybrid", **SMALL_LAYERS, **SMALL_STATE, "num_local_experts": 4}
    config |= {"intermediate_size": 32, "shared_intermediate_size": shared}
    found = translate(config, "here")
    assert (found is not None) is whole
    if found is not None:
        assert found["dimensions"]["experts"]["shared"] * 32 == shared
    else:
        assert why_not(config).endswith(f"but not with shared_intermediate_size: {shared}")
