"""`dse plan`, `dse plan export`, `dse whatif` and fixed plans of `dse evaluate`, as they are typed."""

from __future__ import annotations

import argparse
import json
import re
import shlex
import subprocess
import sys
import tomllib

import pytest

from phaze.parallel.recount.plan_checker import PlanError
from phaze.report.exports.recipe_export import Target, recipe
from phaze.runs.document_formats import read_plan

SMALL = ("--arch", "h100", "--workload", "gpt3-xl", "--devices", "8", "--global-batch", "64")
FEW = ("--microbatch", "4", "--schedule", "1f1b", "--chunks", "1")


@pytest.fixture(scope="module")
def plan_file(tmp_path_factory):
    """A plan with a pipeline, as `--json` prints it."""
    run = [sys.executable, "-c", "from phaze.cli.entry import main; main()", "plan", *SMALL, *FEW]
    done = subprocess.run(
        [*run, "--pipeline-parallel", "2", "--json"], capture_output=True, text=True, check=True
    )
    path = tmp_path_factory.mktemp("plan") / "plan.json"
    path.write_text(done.stdout)
    return path


def test_plan_tells_time_memory_and_proof(dse):
    code, out, _ = dse("plan", *SMALL, *FEW)
    assert code == 0
    for words in ("Best plan", "Time of an iteration", "Memory of the fullest device", "Proved best of"):
        assert words in out


def test_plan_document(plan_file):
    document = json.loads(plan_file.read_text())
    best, proof = document["best"], document["certificate"]
    assert document["schema"] == "dse-plan/3"
    assert best["strategy"]["pipeline_parallel"] == 2
    assert best["strategy"]["microbatch_size"] == 4
    parts = [v for k, v in best["breakdown"].items() if k != "hidden_s"]
    assert sum(parts) == pytest.approx(best["iteration_time_s"])
    assert sum(v for k, v in best["memory"].items() if k != "total_bytes") == pytest.approx(
        best["memory_bytes"]
    )
    assert proof["space_size"] == proof["out_of_memory"] + proof["pruned"] + proof["evaluated"]
    assert 0.2 < best["mfu"] < 1


def test_next_plans_are_slower(plan_file):
    document = json.loads(plan_file.read_text())
    times = [one["iteration_time_s"] for one in (document["best"], *document["next_best"])]
    assert times == sorted(times)


def test_fixed_plan_in_evaluate(dse):
    code, out, _ = dse(
        "evaluate",
        *SMALL,
        "--zero",
        "3",
        "--data-parallel",
        "8",
        "--microbatch",
        "8",
        "--recompute",
        "full",
        "--json",
    )
    assert code == 0
    (result,) = json.loads(out)["best"]["workloads"].values()
    plan = result["placement"]["plan"]
    assert (plan["zero_stage"], plan["data_parallel"], plan["recompute"]) == (3, 8, "full")


def test_layers_that_stay_whole(dse, tmp_path):
    fixed = (*SMALL, *FEW, "--tensor-parallel", "4", "--pipeline-parallel", "1")
    path = tmp_path / "plan.json"
    path.write_text(dse("plan", *fixed, "--whole", "mlp", "--json")[1])
    document = json.loads(path.read_text())
    strategy = document["best"]["strategy"]
    assert (strategy["whole_layers"], strategy["sequence_parallel"]) == (["mlp"], True)
    assert document["request"]["held"]["whole"] == ["mlp"]
    for software in ("megatron-lm", "torchtitan", "maxtext"):
        assert (
            "runs whole layers none in place of mlp" in dse("plan", "export", str(path), "--for", software)[2]
        )
    assert "whole mlp" in " ".join(dse("plan", *fixed, "--whole", "mlp")[1].split())


def test_the_best_layers_to_keep_whole(dse):
    fixed = (*SMALL, *FEW, "--tensor-parallel", "4", "--pipeline-parallel", "1")
    code, out, _ = dse("whatif", *fixed, "--vary", "whole=any,none,attention+mlp", "--json")
    assert code == 0
    best, *others = (point["plan"]["best"] for point in json.loads(out)["points"])
    assert best["iteration_time_s"] <= min(one["iteration_time_s"] for one in others)
    assert [one["strategy"]["whole_layers"] for one in others] == [[], ["attention", "mlp"]]


