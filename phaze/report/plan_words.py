"""Words for a training plan, the parts of its time and of its memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from phaze.explore.documents.plan_record import StrategyRecord

TIMES: Mapping[str, str] = {
    "product_s": "products and attention",
    "vector_s": "vector kernels",
    "recompute_s": "recompute",
    "tensor_s": "tensor-parallel collectives",
    "context_s": "context-parallel exchanges",
    "expert_s": "expert-parallel exchanges",
    "transfer_s": "transfers between stages",
    "gather_s": "gathers of weights",
    "reduction_s": "reduction of gradients",
    "offload_s": "transfers with the host",
    "bubble_s": "pipeline bubble",
    "optimizer_s": "optimizer",
    "host_s": "waiting for the host",
}
BYTES: Mapping[str, str] = {
    "weights_bytes": "weights",
    "gradients_bytes": "gradients",
    "optimizer_bytes": "optimizer state",
    "activations_bytes": "activations in flight",
    "working_bytes": "working set of a layer",
    "buffers_bytes": "gathered weights",
    "reserved_bytes": "reserved",
}


def summary(s: StrategyRecord) -> str:
    """A strategy in one line, choices that change nothing left out."""
    return ", ".join(_words(s))


def _words(s: StrategyRecord) -> Iterator[str]:
    degrees = {
        "data": s.data_parallel,
        "tensor": s.tensor_parallel,
        "context": s.context_parallel,
        "expert": s.expert_parallel,
        "pipeline": s.pipeline_parallel,
    }
    yield " x ".join(f"{name} {n}" for name, n in degrees.items() if n > 1) or "one device"
    if s.sequence_parallel:
        yield "sequence parallel"
    if s.whole_layers:
        yield f"whole {' + '.join(s.whole_layers)}"
    if s.pipeline_parallel > 1:
        yield s.schedule + (f" x {s.chunks}" if s.chunks > 1 else "")
    if s.grain == "layer":
        yield "stages of half blocks"
    yield f"microbatch {s.microbatch_size}"
    if s.recompute == "full" and s.recomputed_blocks is not None:
        yield f"recompute of {sum(s.recomputed_blocks)} {s.grain}s"
    elif s.recompute != "none":
        yield f"{s.recompute} recompute"
    if s.zero_stage:
        yield f"ZeRO {s.zero_stage}" + (f" over {s.shard_group}" if s.shard_group else "")
    if s.data_parallel > 1 and s.pipeline_parallel > 1 and s.order.endswith("data"):
        yield "pipelines inside"
    if s.offload:
        yield " and ".join(s.offload) + " at the host"
