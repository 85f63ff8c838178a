"""Words for a training plan, the parts of its time and of its memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from phaze.explore.documents.plan_document import PlanDocument, PlanResult
from phaze.explore.documents.plan_record import StrategyRecord
from phaze.explore.documents.result_document import Placement
from phaze.report import number_format as fmt

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


def degrees_beside(plans: Sequence[Placement], times: str = "x") -> tuple[str, list[str]]:
    """Degrees of several plans, whose product is the devices in use: what they are, and those of each, joined.

    Context parallelism stands among them where one of the plans has some.
    """
    every = [
        {
            "data": plan.data_parallel,
            "tensor": plan.tensor_parallel,
            "context": plan.plan.context_parallel if plan.plan else 1,
            "pipeline": plan.pipeline_parallel,
        }
        for plan in plans
    ]
    shown = [
        n for n in ("data", "tensor", "context", "pipeline") if n != "context" or any(d[n] > 1 for d in every)
    ]
    return " x ".join(shown), [times.join(str(degrees[name]) for name in shown) for degrees in every]


def next_plans_head(document: PlanDocument) -> tuple[str, ...]:
    """Columns of the plans next to the best: they stand in the order of their iterations, or of goodput."""
    by_goodput = document.best.best_by is not None
    return ("plan", "iteration", *(("goodput", "less by") if by_goodput else ("slower by",)), "memory")


def next_plan_rows(document: PlanDocument) -> list[tuple[str, ...]]:
    """The plans next to the best, in words and units."""
    return [
        (
            summary_with_batch(plan),
            fmt.duration(plan.iteration_time_s),
            *_behind(plan, document.best),
            fmt.memory(plan.memory_bytes),
        )
        for plan in document.next_best
    ]


def summary_with_batch(plan: PlanResult) -> str:
    """A plan in one line, with its batch where plans may differ in it."""
    batch = f", batch {plan.convergence.global_batch:,}" if plan.convergence else ""
    return summary(plan.strategy) + batch


def _behind(plan: PlanResult, best: PlanResult) -> Iterator[str]:
    left, most = plan.best_by, best.best_by
    if left is None or most is None:
        yield fmt.percent(plan.iteration_time_s / best.iteration_time_s - 1)
    else:
        yield f"{fmt.number(left)} samples/s"
        yield fmt.percent(1 - left / most)


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
    if s.pipeline_parallel > 1 or s.chunks > 1:
        yield s.schedule + (f" x {s.chunks}" if s.chunks > 1 else "")
    if s.feeds is not None:
        yield f"branches side by side, {_depth(s.feeds)} stages deep"
    elif s.grain == "layer":
        yield "stages of half blocks"
    yield f"microbatch {s.microbatch_size}"
    if s.layers:
        again = " and ".join(_again(s))
        yield from (f"recompute of {again}",) if again else ()
    elif s.recompute == "full" and s.recomputed_blocks is not None:
        yield f"recompute of {sum(s.recomputed_blocks)} {s.grain}s"
    elif s.recompute != "none":
        yield f"{s.recompute} recompute"
    if s.zero_stage:
        divided = sum(run.blocks for run in s.layers or () if run.sharded)
        more = f", ZeRO 3 for {divided} {s.grain}s" if divided else ""
        yield f"ZeRO {s.zero_stage}{more}" + (f" over {s.shard_group}" if s.shard_group else "")
    if s.data_parallel > 1 and s.pipeline_parallel > 1 and s.order.endswith("data"):
        yield "pipelines inside"
    if s.offload:
        yield " and ".join(s.offload) + " at the host"


def _depth(feeds: list[list[int]]) -> int:
    """Stages on the longest path."""
    depth = [1] * len(feeds)
    for stage in reversed(range(len(feeds))):
        depth[stage] += max((depth[other - 1] for other in feeds[stage]), default=0)
    return max(depth)


def _again(s: StrategyRecord) -> Iterator[str]:
    """How many blocks recompute in each way: `20 blocks`, `3 mlp layers`."""
    counts: Counter[str] = Counter()
    for run in s.layers or ():
        counts[run.again] += run.blocks
    for again, count in counts.items():
        if again == "block":
            yield f"{count} {s.grain}s"
        elif again == "each-layer":
            yield f"{count} blocks layer by layer"
        elif again != "none":
            yield f"{count} {again} layers"
