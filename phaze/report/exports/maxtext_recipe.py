"""Options of MaxText's `train.py` (github.com/AI-Hypercomputer/maxtext, configs/base.yml of release 0.2.5)."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from phaze.explore.documents.plan_document import PlanDocument
from phaze.explore.documents.plan_record import StrategyRecord
from phaze.report.exports.launch_recipe import (
    NO_MODEL,
    Model,
    Recipe,
    heading,
    model_of,
    recomputes_alike,
    uneven,
)
from phaze.workload.families.decoder_family import Decoder
from phaze.workload.families.transformer_dimensions import Activation, NormKind, NormPlace, Positions, Scores

_FP8 = ("fp8", "fp8-early", "fp8-rows")
_OFFLOAD = {"weights": "parameter", "optimizer": "optimizer"}
_REMAT = {"none": "minimal", "selective": "minimal", "full": "full"}


def write(document: PlanDocument) -> Recipe:
    """A shell command; data, tokenizer and output are left to add."""
    s, model = document.best.strategy, model_of(document)
    options = [*_parallel(s), *_batch(document), f"remat_policy={_REMAT[s.recompute]}"]
    recipe = document.request.get("recipe")
    options += ["quantization=fp8"] if recipe in _FP8 else []
    options += [f"{_OFFLOAD[what]}_memory_host_offload=true" for what in s.offload if what in _OFFLOAD]
    options += _model(model) if model else []
    text = [*heading(document), "python3 -m maxtext.trainers.pre_train.train src/maxtext/configs/base.yml \\"]
    text += [f"    {option} \\" for option in options[:-1]] + [f"    {options[-1]}"]
    lost = (
        [f"MaxText has no recipe {recipe}: the command runs 16 bits"] if recipe and recipe not in _FP8 else []
    )
    unlike = _unlike(model.decoder) if model else (NO_MODEL,)
    return Recipe("\n".join(text) + "\n", (*_remarks(s), *unlike, *lost))


def _parallel(s: StrategyRecord) -> Iterator[str]:
    data = "fsdp" if s.zero_stage == 3 else "data"
    yield f"ici_{data}_parallelism={s.data_parallel // s.expert_parallel}"
    yield f"ici_tensor_parallelism={s.tensor_parallel}"
    if s.context_parallel > 1:
        yield f"ici_context_parallelism={s.context_parallel}"
    if s.expert_parallel > 1:
        yield f"ici_expert_parallelism={s.expert_parallel}"
    if s.pipeline_parallel > 1:
        yield f"ici_pipeline_parallelism={s.pipeline_parallel}"
        yield f"num_pipeline_repeats={s.chunks}"
        yield f"num_pipeline_microbatches={s.microbatches}"


def _batch(document: PlanDocument) -> Iterator[str]:
    s = document.best.strategy
    steps = 1 if s.pipeline_parallel > 1 else s.microbatches
    each = Fraction(int(document.request["global_batch"]), document.best.devices_used * steps)
    yield f"per_device_batch_size={float(each):g}"
    if steps > 1:
        yield f"gradient_accumulation_steps={steps}"


_ACTIVATIONS = {
    Activation.GELU: "gelu",
    Activation.GELU_TANH: "gelu",
    Activation.GELU_NEW: "gelu",
    Activation.RELU: "relu",
    Activation.RELU2: "relu",
    Activation.SILU: "silu",
}


def _model(m: Model) -> list[str]:
    d = m.decoder
    words = [_ACTIVATIONS[d.activation], *(["linear"] if d.gated else [])]
    return [
        f"decoder_block={_block(d)}",
        f"base_num_decoder_layers={d.layers}",
        f"base_emb_dim={d.hidden}",
        f"base_mlp_dim={d.ffn}",
        f"base_num_query_heads={d.heads}",
        f"base_num_kv_heads={d.kv}",
        f"head_dim={d.head}",
        f"mlp_activations=[{','.join(words)}]",
        f"logits_via_embedding={str(d.tied_embeddings).lower()}",
        *(["use_qk_norm=true"] if d.qk_norm else []),
        *_latent(d),
        *_experts(d),
        f"vocab_size={d.vocabulary}",
        f"max_target_length={m.tokens}",
        *([f"trainable_position_size={m.tokens}"] if d.positions is Positions.LEARNED else []),
    ]


def _block(d: Decoder) -> str:
    """MaxText's block with the norms, positions and halves of the model."""
    if d.latent:
        return "deepseek"
    if d.experts:
        return "qwen3_moe" if d.qk_norm else "mixtral"
    if d.qk_norm:
        return "qwen3"
    return "llama2" if d.norm is NormKind.RMS else "gpt3"


