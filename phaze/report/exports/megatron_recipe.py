"""Arguments of Megatron-LM's `pretrain_gpt.py` (github.com/NVIDIA/Megatron-LM, megatron/training/arguments.py)."""

from __future__ import annotations

from collections.abc import Iterator

from phaze.explore.documents.plan_document import PlanDocument
from phaze.explore.documents.plan_record import StrategyRecord
from phaze.report.exports.launch_recipe import (
    NO_MODEL,
    Model,
    Recipe,
    divides_all,
    heading,
    model_of,
    most_recomputed,
    recomputes_alike,
    uneven,
)
from phaze.workload.families.decoder_family import Decoder
from phaze.workload.families.latent_attention import Latent
from phaze.workload.families.transformer_blocks import Experts
from phaze.workload.families.transformer_dimensions import Activation, NormKind, NormPlace, Positions, Scores

_FORMATS = {
    "fp8": "--fp8-format hybrid --fp8-recipe delayed",
    "fp8-early": "--fp8-format hybrid --fp8-recipe tensorwise",
    "fp8-rows": "--fp8-format hybrid --fp8-recipe tensorwise",
    "fp8-blocks": "--fp8-format e4m3 --fp8-recipe blockwise",
    "mxfp8": "--fp8-format e4m3 --fp8-recipe mxfp8",
    "nvfp4": "--fp4-format e2m1 --fp4-recipe nvfp4",
}
_RUNS = ("1f1b", "interleaved")


def write(document: PlanDocument) -> Recipe:
    """A shell script that sets the arguments of the plan; data, tokenizer and schedule of learning are left to add."""
    s = document.best.strategy
    model = model_of(document)
    flags = [*_parallel(s), *_batch(document), *_memory(s), *(_model(model) if model else ())]
    text = [*heading(document), "ARGS=(", *(f"    {flag}" for flag in flags), ")"]
    text.append(f'torchrun --nproc-per-node 8 --nnodes {_nodes(document)} pretrain_gpt.py "${{ARGS[@]}}"')
    remarks = [*_remarks(s), *(_unlike(model.decoder) if model else (NO_MODEL,))]
    if document.request.get("recipe") in ("fp8-early", "fp8-rows"):
        remarks.append(
            "fp8-early and fp8-rows are TorchAO's: the recipe scales by tensor as Transformer Engine does"
        )
    return Recipe("\n".join(text) + "\n", tuple(remarks))


