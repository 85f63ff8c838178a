"""One rule per operator kind: its forward work, what it keeps for backward, its backward operators.

Conventions that every front end follows. The first tensor dimension of an activation is the batch.
Names are dotted paths (`block3.mlp.up`); attributes are keyword arguments of `GraphBuilder.add`.

| kind        | inputs                        | attributes |
|-------------|-------------------------------|------------|
| MATMUL      | a (..., m, k), b (k, n) or (..., k, n) | `transpose_a`, `transpose_b` (bool, default False): the last two dimensions as stored are swapped. No bias input |
| CONV        | x (N, C, *space), weight (C_out, C / groups, *kernel) | `groups` (int, 1), `kernel`, `strides`, `dilations` (tuple per spatial axis), `pads` (begin..., end...). Output (N, C_out, *space_out). No bias input |
| ATTENTION   | q (b, s_q, heads d), k and v (b, s_kv, kv_heads d) | `heads`, `kv_heads`, `head_size` (int), `causal` (bool), `dropout` (bool, default False). Output (b, s_q, heads d) |
| SOFTMAX     | x                             | `axis` (int, -1) |
| NORM        | x, then parameters (scale, shift, statistics) | `function`: "layer", "rms", "batch", "instance", "group" or "lrn"; `size` (int) for lrn |
| ELEMENTWISE | one or more, broadcast to the output | `function`: a key of `cycles.FUNCTIONS`; constant scalars are not inputs |
| POOL        | x (N, C, *space)              | `function`: "max" or "average"; `kernel` (tuple; a global pool has the whole feature map), `strides`, `pads` |
| REDUCE      | x                             | `function`: "sum", "mean", "max", "min", "prod", "argmax" |
| EMBEDDING   | ids, table (rows, width)      | none |
| LOSS        | logits (..., classes), labels | none; appended by the workload, not by front ends |
| VIEW        | any (parameters too)          | none. Reshape, transpose, slice: one output; split: several outputs; concat: several inputs |
| ALL_REDUCE  | x                             | `role`: "reduce" (sum forward, identity backward) or "copy" (identity forward, sum backward); inserted by sharding |

A bias of a product or convolution is a following ELEMENTWISE "add" with the parameter as second
input; fusion makes it an epilogue. A multiplication by a constant is "scale". Dropout is ELEMENTWISE
"dropout" and disappears in a forward-only workload. A batch normalisation's running statistics are
parameters of the NORM (they get no gradient: attribute `statistics`, int, how many trailing inputs).

Sharding: attribute `shard` (a `sharding.Shard` value: "none", "column", "row", "heads", "vocab"),
`shard_axis` (int, -1: the output axis that is divided), `shard_parts` (tuple of (units, unit size)
that make up that axis; for a split one per output). Front ends without tensor parallelism omit all.
"""
