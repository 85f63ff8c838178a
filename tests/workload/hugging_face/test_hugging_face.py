"""Hugging Face configs: key names, what is refused, and the parameters that transformers counts."""

import json
import sys

import pytest

from phaze.errors import InputError
from phaze.workload.hugging_face import meta_device_build
from phaze.workload.hugging_face.model_config import TRANSLATIONS, config_name
from phaze.workload.workload_loader import load_workload, source_file

# As published with the models (huggingface.co, config.json), without what concerns no dimension.
LLAMA2 = {
    "_name_or_path": "meta-llama/Llama-2-7b-hf",
    "architectures": ["LlamaForCausalLM"],
    "hidden_act": "silu",
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "max_position_embeddings": 4096,
    "model_type": "llama",
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 32,
    "pretraining_tp": 1,
    "rms_norm_eps": 1e-05,
    "rope_scaling": None,
    "tie_word_embeddings": False,
    "vocab_size": 32000,
}
GPT2 = {
    "activation_function": "gelu_new",
    "architectures": ["GPT2LMHeadModel"],
    "attn_pdrop": 0.1,
    "embd_pdrop": 0.1,
    "model_type": "gpt2",
    "n_ctx": 1024,
    "n_embd": 768,
    "n_head": 12,
    "n_layer": 12,
    "n_positions": 1024,
    "resid_pdrop": 0.1,
    "vocab_size": 50257,
}
BERT = {
    "architectures": ["BertForMaskedLM"],
    "attention_probs_dropout_prob": 0.1,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "hidden_size": 768,
    "intermediate_size": 3072,
    "max_position_embeddings": 512,
    "model_type": "bert",
    "num_attention_heads": 12,
    "num_hidden_layers": 12,
    "type_vocab_size": 2,
    "vocab_size": 30522,
}


def saved(folder, config):
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return f"hf:{folder}"


@pytest.mark.parametrize(
    ("config", "parameters", "name"),
    [
        (LLAMA2, 6_738_415_616, "Llama-2-7b-hf"),
        (GPT2, 124_439_808, "gpt2-12x768"),
        # published 110,106,428 with the pooler (590,592) and the next-sentence head (1,538), which are left out
        (BERT, 110_106_428 - 590_592 - 1_538, "bert-12x768"),
    ],
)
def test_published_configs_have_their_published_parameters(tmp_path, config, parameters, name):
    workload = load_workload(saved(tmp_path, config))
    assert workload.parameter_count == parameters
    assert workload.name == name
    assert workload.sequence_length in {1024, 512, 4096}
    assert len(workload.tensor_parallel_widths(8)) > 1


def test_the_file_itself_may_be_named_and_the_sequence_be_shorter(tmp_path):
    saved(tmp_path, LLAMA2)
    source = f"hf:{tmp_path}/config.json"
    assert load_workload(source, sequence_length=512).sequence_length == 512
    assert source_file(source) == source_file(f"hf:{tmp_path}") == tmp_path / "config.json"
    with pytest.raises(InputError, match="exceeds the model's 4096 positions"):
        load_workload(source, sequence_length=8192)


def test_missing_keys_are_named_together(tmp_path):
    config = {k: v for k, v in LLAMA2.items() if k not in {"hidden_size", "vocab_size"}}
    with pytest.raises(InputError, match="model_type llama needs hidden_size, vocab_size"):
        load_workload(saved(tmp_path, config))


@pytest.mark.parametrize("entry", TRANSLATIONS.values())
def test_no_field_comes_from_two_keys(entry):
    names = [*entry.keys, *entry.optional, *entry.fixed]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"hidden_act": "xielu"}, "activation 'xielu' is not known"),
        ({"hidden_size": "wide"}, "dimensions.hidden"),
        ({"num_key_value_heads": 5}, "not a multiple of kv_heads"),
        ({"hidden_act": ["silu"]}, "activation ['silu'] is not known"),
        ({"model_type": "roberta", "max_position_embeddings": "all"}, "a value of the wrong type"),
        ({"model_type": 3}, "model_type is missing"),
    ],
)
def test_configs_that_make_no_sense(tmp_path, change, reason):
    with pytest.raises(InputError) as caught:
        load_workload(saved(tmp_path, LLAMA2 | change))
    assert reason in str(caught.value)
    assert "config.json" in str(caught.value)


@pytest.mark.parametrize("content", [None, "{", "[]", "{}"])
def test_files_that_are_no_configs(tmp_path, content):
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    with pytest.raises(InputError, match=r"config\.json"):
        load_workload(f"hf:{tmp_path}")


