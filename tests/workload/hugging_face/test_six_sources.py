"""One model from six sources, the same chip and the same time: config, family, module, graph module, `.pt2`, ONNX.

The models are those of transformers, small, so this runs where it is installed; ONNX where torch can write it.
"""

import json
from functools import cache
from pathlib import Path

import pytest

import phaze
from phaze import from_torch
from phaze.workload.workload_loader import load_workload

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytestmark = [pytest.mark.soak, pytest.mark.filterwarnings("ignore")]

TOKENS, LAYERS = 64, 4
_WIDE = {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": LAYERS, "num_attention_heads": 8}
_TEXT = {"vocab_size": 1000, "max_position_embeddings": TOKENS}
_TOWERS = {"encoder_layers": LAYERS, "decoder_layers": LAYERS, "encoder_attention_heads": 8}
CONFIGS = {
    "llama": {**_WIDE, **_TEXT, "num_key_value_heads": 2},
    "qwen2": {**_WIDE, **_TEXT, "num_key_value_heads": 2},
    "mixtral": {**_WIDE, **_TEXT, "num_key_value_heads": 2, "num_local_experts": 4, "num_experts_per_tok": 2},
    "gpt2": {"n_embd": 256, "n_layer": LAYERS, "n_head": 8, "vocab_size": 1000, "n_positions": TOKENS}
    | dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0),
    "bert": {**_WIDE, **_TEXT, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0},
    "vit": {**_WIDE, "image_size": 64, "patch_size": 8},
    "t5": {
        "d_model": 256,
        "d_ff": 512,
        "d_kv": 32,
        "num_layers": LAYERS,
        "num_heads": 8,
        "vocab_size": 1000,
        "dropout_rate": 0.0,
    },
    "whisper": {
        **_TOWERS,
        "d_model": 256,
        "decoder_attention_heads": 8,
        "encoder_ffn_dim": 512,
        "decoder_ffn_dim": 512,
        "vocab_size": 1000,
        "max_source_positions": TOKENS,
        "max_target_positions": TOKENS,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "decoder_start_token_id": 1,
    },
}
TASKS = {
    "llama": "LlamaForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "mixtral": "MixtralForCausalLM",
    "gpt2": "GPT2LMHeadModel",
    "bert": "BertForMaskedLM",
    "vit": "ViTForImageClassification",
    "t5": "T5ForConditionalGeneration",
    "whisper": "WhisperForConditionalGeneration",
}
SOURCES = ("module", "graph module", "pt2", "onnx")


class Recorded(torch.nn.Module):
    """A model of transformers with its inputs in order and its logits alone as the output."""

    def __init__(self, model, names):
        super().__init__()
        self.model, self.names = model, names

    def forward(self, *inputs):
        return self.model(**dict(zip(self.names, inputs, strict=True)), **self.rest, return_dict=True).logits

    @property
    def rest(self):
        return {"use_cache": False} if "input_ids" in self.names or "decoder_input_ids" in self.names else {}


class One(Recorded):
    def forward(self, first):
        return super().forward(first)


class Two(Recorded):
    def forward(self, first, second):
        return super().forward(first, second)


def made(name, device="meta"):
    """The model and its inputs."""
    settings = transformers.AutoConfig.for_model(name, **CONFIGS[name])
    ids = torch.zeros((2, TOKENS), dtype=torch.long, device=device)
    inputs = {"input_ids": ids}
    if name == "vit":
        inputs = {"pixel_values": torch.zeros((2, 3, 64, 64), device=device)}
    if name == "whisper":
        inputs = {"input_features": torch.zeros((2, 80, 2 * TOKENS), device=device)}
    if name == "bert":
        inputs["token_type_ids"] = ids
    if name in {"t5", "whisper"}:
        inputs["decoder_input_ids"] = ids.clone()  # one tensor for both would be one input to torch
    with torch.device(device):
        model = getattr(transformers, TASKS[name])._from_config(settings).eval()
    if device == "cpu":  # as if trained: an exporter leaves out biases of zero and keeps equal weights once
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter)
    return (One, Two)[len(inputs) - 1](model, tuple(inputs)), tuple(inputs.values())


def config(name, folder):
    """What the config says: a family, or a model that is built."""
    content = {"model_type": name, "architectures": [TASKS[name]], **CONFIGS[name]}
    (folder / "config.json").write_text(json.dumps(content), encoding="utf-8")
    length = None if name == "vit" else TOKENS
    return load_workload(f"hf:{folder}", sequence_length=length)


def from_source(source, name, folder):
    """The workload of a model by way of a source."""
    device = "cpu" if source == "onnx" else "meta"
    model, inputs = made(name, device)
    if source == "module":
        return from_torch(model, inputs, name=name)
    if source == "onnx":
        pytest.importorskip("onnxscript")
        shapes = tuple({0: torch.export.Dim("batch", min=2)} for _ in inputs)
        try:
            torch.onnx.export(
                model, inputs, folder / "m.onnx", dynamo=True, dynamic_shapes=shapes, external_data=False
            )
        except torch.onnx.OnnxExporterError as error:
            pytest.skip(f"torch cannot write it: {error}"[:200])
        return load_workload(str(folder / "m.onnx"))
    shapes = tuple({0: torch.export.Dim("batch", min=2)} for _ in inputs)
    program = torch.export.export(model, inputs, dynamic_shapes=shapes)
    if source == "graph module":
        return from_torch(program.module(), inputs, name=name)
    torch.export.save(program, folder / "m.pt2")
    return load_workload(str(folder / "m.pt2"))


SPACE = Path(__file__).parents[3] / "benchmarks" / "small-space.yaml"


def found(workload):
    """The best chip of a small space, and how long its iteration takes."""
    best = phaze.explore(
        workload, power="300W", devices=4, global_batch=64, space=str(SPACE), time_limit="600s"
    ).best
    (answer,) = best.workloads.values()
    return best.architecture, answer.iteration_time_s


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """Answer for a config, by its name."""
    return cache(lambda name: found(config(name, tmp_path_factory.mktemp(name))))


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("source", SOURCES)
def test_every_source_leads_to_the_same_chip(name, source, reference, tmp_path):
    chip, seconds = found(from_source(source, name, tmp_path))
    wanted, took = reference(name)
    assert chip == wanted
    assert seconds == pytest.approx(took, rel=0.01)
