"""Options of MaxText's `train.py` (github.com/AI-Hypercomputer/maxtext, configs/base.yml)."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from phaze.explore.documents.plan_document import PlanDocument
from phaze.explore.documents.plan_record import StrategyRecord
from phaze.report.exports.launch_recipe import Recipe, Sizes, heading, sizes_of, uneven

_FP8 = ("fp8", "fp8-early", "fp8-rows")
_OFFLOAD = {"weights": "parameter", "optimizer": "optimizer"}
_REMAT = {"none": "minimal", "selective": "minimal", "full": "full"}


def write(document: PlanDocument) -> Recipe:
    """A shell command; data, tokenizer and output are left to add."""
    s, sizes = document.best.strategy, sizes_of(document)
    options = [*_parallel(s), *_batch(document), f"remat_policy={_REMAT[s.recompute]}"]
    recipe = document.request.get("recipe")
    options += ["quantization=fp8"] if recipe in _FP8 else []
    options += [f"{_OFFLOAD[what]}_memory_host_offload=true" for what in s.offload if what in _OFFLOAD]
    options += _model(sizes) if sizes else []
    text = [*heading(document), "python3 -m MaxText.train MaxText/configs/base.yml \\"]
    text += [f"    {option} \\" for option in options[:-1]] + [f"    {options[-1]}"]
    lost = (
        [f"MaxText has no recipe {recipe}: the command runs 16 bits"] if recipe and recipe not in _FP8 else []
    )
    return Recipe("\n".join(text) + "\n", (*_remarks(s, sizes), *lost))


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


def _model(m: Sizes) -> list[str]:
    return [
        f"base_num_decoder_layers={m.layers}",
        f"base_emb_dim={m.hidden}",
        f"base_mlp_dim={m.ffn_hidden}",
        f"base_num_query_heads={m.heads}",
        f"base_num_kv_heads={m.kv_heads}",
        f"vocab_size={m.vocabulary}",
        f"max_target_length={m.tokens}",
    ]


def _remarks(s: StrategyRecord, sizes: Sizes | None) -> Iterator[str]:
    yield "all degrees are given to the fast network (ici_); move those that span slices to dcn_"
    if s.pipeline_parallel > 1 and s.schedule not in ("gpipe", "interleaved"):
        yield f"MaxText runs its own circular schedule, not {s.schedule}"
    if s.whole_layers:
        named = ", ".join(s.whole_layers)
        yield f"layers that stay whole ({named}) need rules of their own in MaxText's logical_axis_rules"
    if s.zero_stage in (1, 2):
        yield "MaxText divides weights (fsdp) or nothing (data): the recipe divides nothing"
    if s.recompute == "full" and s.recomputed_blocks is not None:
        yield "MaxText recomputes all blocks alike: the recipe recomputes all"
    if uneven(s):
        yield "MaxText has stages of as many blocks each"
    if "optimizer" in s.offload:
        yield "MaxText brings the optimizer's state back to step on the device, not on the host"
    if "activations" in s.offload:
        yield "MaxText offloads activations by name: remat_policy=custom with decoder_layer_input=offload and others"
    if sizes is None:
        yield "the workload is no built-in decoder: add the sizes of the model"