def test_the_sequence_is_the_one_dimension_to_bind(tmp_path):
    source = saved(tmp_path, GPT2)
    assert load_workload(source, bind={"sequence": 128}).sequence_length == 128
    with pytest.raises(InputError, match="only 'sequence' can be bound, not width"):
        load_workload(source, bind={"width": 8, "sequence": 8})


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (LLAMA2 | {"attention_bias": True}, "'llama' is read as it is, but not with attention_bias: True;"),
        ({"model_type": "frob"}, "'frob' is none that is read as it is (bert, bloom, "),
    ],
)
def test_other_types_need_transformers(tmp_path, config, reason, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(InputError) as caught:
        load_workload(saved(tmp_path, config))
    assert reason in str(caught.value)
    assert "pip install '.[hugging-face]'" in str(caught.value)


@pytest.mark.parametrize(
    ("given", "name"),
    [("meta/Llama 2", "Llama-2"), ("..//", "llama"), ("", "llama")],
)
def test_names(given, name, tmp_path):
    folder = tmp_path / "folder"
    where = folder / "config.json"
    assert config_name({"_name_or_path": given, "model_type": "llama"}, str(where)) == name


def test_a_folder_that_says_nothing_of_the_model_names_nothing(tmp_path):
    sizes = {"model_type": "llama", "num_hidden_layers": 32, "hidden_size": 4096}
    told = {
        folder: config_name(sizes, str(tmp_path / folder / "config.json"))
        for folder in ("work", "My-Llama-3")
    }
    assert told == {"work": "llama-32x4096", "My-Llama-3": "My-Llama-3"}


SMALL = {
    "num_hidden_layers": 2,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_attention_heads": 4,
    "vocab_size": 100,
    "max_position_embeddings": 66,
    "pad_token_id": 1,
}
SMALL_OPT = {**SMALL, "ffn_dim": 64, "word_embed_proj_dim": 32}
SMALL_CONFIGS = [
    {"model_type": "llama", **SMALL, "num_key_value_heads": 2},
    {"model_type": "llama", **SMALL, "head_dim": 16, "tie_word_embeddings": True},
    {"model_type": "mistral", **SMALL, "num_key_value_heads": 2},
    {"model_type": "phi3", **SMALL, "num_key_value_heads": 2},
    {"model_type": "gpt2", "n_layer": 2, "n_embd": 32, "n_head": 4, "vocab_size": 100, "n_positions": 64},
    {"model_type": "bert", **SMALL},
    {"model_type": "roberta", **SMALL, "type_vocab_size": 1},
    {"model_type": "distilbert", "n_layers": 2, "n_heads": 4, "dim": 32, "hidden_dim": 64, "vocab_size": 100,
     "max_position_embeddings": 66},
    {"model_type": "opt", **SMALL_OPT},
    {"model_type": "opt", **SMALL_OPT, "word_embed_proj_dim": 16, "do_layer_norm_before": False},
]  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("config", SMALL_CONFIGS, ids=lambda c: c["model_type"])
def test_parameters_are_those_of_transformers(tmp_path, config):
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    settings = transformers.AutoConfig.for_model(**config)
    task = "MaskedLM" if "bert" in config["model_type"] else "CausalLM"
    with torch.device("meta"):
        module = getattr(transformers, f"AutoModelFor{task}").from_config(settings)
    workload = load_workload(saved(tmp_path, config))
    assert workload.parameter_count == sum(p.numel() for p in module.parameters())


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "config",
    [
        {"model_type": "gpt_neox", **SMALL},
        {
            "model_type": "vit",
            **SMALL,
            "image_size": [32, 32],
            "patch_size": 8,
            "architectures": ["ViTForImageClassification"],
        },
    ],
    ids=lambda c: c["model_type"],
)
def test_other_types_are_built_and_recorded(tmp_path, config):
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    settings = transformers.AutoConfig.for_model(**config)
    workload = load_workload(saved(tmp_path, config), sequence_length=16)
    auto = "ImageClassification" if config["model_type"] == "vit" else "CausalLM"
    with torch.device("meta"):
        module = getattr(transformers, f"AutoModelFor{auto}").from_config(settings)
    assert workload.parameter_count == sum(p.numel() for p in module.parameters())
    assert workload.sequence_length == (None if config["model_type"] == "vit" else 16)
    assert any(
        ".layers.1." in name or ".layer.1." in name
        for name in (op.name for op in workload.operator_graph(2).operators)
    )


