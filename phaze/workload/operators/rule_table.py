"""One rule per operator kind: its forward work, what it keeps for backward, its backward operators.

Conventions that every front end follows. The first dimension of an activation is the batch. Names are
dotted paths (`block3.mlp.up`); attributes are keyword arguments of `GraphBuilder.add`.

- MATMUL: a (..., m, k), b (k, n) or (..., k, n). `transpose_a`, `transpose_b` (bool, False): the last
  two dimensions as stored are swapped. `exact` (bool, False): never in fewer bits than its tensors have;
  `recipe`: a `low_precision.Recipe`, set by the workload, not by front ends. No bias input.
- CONV: x (N, C, *space), weight (C_out, C / groups, *kernel), output (N, C_out, *space_out). `groups`
  (int, 1); `kernel`, `strides`, `dilations` (tuple per spatial axis), `pads` (begins, then ends). No
  bias input.
- ATTENTION: q (b, s_q, heads d), k (b, s_kv, kv_heads d), v (b, s_kv, kv_heads d_v), output (b, s_q,
  heads d_v); `heads`, `kv_heads`, `head_size` d (int), `value_size` d_v (int, d), `causal`, `dropout`
  (bool, False). `window` (int, all): keys that a query sees. `score_bias` (bool, False): positions are
  added to the scores; where they are learned, their table is a further input. `sinks` (bool, False): the last input
  is a score of every head beside those of its keys. `page` (int, 0)
  where k and v are a paged cache. `dealt` (int, 1): devices among which queries are dealt so that a
  causal mask leaves each as many scores; set by context parallelism, not by front ends.
  `chosen` (bool, False): the keys of the window are those that a further input names, anywhere.
- INDEX: queries (b, s_q, heads d), keys (b, s_kv, d), weights of the heads (b, s_q, heads); output (b, s_q, chosen):
  places of the keys with the largest sums of scores. `heads` (int). `cached` (bool, False): keys are a cache.
- SOFTMAX: x. `axis` (int, -1). `eager` (bool, False), as of NORM and of a dropout: gradients by several kernels,
  as a framework without fused ones launches them.
- NORM: x, then parameters (scale, shift, statistics). `function`: "layer", "rms", "batch", "instance",
  "group" or "lrn"; `size` (int) of an lrn window; `statistics` (int, 0): how many trailing inputs are
  running statistics, which get no gradient.
- ELEMENTWISE: one or more inputs, broadcast to the output. `function`: a key of `elementwise_cycles.FUNCTIONS`;
  constant scalars are not inputs ("scale" multiplies by one). "dropout" vanishes outside training.
- POOL: x (N, C, *space). `function`: "max" or "average"; `kernel` (tuple; a global pool has the whole
  feature map), `strides`, `pads`.
- REDUCE: x. `function`: "sum", "mean", "max", "min", "prod", "argmax"; "top" keeps as many of the
  largest as the output's last axis is long.
- EMBEDDING: ids, table (rows, width).
- LOSS: logits (..., classes), labels; appended by the workload, not by front ends.
- VIEW: anything, parameters too. Reshape, transpose, slice: one output; split: several outputs;
  concatenation: several inputs; zeros to start from: no inputs. `tokens` (int): the output axis along
  which tokens stand, where they are made of something else (patches of an image).
- DISPATCH: x (batch, tokens, hidden), routes (batch, tokens, chosen): the tokens sorted by expert,
  (experts, rows, hidden), rows = ceil(batch tokens chosen / experts): loads are balanced. Nothing else
  uses `experts` (int): the operators between a DISPATCH and its COMBINE carry it and are divided by the
  expert-parallel degree along their first axis, beside their tensor-parallel role. `groups` (int, 1): of experts, of
  which a token is sent to `groups_per_token` (int, 1) alone.
- COMBINE: y (experts, rows, hidden), routes; output (batch, tokens, hidden): the weighted sum of what the
  chosen experts made of each token. Groups as its DISPATCH.
  With tensor parallelism inside experts, the partial sums of their row-parallel products are added up after
  the COMBINE, which has `Shard.ROW`, and their gradients before the DISPATCH, which has `Shard.COLUMN`.
- COLLECTIVE: x. `role`: a `collective_rules.Role`, `group`: a `parallel_degrees.Parallel`; `copies` (int, 1): rows of
  the same token; `groups`, `groups_per_token` as of its DISPATCH; `uneven` (float, 1): rows of the device that
  exchanges most of them over the mean; `recipe`: that of the product it serves. Inserted by sharding,
  never by front ends.
- CACHE: x (b, tokens, width), appended to what the key-value cache holds of earlier tokens; output (b, context +
  tokens, width): the whole cache. `page` (int, 0: contiguous): tokens of a page. Forward-only graphs.

- RECURRENCE: queries and keys (b, s, key_heads k), values (b, s, heads v), then decays and the like (b, s, heads)
  each, and parameters; output (b, s, heads v). `heads`, `key_heads`, `key_size` k, `value_size` v (int). `chunk` (int,
  0: one token at a time): tokens of a chunk. `delta` (bool, False): the delta rule. `kept` (bool, False): the state
  stays in memory; `older` (bool, False): it has been there before.

Any operator may be `detached` (bool, False): no gradient passes it, and its parameters get none there (`detach`, a
block under `no_grad`). A parameter that is frozen gets no gradient anywhere.

A bias of a product or convolution is a following ELEMENTWISE "add" with the parameter as second input;
fusion makes it an epilogue.

Sharding: `shard` (a `sharding.Shard`), `shard_axis` (int, -1: the output axis that is divided),
`shard_parts` (tuple of (units, unit size) that make up that axis; of a split, one per output). Front
ends without tensor parallelism omit all three.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from phaze.workload.operators import collective_rules as collective
from phaze.workload.operators import elementwise_rules as elementwise
from phaze.workload.operators import index_rules as index
from phaze.workload.operators import kv_cache as cache
from phaze.workload.operators import matrix_rules as matrix
from phaze.workload.operators import state_rules as state
from phaze.workload.operators import vector_rules as experts
from phaze.workload.operators import vector_rules as structure
from phaze.workload.operators import vector_rules as vector
from phaze.workload.operators.operator_graph import Operator, OpKind
from phaze.workload.operators.operator_steps import OperatorContext, Step


@dataclass(frozen=True, slots=True)
class Rule:
    """Rule by which an operator kind turns into work.

    `forward(op, context)`: its step. `saved(op, context)`: bytes of each tensor (or mask, named
    `operator:what`) kept for backward. `backward(op, context, gradients)`: its gradient steps, given the
    gradient tensor's name of each output; a step writes `gradient_of(op, input)`.
    """

    forward: Callable[[Operator, OperatorContext], Step]
    saved: Callable[[Operator, OperatorContext], dict[str, float]]
    backward: Callable[[Operator, OperatorContext, Mapping[str, str]], tuple[Step, ...]]


_PRODUCT = Rule(matrix.product_forward, matrix.product_saved, matrix.product_backward)

RULES: Mapping[OpKind, Rule] = {
    OpKind.MATMUL: _PRODUCT,
    OpKind.CONV: _PRODUCT,
    OpKind.ATTENTION: Rule(matrix.attention_forward, matrix.attention_saved, matrix.attention_backward),
    OpKind.SOFTMAX: Rule(vector.softmax_forward, vector.output_saved, vector.softmax_backward),
    OpKind.NORM: Rule(vector.norm_forward, vector.first_input_saved, vector.norm_backward),
    OpKind.ELEMENTWISE: Rule(
        elementwise.elementwise_forward, elementwise.elementwise_saved, elementwise.elementwise_backward
    ),
    OpKind.POOL: Rule(vector.pool_forward, vector.pool_saved, vector.pool_backward),
    OpKind.REDUCE: Rule(vector.reduce_forward, vector.reduce_saved, vector.reduce_backward),
    OpKind.EMBEDDING: Rule(vector.embedding_forward, vector.first_input_saved, vector.embedding_backward),
    OpKind.LOSS: Rule(vector.loss_forward, vector.loss_saved, vector.loss_backward),
    OpKind.DISPATCH: Rule(experts.dispatch_forward, experts.dispatch_saved, experts.dispatch_backward),
    OpKind.COMBINE: Rule(experts.combine_forward, experts.combine_saved, experts.combine_backward),
    OpKind.VIEW: Rule(structure.view_forward, structure.nothing_saved, structure.view_backward),
    OpKind.COLLECTIVE: Rule(
        collective.collective_forward, structure.nothing_saved, collective.collective_backward
    ),
    OpKind.INDEX: Rule(index.index_forward, index.index_saved, index.index_backward),
    OpKind.RECURRENCE: Rule(state.recurrence_forward, state.recurrence_saved, state.recurrence_backward),
    OpKind.CACHE: Rule(cache.cache_forward, structure.nothing_saved, cache.cache_backward),
}