def test_selective_recompute_in_the_certified_planner(dse):
    code, out, _ = dse("evaluate", *SMALL, "--attention", "unfused", "--recompute", "selective", "--json")
    assert code == 0
    assert json.loads(out)["best"]["workloads"]["gpt3-xl"]["placement"]["recompute"] == "selective"


def test_no_recipe_where_stages_end_inside_blocks(dse, tmp_path):
    """Half blocks are what no framework cuts; the plan itself is told and played."""
    path = tmp_path / "plan.json"
    deep = ("--pipeline-parallel", "5", "--data-parallel", "1", "--tensor-parallel", "1")
    path.write_text(dse("plan", *SMALL, "--plans", "phaze", *deep, "--json")[1])
    document = json.loads(path.read_text())
    assert any("cut between any two layers" in line for line in document["certificate"]["scope"])
    strategy = document["best"]["strategy"]
    assert strategy["grain"] == "layer"
    assert sum(strategy["blocks"] or [48]) == 48
    code, _, err = dse("plan", "export", str(path))
    assert (code, "end inside blocks" in " ".join(err.split())) == (2, True)
    assert "stages of half blocks" in " ".join(dse("plan", *SMALL, "--plans", "phaze", *deep)[1].split())


def test_export_for_megatron(dse, plan_file):
    code, out, _ = dse("plan", "export", str(plan_file))
    s = json.loads(plan_file.read_text())["best"]["strategy"]
    assert code == 0
    told = megatron(out)
    assert told["tensor_model_parallel_size"] == s["tensor_parallel"]
    assert (told["pipeline_model_parallel_size"], told["micro_batch_size"], told["global_batch_size"]) == (
        2,
        4,
        64,
    )
    assert (told["num_layers"], told["position_embedding_type"], told["swiglu"]) == (
        24,
        "learned_absolute",
        False,
    )


PARTLY = ("--arch", "a100", "--workload", "llama3-8b", "--devices", "4", "--global-batch", "16")


def test_a_plan_that_recomputes_some_blocks_is_exported_as_it_is(dse, tmp_path):
    """Where the framework has room for it; with its time there, as evaluated."""
    code, out, _ = dse("plan", *PARTLY, "--tensor-parallel", "4", "--microbatch", "1", "--json")
    assert code == 0
    (count,) = json.loads(out)["best"]["strategy"]["recomputed_blocks"]
    assert 0 < count < 32
    (tmp_path / "plan.json").write_text(out, encoding="utf-8")
    code, out, err = dse("plan", "export", str(tmp_path / "plan.json"))
    assert code == 0
    assert f"--recompute-granularity full --recompute-method block --recompute-num-layers {count}\n" in out
    assert "in place of" not in err
    code, out, err = dse("plan", "export", str(tmp_path / "plan.json"), "--for", "maxtext")
    assert code == 0
    assert "remat_policy=full" in out
    assert f"runs recompute full in place of {count} blocks" in " ".join(err.split())


@pytest.mark.parametrize("target", ["megatron-lm", "torchtitan", "maxtext"])
def test_a_recipe_tells_the_time_of_its_plan_under_its_framework(dse, plan_file, target):
    """As dse plan under that framework says of the same degrees."""
    code, out, _ = dse("plan", "export", str(plan_file), "--for", target)
    assert code == 0
    framework, told = re.search(r"expected under framework (\S+): (\S+) s per iteration", out).groups()
    assert framework == Target(target).framework
    s = json.loads(plan_file.read_text())["best"]["strategy"]
    names = ("data", "tensor", "pipeline", "context")
    degrees = [word for name in names for word in (f"--{name}-parallel", str(s[f"{name}_parallel"]))]
    free = json.loads(dse("plan", *SMALL, *degrees, "--framework", framework, "--json")[1])
    ideal = json.loads(plan_file.read_text())["best"]["iteration_time_s"]
    assert float(told) >= free["best"]["iteration_time_s"] * (1 - 1e-3)
    assert float(told) > ideal * 1.01  # no software is perfect


def of(plan_file, workload):
    """The plan as if it were another model's: recipes take its architecture by name."""
    document = read_plan(plan_file)
    return document.model_copy(update={"request": document.request | {"workloads": [workload]}})


