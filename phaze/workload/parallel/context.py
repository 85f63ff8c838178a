"""Context parallelism: the tokens of a sample are divided everywhere, keys and values exchanged.

Attention gathers the keys and values of all devices before it starts (as Llama 3 was trained, arXiv
2407.21783, section 3.3.2); backward gathers them again, for only one's own are kept, and scatters the sums
of their gradients. A ring that passes them on (Ring Attention, arXiv 2310.01889) moves as many bytes. Of
2 c chunks of tokens device i holds chunks i and 2 c - 1 - i (`dealt`), so that a causal mask leaves all the same number
of scores: so do Llama 3, Megatron-Core and Transformer Engine (get_batch_on_this_cp_rank), PyTorch and torchtitan
(enable_load_balance, pytorch pull request 132442), and MaxText (context_parallel_load_balance, pull requests 1133 and
1445). Where no kernel is assumed to skip masked blocks, each device works on its tokens times all.
The gradients of parameters are summed over the group with those of the data-parallel replicas.
"""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

from phaze.workload.degrees import Group
from phaze.workload.ir import Operator, OpKind
from phaze.workload.parallel.part import Part
from phaze.workload.parallel.rewriter import Rewriter


class ContextParallel(Rewriter):
    """Divides every tensor that holds tokens, the model's inputs among them."""

    def __init__(self, part: Part, group: Group) -> None:
        """Divide the tensors; the operators follow."""
        super().__init__(part, group)
        for tensor in part.tokens.keys() & part.tensors.keys():
            self.divide_tokens(tensor)

    def add(self, op: Operator) -> None:
        """Append an operator on a device's own tokens; one that ends their trail gets them all."""
        if any(self.has_own_tokens(t) for t in op.outputs):
            inputs = self.own_tokens(op)
        else:
            inputs = tuple(self.gathered(t) for t in op.inputs)
        self.operators.append(self._dealt(replace(op, inputs=inputs)))

    def _dealt(self, op: Operator) -> Operator:
        """Attention knows that its queries are those of two chunks, not the last of all."""
        if op.kind is not OpKind.ATTENTION or not self.has_own_tokens(op.inputs[0]):
            return op
        return replace(op, attributes=MappingProxyType({**op.attributes, "dealt": self.group.size}))