def _latent(d: Decoder) -> list[str]:
    if d.latent is None:
        return []
    return [
        "attention_type=mla",
        f"q_lora_rank={d.latent.q_lora_rank or 0}",
        f"kv_lora_rank={d.latent.kv_lora_rank}",
        f"qk_nope_head_dim={d.latent.qk_nope_head_dim}",
        f"qk_rope_head_dim={d.latent.qk_rope_head_dim}",
        f"v_head_dim={d.latent.v_head_dim}",
    ]


def _experts(d: Decoder) -> list[str]:
    e = d.experts
    if e is None:
        return []
    found = [f"num_experts={e.number}", f"num_experts_per_tok={e.per_token}", f"base_moe_mlp_dim={e.hidden}"]
    found += [f"shared_experts={e.shared}"] if e.shared else []
    found += [f"first_num_dense_layers={e.dense_layers}"] if e.dense_layers else []
    return [*found, *(["routed_score_func=sigmoid"] if e.scores is Scores.SIGMOID else [])]


def _unlike(d: Decoder) -> Iterator[str]:
    """What of the model the options do not say, so that another model would start without a word."""
    told = {"llama2": (NormKind.RMS, Positions.ROPE), "gpt3": (NormKind.LAYER, Positions.LEARNED)}
    if (block := _block(d)) in told and told[block] != (d.norm, d.positions):
        yield f"no block of MaxText has {d.norm} norms and {d.positions} positions: the recipe takes that of {block}"
    if d.parallel:
        yield "MaxText runs attention and feed-forward one after the other, not side by side"
    if d.activation is Activation.RELU2:
        yield "MaxText has no squared relu: the recipe runs relu"
    if d.uncommon:
        yield f"no option of MaxText is given for {', '.join(d.uncommon)}: the recipe starts a model without"
    if d.norm_place is NormPlace.POST:
        yield "MaxText's blocks have their norms before each half"
    if d.query_bias != d.bias:
        yield "biases of queries, keys and values alone are those of MaxText's block, where it has some"


def _remarks(s: StrategyRecord) -> Iterator[str]:
    yield "all degrees are given to the fast network (ici_); move those that span slices to dcn_"
    if s.pipeline_parallel > 1 and s.schedule not in ("gpipe", "interleaved"):
        yield f"MaxText runs its own circular schedule, not {s.schedule}"
    if s.whole_layers:
        named = ", ".join(s.whole_layers)
        yield f"layers that stay whole ({named}) need rules of their own in MaxText's logical_axis_rules"
    if s.zero_stage in (1, 2):
        yield "MaxText divides weights (fsdp) or nothing (data): the recipe divides nothing"
    yield from recomputes_alike(s, "MaxText")
    if s.recompute == "full" and s.recomputed_blocks is not None:
        yield "MaxText recomputes all blocks alike: the recipe recomputes all"
    if uneven(s):
        yield "MaxText has stages of as many blocks each"
    if "optimizer" in s.offload:
        yield "MaxText brings the optimizer's state back to step on the device, not on the host"
    if "activations" in s.offload:
        yield "MaxText offloads activations by name: remat_policy=custom with decoder_layer_input=offload and others"