class _Contradiction(Exception):
    """As huggingface_hub raises them: no kin of ValueError."""


def test_a_config_that_contradicts_itself_is_bad_input(tmp_path, monkeypatch):
    pytest.importorskip("torch")

    class AutoConfig:
        @staticmethod
        def from_pretrained(*_, **__):
            msg = "Class validation error:\n    heads do not divide the width"
            raise _Contradiction(msg)

    monkeypatch.setitem(sys.modules, "transformers", type(sys)("transformers"))
    monkeypatch.setattr(sys.modules["transformers"], "AutoConfig", AutoConfig, raising=False)
    with pytest.raises(
        InputError, match="cannot build it: Class validation error: heads do not divide the width"
    ):
        load_workload(saved(tmp_path, {"model_type": "gpt_neox"}))


VISION = {"num_hidden_layers": 2, "hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4}


@pytest.mark.filterwarnings("ignore")
def test_a_model_that_reads_text_and_images_is_fed_both(tmp_path):
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    config = {
        "model_type": "llava",
        "architectures": ["LlavaForConditionalGeneration"],
        "text_config": {"model_type": "llama", **SMALL},
        "vision_config": {"model_type": "clip_vision_model", **VISION, "image_size": 32, "patch_size": 8},
        "vision_feature_layer": -1,
        "image_token_index": 99,
    }
    workload = load_workload(saved(tmp_path, config), sequence_length=64)
    kinds = {op.name.split(".")[1] for op in workload.operator_graph(1).operators if op.name.count(".") > 1}
    assert {"vision_tower", "multi_modal_projector", "language_model"} <= kinds


def test_spectra_are_as_long_as_configs_say():
    torch = pytest.importorskip("torch")
    by_bin, by_frame = {"num_mel_bins": 80}, {"input_feat_per_channel": 80}
    length = {"max_source_positions": 1500, "model_type": "heard"}
    assert meta_device_build._features(torch, by_bin | length, 0).shape == (1, 80, 3000)
    assert meta_device_build._features(torch, by_frame | length, 0).shape == (1, 3000, 80)
    with pytest.raises(
        InputError, match=r"heard: no config key tells its frames; give them to phaze\.from_torch"
    ):
        meta_device_build._features(torch, by_bin | {"model_type": "heard"}, 0)


def test_inputs_are_as_large_as_configs_say():
    torch = pytest.importorskip("torch")
    made = {
        "_pixels": {"backbone_config": {"image_size": [256, 192]}},  # of the part that sees
        "_samples": {"num_mel_bins": 80},  # a sound: spectra of no stated length are of another part
        "_entities": {},
        "_mentions": {},
        "_marks": {},
    }
    shapes = [
        tuple(getattr(meta_device_build, name)(torch, config, 12).shape) for name, config in made.items()
    ]
    assert shapes == [(1, 3, 256, 192), (1, 16_000), (1, 32), (1, 32, 30), (1, 12)]


class _Settings:
    """A config of no library."""


def test_the_first_class_that_a_config_suits_is_built():
    """As of Reformer, which is a decoder where its config says so, and fills in words otherwise."""
    torch = pytest.importorskip("torch")

    def unsuited(_):
        msg = "make sure that is_decoder=True"
        raise AssertionError(msg)

    library = type(sys)("transformers")
    for task, maker in (("CausalLM", unsuited), ("MaskedLM", lambda _: torch.nn.Linear(2, 3))):
        auto = type(task, (), {"_model_mapping": {_Settings: object}, "from_config": staticmethod(maker)})
        setattr(library, f"AutoModelFor{task}", auto)
    config = {"model_type": "either"}
    built = meta_device_build._built(library, torch, config, _Settings())
    assert (built.weight.device.type, built.training) == ("meta", False)
    del library.AutoModelForMaskedLM
    library.AutoModel = type("AutoModel", (), {"_model_mapping": {}})
    with pytest.raises(AssertionError, match="is_decoder"):
        meta_device_build._built(library, torch, config, _Settings())


def test_a_model_that_takes_no_mask_for_granted_is_given_one():
    torch = pytest.importorskip("torch")

    class Masked(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torch.nn.Embedding(50, 16)

        def forward(self, input_ids, attention_mask=None):
            return self.inner(input_ids) * attention_mask[:, :, None]

    ids = torch.zeros((1, 6), dtype=torch.long)
    graph = meta_device_build._recorded(Masked(), {"input_ids": ids}, "m").graph(3)
    assert [graph.tensors[name].shape for name in graph.inputs] == [(3, 6), (3, 6)]
