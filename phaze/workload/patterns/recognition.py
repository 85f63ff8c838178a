"""All patterns in turn, each on the graph that the one before has left."""

from __future__ import annotations

from phaze.workload.operators.operator_graph import OperatorGraph
from phaze.workload.patterns.attention_patterns import (
    find_attention,
    find_repeated_heads,
    find_rotations,
    find_scales,
)
from phaze.workload.patterns.expert_patterns import find_experts
from phaze.workload.patterns.graph_editor import GraphEditor
from phaze.workload.patterns.product_patterns import find_gates, find_joint_projections
from phaze.workload.patterns.row_patterns import find_activations, find_norms
from phaze.workload.patterns.token_rows import find_token_rows, find_tokens
from phaze.workload.sharding.found_roles import with_roles
from phaze.workload.workload import Attention


def recognised(graph: OperatorGraph, attention: Attention = Attention.FLASH) -> OperatorGraph:
    """The same computation in the operators that a family would build it of, with their roles in tensor parallelism.

    Attention that is written out is one kernel unless it is to be unfused; a kernel in the program stays one.

    Parameters of products that become one are one, named after all of them (`q.weight+k.weight+v.weight`).
    """
    for find in (
        find_token_rows,
        find_tokens,
        find_activations,
        find_norms,
        find_rotations,
        *((find_attention,) if attention is Attention.FLASH else ()),
        find_scales,
        find_repeated_heads,
        find_joint_projections,
        find_gates,
        find_experts,
    ):
        editor = GraphEditor(graph)
        find(editor)
        graph = editor.graph()
    return with_roles(graph)