_NUMBERS = (
    *("tensor-model-parallel-size", "pipeline-model-parallel-size", "micro-batch-size", "global-batch-size"),
    *(
        "num-layers",
        "hidden-size",
        "ffn-hidden-size",
        "num-attention-heads",
        "kv-channels",
        "num-query-groups",
    ),
    *("seq-length", "max-position-embeddings", "vocab-size", "num-experts", "moe-router-topk"),
    *("moe-ffn-hidden-size", "moe-shared-expert-intermediate-size", "mtp-num-layers", "kv-lora-rank"),
    *("q-lora-rank", "qk-head-dim", "qk-pos-emb-head-dim", "v-head-dim"),
    *("context-parallel-size", "expert-model-parallel-size", "num-virtual-stages-per-pipeline-rank"),
)
_FLAGS = (
    *(
        "bf16",
        "use-distributed-optimizer",
        "overlap-grad-reduce",
        "overlap-param-gather",
        "group-query-attention",
    ),
    *("swiglu", "disable-bias-linear", "add-qkv-bias", "untie-embeddings-and-output-weights", "qk-layernorm"),
    *("multi-latent-attention", "moe-grouped-gemm", "sequence-parallel", "use-tp-pp-dp-mapping"),
    *("recompute-activations", "use-torch-fsdp2", "optimizer-cpu-offload", "use-precision-aware-optimizer"),
)


def megatron(recipe):
    """Arguments of a recipe, read by a parser with the options, types and choices of Megatron-LM's
    megatron/training/arguments.py (commit 000c4ac): a name it does not have is an error."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    for name in _NUMBERS:
        parser.add_argument(f"--{name}", type=int)
    for name in _FLAGS:
        parser.add_argument(f"--{name}", action="store_true")
    for name in ("hidden-dropout", "attention-dropout", "optimizer-offload-fraction"):
        parser.add_argument(f"--{name}", type=float)
    parser.add_argument("--normalization", choices=["LayerNorm", "RMSNorm"])
    parser.add_argument(
        "--position-embedding-type", choices=["learned_absolute", "rope", "mrope", "relative", "none"]
    )
    parser.add_argument("--fp8-format", choices=["e4m3", "hybrid"])
    parser.add_argument("--fp8-recipe", choices=["tensorwise", "delayed", "mxfp8", "blockwise"])
    parser.add_argument("--fp4-format", choices=["e2m1"])
    parser.add_argument("--fp4-recipe", choices=["nvfp4"])
    parser.add_argument("--moe-router-score-function", choices=["softmax", "sigmoid"])
    parser.add_argument("--moe-token-dispatcher-type", choices=["allgather", "alltoall", "flex"])
    for name in ("moe-layer-freq", "window-size", "recompute-granularity", "recompute-method"):
        parser.add_argument(f"--{name}")
    parser.add_argument("--recompute-num-layers", type=int)
    between = recipe[recipe.index("ARGS=(") + len("ARGS=(") : recipe.index("\n)\n")]
    return vars(parser.parse_args(shlex.split(between)))


def test_megatron_starts_the_model_that_was_planned(plan_file):
    told = megatron(recipe(of(plan_file, "llama3-8b"), Target.MEGATRON_LM).text)
    for name in (
        "swiglu",
        "disable_bias_linear",
        "untie_embeddings_and_output_weights",
        "group_query_attention",
    ):
        assert told[name], name
    assert (told["normalization"], told["position_embedding_type"]) == ("RMSNorm", "rope")
    assert (told["num_query_groups"], told["ffn_hidden_size"], told["vocab_size"]) == (8, 14336, 128256)
    assert (told["hidden_dropout"], told["attention_dropout"]) == (0, 0)


def test_megatron_starts_experts_as_nvidia_does(plan_file):
    """Sizes and forms of NVIDIA's own script (Megatron-LM, examples/post_training/modelopt/conf/qwen)."""
    told = megatron(recipe(of(plan_file, "qwen3-30b-a3b"), Target.MEGATRON_LM).text)
    sizes = {"num_layers": 48, "hidden_size": 2048, "num_attention_heads": 32, "num_query_groups": 4}
    sizes |= {"kv_channels": 128, "num_experts": 128, "moe_ffn_hidden_size": 768, "moe_router_topk": 8}
    assert {name: told[name] for name in sizes} == sizes
    assert told["qk_layernorm"]
    assert told["swiglu"]
    assert told["untie_embeddings_and_output_weights"]


def test_megatron_starts_latent_attention_and_shared_experts(plan_file):
    told = megatron(recipe(of(plan_file, "deepseek-v3"), Target.MEGATRON_LM).text)
    assert told["multi_latent_attention"]
    assert (told["kv_lora_rank"], told["qk_pos_emb_head_dim"]) == (512, 64)
    assert told["moe_shared_expert_intermediate_size"] == 2048
    assert told["moe_layer_freq"] == "([0]*3+[1]*58)"
    assert told["moe_router_score_function"] == "sigmoid"


