"""A layer as one device has it: all degrees of a sharding applied, one after the other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from phaze.errors import InputError
from phaze.workload.layers.layer_cutting import Segment
from phaze.workload.operators.operator_graph import Operator, OperatorGraph
from phaze.workload.operators.operator_steps import OperatorContext
from phaze.workload.parallel_degrees import Parallel, Sharding
from phaze.workload.sharding.context_parallelism import ContextParallel, token_axes
from phaze.workload.sharding.expert_parallelism import ExpertParallel, expert_tensors
from phaze.workload.sharding.layer_rewriter import Part
from phaze.workload.sharding.shard_roles import among_experts, undivided
from phaze.workload.sharding.tensor_parallelism import TensorParallel


@dataclass(frozen=True)
class UndividedModel:
    """The undivided model: its graph, and what rules may know of it."""

    graph: OperatorGraph
    ctx: OperatorContext

    @cached_property
    def makers(self) -> Mapping[str, int]:
        """Position of the operator that makes each tensor."""
        return self.graph.producers()

    @cached_property
    def tokens(self) -> Mapping[str, int]:
        """Axis of the tokens in each tensor that holds some."""
        return token_axes(self.graph, self.ctx.parameters)

    @cached_property
    def experts(self) -> frozenset[str]:
        """Tensors between a DISPATCH and its COMBINE."""
        return expert_tensors(self.graph)

    def check(self, sharding: Sharding) -> None:
        """Raise InputError for a degree that finds nothing to divide."""
        missing = None
        if sharding.divides_tokens and not self.tokens:
            missing = f"tokens, which {'context' if sharding.context > 1 else 'sequence'} parallelism divides"
        if sharding.expert > 1 and not self.experts:
            missing = "experts, which expert parallelism divides"
        if missing:
            raise InputError(f"{self.graph.name} has no {missing}")

    def divided(self, segment: Segment, sharding: Sharding) -> tuple[tuple[Operator, ...], OperatorContext]:
        """Operators and tensors of one layer on one device."""
        if sharding.is_undivided:
            return segment.operators, self.ctx
        part = self._part(segment, sharding)
        if sharding.tensor > 1:
            group = sharding.group(Parallel.TENSOR)
            TensorParallel(part, group, sequence=sharding.sequence).rewrite()
        if sharding.context > 1:
            ContextParallel(part, sharding.group(Parallel.CONTEXT)).rewrite()
        if sharding.expert > 1 or (sharding.load is not None and part.experts):
            ExpertParallel(part, sharding.group(Parallel.EXPERT), sharding.load).rewrite()
        return part.operators, self._local(part, sharding)

    def _local(self, part: Part, sharding: Sharding) -> OperatorContext:
        """Context of the part for rules: gradients flow through what collectives make of where they do."""
        flows = {t for t in part.tensors if t in self.ctx.differentiable}
        for op in part.operators:
            if not flows.isdisjoint(op.inputs):
                flows.update(t for t in op.outputs if t not in self.graph.tensors)
        return replace(
            self.ctx,
            tensors=part.tensors,
            parameters=part.constants,
            differentiable=flows,
            sharding=sharding,
        )

    def boundary_bytes(self, tensor: str, sharding: Sharding) -> float:
        """Bytes of a tensor between layers, on all devices of a tensor-parallel group together."""
        if sharding.context == 1 or tensor not in self.tokens:
            return self.ctx.bytes(tensor)
        tokens = self.ctx.shape(tensor)[self.tokens[tensor]]
        return self.ctx.bytes(tensor) / tokens * -(-tokens // sharding.context)

    def _part(self, segment: Segment, sharding: Sharding) -> Part:
        """The layer before anything is divided."""
        names = {t for op in segment.operators for t in (*op.inputs, *op.outputs)}
        names |= set(segment.passing)
        entering = (*segment.inputs, *segment.passing)
        places = sorted({self.makers[t] for t in entering if t in self.makers})
        operators = segment.operators
        if sharding.folded:
            operators = tuple(undivided(op) if among_experts(op) else op for op in operators)
        return Part(
            operators=operators,
            tensors={t: self.graph.tensors[t] for t in names},
            tokens={t: self.tokens[t] for t in names if t in self.tokens} if sharding.divides_tokens else {},
            experts={t for t in names if t in self.experts},
            constants={t for t in names if t in self.ctx.parameters},
            makers=tuple(self.graph.operators[i] for i in places),
        )