def _nodes(document: PlanDocument) -> int:
    return -(-document.best.devices_used // 8)


def _parallel(s: StrategyRecord) -> Iterator[str]:
    yield f"--tensor-model-parallel-size {s.tensor_parallel}"
    yield f"--pipeline-model-parallel-size {s.pipeline_parallel}"
    if s.sequence_parallel:
        yield "--sequence-parallel"
    if s.chunks > 1:
        yield f"--num-virtual-stages-per-pipeline-rank {s.chunks}"
    if s.context_parallel > 1:
        yield f"--context-parallel-size {s.context_parallel}"
    if s.expert_parallel > 1:
        yield f"--expert-model-parallel-size {s.expert_parallel}"
    if s.order.endswith("data") and s.pipeline_parallel > 1:
        yield "--use-tp-pp-dp-mapping"


def _batch(document: PlanDocument) -> Iterator[str]:
    yield f"--micro-batch-size {document.best.strategy.microbatch_size}"
    yield f"--global-batch-size {document.request['global_batch']}"
    yield "--bf16"
    if recipe := document.request.get("recipe"):
        yield _FORMATS[recipe]


def _memory(s: StrategyRecord) -> Iterator[str]:
    if s.zero_stage in (1, 2):
        yield "--use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather"
    if s.zero_stage == 3:
        yield "--use-torch-fsdp2"
    if s.recompute == "selective":
        yield "--recompute-activations"
    if s.recompute == "full":
        most = most_recomputed(s)
        method = "uniform" if most is None else "block"
        yield f"--recompute-granularity full --recompute-method {method} --recompute-num-layers {most or 1}"
    if "optimizer" in s.offload:
        yield "--optimizer-cpu-offload --optimizer-offload-fraction 1.0 --use-precision-aware-optimizer"


_POSITIONS = {
    Positions.LEARNED: "learned_absolute",
    Positions.ROPE: "rope",
    Positions.RELATIVE: "relative",
    Positions.NONE: "none",
}


def _model(m: Model) -> Iterator[str]:
    """The architecture: sizes, attention, norms, the feed-forward half, both ends, experts."""
    d = m.decoder
    yield f"--num-layers {d.layers} --hidden-size {d.hidden} --ffn-hidden-size {d.ffn}"
    yield from _attention(d)
    yield f"--seq-length {m.tokens} --max-position-embeddings {max(m.tokens, d.max_positions)}"
    yield f"--vocab-size {d.vocabulary}"
    yield f"--position-embedding-type {_POSITIONS.get(d.positions, 'none')}"
    yield f"--normalization {'RMSNorm' if d.norm is NormKind.RMS else 'LayerNorm'}"
    if d.gated and d.activation is Activation.SILU:
        yield "--swiglu"
    if not d.bias:
        yield "--disable-bias-linear" + (" --add-qkv-bias" if d.query_bias else "")
    if not d.tied_embeddings:
        yield "--untie-embeddings-and-output-weights"
    yield f"--hidden-dropout {d.dropout:g} --attention-dropout {d.attention_dropout:g}"
    yield from _experts(d.experts, d.layers) if d.experts else ()
    if d.ahead:
        yield f"--mtp-num-layers {d.ahead}"


def _attention(d: Decoder) -> Iterator[str]:
    yield f"--num-attention-heads {d.heads}"
    if d.latent:
        yield from _latent(d.latent)
    elif d.kv < d.heads:
        yield f"--group-query-attention --num-query-groups {d.kv}"
    if d.head_size and not d.latent:
        yield f"--kv-channels {d.head_size}"
    if d.qk_norm or d.latent:
        yield "--qk-layernorm"
    if d.window:
        yield f'--window-size "({d.window - 1},0)"'


def _latent(sizes: Latent) -> Iterator[str]:
    yield f"--multi-latent-attention --kv-lora-rank {sizes.kv_lora_rank}"
    if sizes.q_lora_rank:
        yield f"--q-lora-rank {sizes.q_lora_rank}"
    yield f"--qk-head-dim {sizes.qk_nope_head_dim} --qk-pos-emb-head-dim {sizes.qk_rope_head_dim}"
    yield f"--v-head-dim {sizes.v_head_dim}"


def _experts(e: Experts, layers: int) -> Iterator[str]:
    yield f"--num-experts {e.number} --moe-router-topk {e.per_token} --moe-ffn-hidden-size {e.hidden}"
    yield "--moe-grouped-gemm --moe-token-dispatcher-type alltoall"
    if e.shared:
        yield f"--moe-shared-expert-intermediate-size {e.shared * e.hidden}"
    if e.dense_layers:
        yield f'--moe-layer-freq "([0]*{e.dense_layers}+[1]*{layers - e.dense_layers})"'
    if e.scores is Scores.SIGMOID:
        yield "--moe-router-score-function sigmoid"


def _unlike(d: Decoder) -> Iterator[str]:
    """What of the model the options do not say, so that another model would start without a word."""
    gelu = d.activation in (Activation.GELU, Activation.GELU_TANH, Activation.GELU_NEW)
    if d.gated and d.activation is not Activation.SILU:
        yield f"pretrain_gpt.py has no option for {d.activation.gate}: the recipe runs gelu without a gate"
    elif not d.gated and not gelu:
        yield f"pretrain_gpt.py has no option for {d.activation}: the recipe runs gelu"
    if d.positions is Positions.ALIBI:
        yield "Megatron-LM has no ALiBi: the recipe has no positions"
    if d.positions is Positions.ROPE:
        yield "--rotary-base is left at its default, 10000: the planned time does not depend on it, the model does"
    if d.parallel:
        yield "Megatron-LM runs attention and feed-forward one after the other, not side by side"
    if d.uncommon:
        yield f"no option of Megatron-LM is given for {', '.join(d.uncommon)}: the recipe starts a model without"
    if d.norm_place is NormPlace.POST:
        yield "Megatron-LM's GPT has its norms before each half"
    if d.embedding != d.hidden:
        yield f"the table of tokens is {d.embedding} wide in this model; Megatron-LM's is as wide as the blocks"


def _remarks(s: StrategyRecord) -> Iterator[str]:
    if s.pipeline_parallel > 1 and s.schedule not in _RUNS:
        own = "interleaved 1F1B" if s.chunks > 1 else "1F1B"
        yield f"Megatron-LM has no option for schedule {s.schedule}; the recipe runs its {own}"
    yield from divides_all(s, "Megatron-LM")
    yield from recomputes_alike(s, "Megatron-LM")
    if s.zero_stage == 2:
        yield "Megatron-LM's distributed optimizer divides no gradients during accumulation: ZeRO 1 is what runs"
    if s.recomputed_blocks is not None and len(set(s.recomputed_blocks)) > 1:
        yield "Megatron-LM recomputes as many blocks on every stage: the recipe takes the most of any"
    if uneven(s):
        yield f"stages of {s.blocks} blocks need --pipeline-model-parallel-layout"
    if "optimizer" in s.offload and not s.zero_stage:
        yield "Megatron-LM's optimizer on the host asks for its distributed optimizer (ZeRO 1)"
    if away := [what for what in ("weights", "activations") if what in s.offload]:
        settings = ", ".join(f"cpu_offloading_{what}" for what in away)
        yield (
            f"offload of {' and '.join(away)} takes --cpu-offloading-num-layers and {settings} of TransformerConfig, "
            "without pipeline and recompute"
        )