def test_export_for_torchtitan(dse, plan_file):
    code, out, err = dse("plan", "export", str(plan_file), "--for", "torchtitan")
    assert code == 0
    told = tomllib.loads(out)
    degrees = told["parallelism"]
    assert (
        degrees["data_parallel_shard_degree"]
        * degrees["data_parallel_replicate_degree"]
        * degrees["tensor_parallel_degree"]
        * degrees["pipeline_parallel_degree"]
        == json.loads(plan_file.read_text())["best"]["devices_used"]
    )
    assert degrees["pipeline_parallel_schedule"] == "1F1B"
    assert told["training"]["seq_len"] == 2048
    assert "ships no gpt3-xl, and does not start before one is registered" in err
    assert told["model"] == {
        "name": "gpt3-xl",
        "flavor": "gpt3-xl",
    }  # torchtitan would start its own default else
    named = tomllib.loads(recipe(of(plan_file, "llama3-70b"), Target.TORCHTITAN).text)["model"]
    assert named == {"name": "llama3", "flavor": "70B"}


def test_export_for_maxtext(dse, plan_file):
    code, out, err = dse("plan", "export", str(plan_file), "--for", "maxtext")
    assert code == 0
    told = dict(re.findall(r"(\w+)=(\S+)", out))
    assert float(told["per_device_batch_size"]) * 8 == 64
    assert "dcn_" in err
    assert (told["decoder_block"], told["logits_via_embedding"]) == ("gpt3", "true")
    text = recipe(of(plan_file, "mixtral-8x7b"), Target.MAXTEXT).text
    told = dict(re.findall(r"(\w+)=(\S+)", text))
    assert (told["decoder_block"], told["num_experts"], told["num_experts_per_tok"]) == ("mixtral", "8", "2")
    assert told["mlp_activations"] == "[silu,linear]"


_MAXTEXT = {
    **dict.fromkeys(
        (
            *(
                f"ici_{axis}_parallelism"
                for axis in ("data", "fsdp", "tensor", "context", "expert", "pipeline")
            ),
            *("num_pipeline_repeats", "num_pipeline_microbatches", "gradient_accumulation_steps"),
            *("base_num_decoder_layers", "base_emb_dim", "base_mlp_dim", "base_num_query_heads"),
            *("base_num_kv_heads", "head_dim", "vocab_size", "max_target_length", "trainable_position_size"),
            *("num_experts", "num_experts_per_tok", "base_moe_mlp_dim", "shared_experts"),
            *(
                "first_num_dense_layers",
                "q_lora_rank",
                "kv_lora_rank",
                "qk_nope_head_dim",
                "qk_rope_head_dim",
            ),
            *("v_head_dim",),
        ),
        int,
    ),
    "per_device_batch_size": float,
    "mlp_activations": lambda text: text.strip("[]").split(","),
    **dict.fromkeys(("logits_via_embedding", "use_qk_norm"), {"true": True, "false": False}.__getitem__),
    **{f"{what}_memory_host_offload": {"true": True}.__getitem__ for what in ("optimizer", "parameter")},
    "remat_policy": {"minimal", "full"},
    "quantization": {"fp8"},
    "attention_type": {"mla"},
    "routed_score_func": {"sigmoid"},
    "decoder_block": {"llama2", "mixtral", "deepseek", "qwen3", "qwen3_moe", "gpt3"},
}
"""Options of MaxText's MaxText/configs/base.yml (commit 315ebb5) with what they take; the blocks are those of
DecoderBlockType in MaxText/common_types.py."""


def maxtext(text):
    """Options of a recipe; a name that MaxText does not have, and a value that it does not take, is an error."""
    words = shlex.split(text[text.index("python3 -m maxtext.trainers") :].replace("\\\n", ""))[4:]
    told = dict(word.split("=", 1) for word in words)
    assert len(told) == len(words)
    return {name: _taken(_MAXTEXT[name], value) for name, value in told.items()}


def _taken(kind, value):
    if isinstance(kind, set):
        assert value in kind
        return value
    return kind(value)


