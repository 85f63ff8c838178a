"""Expert parallelism: each device keeps some of the experts and works on the tokens of all for them.

The group lies among data-parallel devices, each with a microbatch of its own (GShard, arXiv 2006.16668):
an all-to-all after a DISPATCH brings a device the rows of all microbatches for its experts, another before
the COMBINE takes them back. Loads are balanced, as the DISPATCH says, or those of the devices with most to do.
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil, prod

from phaze.tolerances import LAST_DIGITS
from phaze.workload.expert_load import Busiest, ExpertLoad
from phaze.workload.operators.collective_rules import Role
from phaze.workload.operators.operator_graph import Operator, OperatorGraph, OpKind
from phaze.workload.operators.operator_steps import integer
from phaze.workload.parallel_degrees import Group
from phaze.workload.sharding.layer_rewriter import Part, Rewriter
from phaze.workload.sharding.shard_roles import experts_reached, in_expert

GROUPS = ("groups", "groups_per_token")


def expert_tensors(graph: OperatorGraph) -> frozenset[str]:
    """Activations (experts, rows, ...): from a DISPATCH up to its COMBINE."""
    inside = (op for op in graph.operators if op.kind is OpKind.DISPATCH or in_expert(op))
    return frozenset(t for op in inside for t in op.outputs)


def has_idle_experts(graph: OperatorGraph) -> bool:
    """Whether a microbatch leaves some experts without a token."""
    inside = (op for op in graph.operators if in_expert(op))
    return any(graph.tensors[op.outputs[0]].shape[0] < integer(op, "experts", 1) for op in inside)


class ExpertParallel(Rewriter):
    """Divides experts and their parameters, with as many times the rows of each."""

    def __init__(self, part: Part, group: Group, load: ExpertLoad | None = None) -> None:
        """Divide the tensors; the operators follow."""
        super().__init__(part, group)
        self._grouped = load is None or load.redundant is None  # dealt by load, experts leave their groups
        self._before = {t: part.tensors[t].shape for t in part.experts & part.tensors.keys()}
        self._uneven = 1.0  # rows of the device with most of them over the mean
        stored = {t for op in part.operators if in_expert(op) for t in op.inputs} & part.constants
        routed = self._routed()
        if load is None or routed is None:
            self._divide_evenly(stored)
        else:
            self._divide(stored, load.busiest(*routed, group.size), routed)

    def _divide_evenly(self, stored: set[str]) -> None:
        part, size, reached = self.part, self.group.size, self._reached()
        for tensor, (experts, rows, *_) in self._before.items():
            part.resize(tensor, 0, -(-max(experts, reached) // size))
            part.resize(tensor, 1, -(-rows * size * experts // max(experts, reached)))
        for tensor in stored:
            part.resize(tensor, 0, -(-part.size(tensor, 0) // size))

    def _divide(self, stored: set[str], most: Busiest, routed: tuple[int, int, int]) -> None:
        """Leave a device as many places, experts with rows, and rows of each as those with most of them have."""
        _, chosen, tokens = routed
        self._uneven = most.rows * self.group.size / (tokens * chosen)
        for tensor in self._before:
            self.part.resize(tensor, 0, most.reached)
            self.part.resize(tensor, 1, ceil(most.rows / most.reached * (1 - LAST_DIGITS)))
        for tensor in stored:
            self.part.resize(tensor, 0, most.places)

    def add(self, op: Operator) -> None:
        """Append an operator, with the exchange of rows after a DISPATCH and before a COMBINE."""
        if self.group.size == 1:
            self.operators.append(op)
        elif op.kind is OpKind.DISPATCH:
            sorted_rows = self._undivided(op.outputs[0], f"{op.outputs[0]}.sorted")
            self.operators.append(replace(op, outputs=(sorted_rows,)))
            self._exchange(op, sorted_rows, op.outputs[0])
        elif op.kind is OpKind.COMBINE:
            returned = self._undivided(op.inputs[0], f"{op.inputs[0]}.returned")
            self._exchange(op, op.inputs[0], returned)
            self.operators.append(replace(op, inputs=(returned, *op.inputs[1:])))
        else:
            self.operators.append(op)

    def _exchange(self, op: Operator, source: str, target: str) -> None:
        """Append the exchange of rows, which waits for the device that takes in, or sends back, most of them."""
        more: dict[str, object] = {"uneven": self._uneven} if self._uneven > 1 else {}
        if self._grouped:
            more |= {key: op.attributes[key] for key in GROUPS if key in op.attributes}
        name, copies = f"{op.name}.exchange", self._copies(op)
        self.collective(name, Role.EXCHANGE, source, target, copies=copies, **more)

    def _reached(self) -> int:
        """Experts that the tokens of all devices reach."""
        known = self._routed()
        return 1 if known is None else experts_reached(*known)

    def _routed(self) -> tuple[int, int, int] | None:
        """Experts, those that a token is sent to, and tokens of all devices; None where nothing is dispatched."""
        for op in (op for op in self.part.operators if op.kind is OpKind.DISPATCH):
            experts = next((integer(o, "experts", 1) for o in self.part.operators if in_expert(o)), 1)
            tokens = prod(self.part.tensors[op.inputs[0]].shape[:-1]) * self.group.size
            return experts, self._copies(op), tokens
        return None

    def _copies(self, op: Operator) -> int:
        """Experts that a token is sent to."""
        return self.part.size(op.inputs[1], -1)

    def _undivided(self, tensor: str, name: str) -> str:
        """Declare the tensor as it was before the division; returns its name."""
        self.part.twin(name, tensor)
        self.part.tensors[name] = replace(self.part.tensors[name], shape=self._before[tensor])
        return name
