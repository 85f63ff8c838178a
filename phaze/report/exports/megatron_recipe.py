"""Arguments of Megatron-LM's `pretrain_gpt.py` (github.com/NVIDIA/Megatron-LM, megatron/training/arguments.py)."""

from __future__ import annotations

from collections.abc import Iterator

from phaze.explore.documents.plan_document import PlanDocument
from phaze.explore.documents.plan_record import StrategyRecord
from phaze.report.exports.launch_recipe import (
    Recipe,
    Sizes,
    divides_all,
    heading,
    most_recomputed,
    sizes_of,
    uneven,
)

_FORMATS = {
    "fp8": "--fp8-format hybrid --fp8-recipe delayed",
    "fp8-early": "--fp8-format hybrid --fp8-recipe tensorwise",
    "fp8-rows": "--fp8-format hybrid --fp8-recipe tensorwise",
    "mxfp8": "--fp8-format e4m3 --fp8-recipe mxfp8",
    "nvfp4": "--fp4-format e2m1 --fp4-recipe nvfp4",
}
_RUNS = ("1f1b", "interleaved")


def write(document: PlanDocument) -> Recipe:
    """A shell script that sets the arguments of the plan; data, tokenizer and schedule of learning are left to add."""
    s = document.best.strategy
    sizes = sizes_of(document)
    flags = [*_parallel(s), *_batch(document), *_memory(s), *(_model(sizes) if sizes else ())]
    text = [*heading(document), "ARGS=(", *(f"    {flag}" for flag in flags), ")"]
    text.append(f'torchrun --nproc-per-node 8 --nnodes {_nodes(document)} pretrain_gpt.py "${{ARGS[@]}}"')
    remarks = [*_remarks(s, sizes)]
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


def _model(m: Sizes) -> Iterator[str]:
    yield f"--num-layers {m.layers} --hidden-size {m.hidden} --ffn-hidden-size {m.ffn_hidden}"
    groups = f" --group-query-attention --num-query-groups {m.kv_heads}" if m.kv_heads < m.heads else ""
    yield f"--num-attention-heads {m.heads}{groups}"
    yield f"--seq-length {m.tokens} --max-position-embeddings {m.tokens} --vocab-size {m.vocabulary}"
    if m.experts:
        yield f"--num-experts {m.experts} --moe-router-topk {m.experts_per_token}"


def _remarks(s: StrategyRecord, sizes: Sizes | None) -> Iterator[str]:
    if s.pipeline_parallel > 1 and s.schedule not in _RUNS:
        own = "interleaved 1F1B" if s.chunks > 1 else "1F1B"
        yield f"Megatron-LM has no option for schedule {s.schedule}; the recipe runs its {own}"
    yield from divides_all(s, "Megatron-LM")
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
    if sizes is None:
        yield "the workload is no built-in decoder: add the sizes of the model"