_TITAN = {
    "model": {
        "name": {"llama3", "deepseek_v3", "qwen3"},
        "flavor": str,
        "converters": ["quantize.linear.float8", "quantize.linear.mx"],
    },
    "training": {
        "local_batch_size": int,
        "global_batch_size": int,
        "seq_len": int,
        "enable_cpu_offload": bool,
    },
    "parallelism": {
        **dict.fromkeys(
            (
                *("data_parallel_shard_degree", "data_parallel_replicate_degree", "tensor_parallel_degree"),
                *("context_parallel_degree", "pipeline_parallel_degree", "expert_parallel_degree"),
                "pipeline_parallel_microbatch_size",
            ),
            int,
        ),
        "fsdp_reshard_after_forward": {"default", "always", "never"},
        "pipeline_parallel_schedule": {"GPipe", "1F1B", "Interleaved1F1B", "ZBVZeroBubble"},
    },
    "activation_checkpoint": {"mode": {"selective", "full", "none"}},
    "quantize.linear.float8": {
        "recipe_name": {"tensorwise", "rowwise", "rowwise_with_gw_hp"},
        "enable_fsdp_float8_all_gather": bool,
    },
}
"""Sections, options and types of torchtitan's torchtitan/config/job_config.py (release 0.2.2); schedules are those of
torch/distributed/pipelining/schedules.py."""


def titan(text, workload):
    """A recipe as torchtitan reads it; what its configuration does not have is an error, names aside."""
    told = tomllib.loads(text)
    sections = {name: options for name, options in told.items() if name != "quantize"}
    for linear in told.get("quantize", {}).values():
        sections |= {f"quantize.linear.{name}": options for name, options in linear.items()}
    for section, options in sections.items():
        for name, value in options.items():
            kind = _TITAN[section][name]
            if isinstance(kind, set):
                assert value in kind or (section, name, value) == ("model", "name", workload)
            elif isinstance(kind, list):
                assert set(value) <= set(kind)
            else:
                assert type(value) is kind
    return told


_WAYS = (
    {},
    {"pipeline_parallel": 4, "schedule": "interleaved", "chunks": 2, "microbatches": 16},
    {"pipeline_parallel": 4, "schedule": "zb-h1", "recompute": "full", "recomputed_blocks": [1, 2, 1, 0]},
    {"data_parallel": 8, "zero_stage": 3, "context_parallel": 2, "recompute": "selective"},
    {"data_parallel": 8, "zero_stage": 1, "expert_parallel": 4, "offload": ["weights", "optimizer"]},
    {"data_parallel": 8, "zero_stage": 2, "shard_group": 4, "offload": ["activations"]},
)
_DECODERS = (
    "gpt3-xl",
    "llama3-8b",
    "mixtral-8x7b",
    "qwen3-8b",
    "qwen3-30b-a3b",
    "deepseek-v3",
    "gpt-neox-20b",
)


@pytest.mark.parametrize("way", range(len(_WAYS)))
@pytest.mark.parametrize("few_bits", [None, "fp8", "fp8-rows", "fp8-blocks", "mxfp8", "nvfp4"])
def test_recipes_have_the_options_of_their_framework_alone(plan_file, way, few_bits):
    for workload in _DECODERS:
        document = of(plan_file, workload)
        strategy = document.best.strategy.model_copy(update=_WAYS[way])
        best = document.best.model_copy(update={"strategy": strategy})
        request = document.request | {"recipe": few_bits}
        document = document.model_copy(update={"best": best, "request": request})
        told = maxtext(recipe(document, Target.MAXTEXT).text)
        assert ("quantization" in told) == (few_bits in {"fp8", "fp8-rows"})
        assert ("trainable_position_size" in told) == (workload == "gpt3-xl")
        assert told.get("ici_fsdp_parallelism", 1) * told.get("ici_data_parallelism", 1) > 0
        told = titan(recipe(document, Target.TORCHTITAN).text, workload)
        assert told["parallelism"]["pipeline_parallel_degree"] == strategy.pipeline_parallel
        lost = any(
            "no recipe" in remark
            for remark in recipe(document, Target.TORCHTITAN).remarks  # nothing is lost in silence
        )
        assert lost == (few_bits in {"fp8-blocks", "nvfp4"})
        told = megatron(recipe(document, Target.MEGATRON_LM).text)
        assert told["pipeline_model_parallel_size"] == strategy.pipeline_parallel
        assert bool(told["fp8_format"] or told["fp4_format"]) == (few_bits is not None)


def test_torchtitan_itself_reads_its_recipes(plan_file, tmp_path):
    """`pip install torchtitan==0.2.2`, the last release that is configured in TOML, brings the parser."""
    config = pytest.importorskip("torchtitan.config", exc_type=ImportError)
    if not hasattr(config, "JobConfig"):
        pytest.skip("this torchtitan is configured in Python")
    file = tmp_path / "recipe.toml"
    for way, few_bits in zip(_WAYS, (None, "fp8", "fp8-early", "fp8-rows", "mxfp8", "nvfp4"), strict=True):
        document = of(plan_file, "llama3-8b")
        strategy = document.best.strategy.model_copy(update=way)
        best = document.best.model_copy(update={"strategy": strategy})
        request = document.request | {"recipe": few_bits}
        document = document.model_copy(update={"best": best, "request": request})
        file.write_text(recipe(document, Target.TORCHTITAN).text)
        told = config.ConfigManager().parse_args([f"--job.config_file={file}"])
        assert (told.model.name, told.model.flavor) == ("llama3", "8B")
        assert told.parallelism.tensor_parallel_degree == strategy.tensor_parallel
        assert told.parallelism.pipeline_parallel_degree == strategy.pipeline_parallel
        assert bool(told.model.converters) == (few_bits not in {None, "nvfp4"})


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("plan",), "needs --arch and --workload"),
        (("plan", *SMALL, "--schedule", "zb"), "--schedule 'zb' is not known"),
        (("plan", *SMALL, "--tensor-parallel", "7"), "tensor-parallel width 7"),
        (("plan", *SMALL, "--data-parallel", "16"), "no plan has the degrees"),
        (("plan", *SMALL, "--whole", "mpl"), "--whole 'mpl' is not known"),
        (("plan", *SMALL, "--whole", "mlp", "--tensor-parallel", "1"), "--whole needs sequence parallelism"),
        (("plan", "--arch", "h100", "--workload", "mixtral-8x7b", "--whole", "mlp"), "sort mlp"),
        (("plan", *SMALL, "--framework", "nope"), "no framework is named"),
        (("plan", "export", "nope.json"), "nothing is there"),
        (("whatif", *SMALL, "--vary", "devices"), "is not NAME=V1,V2"),
        (("whatif", *SMALL, "--vary", "devices=a"), "not a whole number"),
        (("whatif", *SMALL, "--vary", "flux=1"), "nor a hardware field is called so"),
        (("whatif", *SMALL, "--vary", "devices=8", "--plot", "x.png"), "must end in .svg or .html"),
    ],
)
def test_bad_input_is_one_sentence(dse, arguments, words):
    code, out, err = dse(*arguments)
    assert code == 2
    assert words in err
    assert out == ""
    assert err.count("\n") == 1


def test_what_does_not_fit_says_what_would(dse):
    code, _, err = dse("plan", "--arch", "h100", "--workload", "gpt3", "--devices", "2", *FEW)
    assert code == 3
    assert "smallest feasible" in err


def test_whatif_varies_and_draws(dse, tmp_path):
    picture = tmp_path / "devices.svg"
    code, out, _ = dse(
        "whatif", *SMALL[:-4], *FEW, "--vary", "devices=8,16", "--global-batch", "64", "--plot", str(picture)
    )
    assert code == 0
    assert "devices 8:" in out
    assert "devices 16:" in out
    assert picture.read_text().startswith("<svg")


def test_whatif_over_a_hardware_field(dse):
    code, out, _ = dse(
        "whatif",
        *SMALL,
        *FEW,
        "--vary",
        "link_bandwidth_bytes_per_s=100GB/s,450GB/s",
        "--tensor-parallel",
        "8",
        "--json",
    )
    assert code == 0
    slow, fast = (point["plan"]["best"]["iteration_time_s"] for point in json.loads(out)["points"])
    assert slow > fast


@pytest.mark.parametrize("verb", [("plan",), ("whatif", "--vary", "microbatch=2,4")])
def test_no_plan_is_told_that_the_checker_has_not_passed(dse, monkeypatch, verb):
    checked, few = [], FEW if verb[0] == "plan" else FEW[2:]

    def refuses(_, strategy, *__):
        checked.append(strategy)
        if len(checked) > 1:
            raise PlanError("is wrong")

    monkeypatch.setattr("phaze.explore.evaluation.planned_iteration.check_plan", refuses)
    code, out, _ = dse(*verb, *SMALL, *few)
    assert code != 0
    assert len(checked) == 2
    assert "Best plan" not in out
