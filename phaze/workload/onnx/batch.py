"""The batch axis of every tensor, and reshapes rewritten to keep it.

The shapes of a file are worked out twice, at its own batch and at a multiple of it. The one dimension
that grew is the batch axis; a node where none or more than one grew does not keep the samples apart.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from onnx import NodeProto

Shape = tuple[int, ...]

PROBE = 7  # factor between the two batches; a prime that is rare as a dimension

# Operators whose kernels take the batch from the first axis.
BATCH_FIRST = frozenset(
    {
        *(
            "Conv",
            "MaxPool",
            "AveragePool",
            "GlobalAveragePool",
            "GlobalMaxPool",
            "DepthToSpace",
            "SpaceToDepth",
        ),
        *(
            "BatchNormalization",
            "InstanceNormalization",
            "GroupNormalization",
            "LRN",
            "MeanVarianceNormalization",
        ),
    }
)
# Operators that mix or join elements along attribute `axis`, with its default.
ALONG_AXIS = {"Softmax": -1, "LogSoftmax": -1, "Hardmax": -1, "Concat": 0, "Split": 0, "LpNormalization": -1}
# Operators that mix all axes from `axis` on.
FROM_AXIS = {"LayerNormalization": -1, "RMSNormalization": -1}


def batch_axis(at_file: Shape, at_probe: Shape) -> int | None:
    """The axis whose size differs, None if there is none. Raises ValueError if more than one differs."""
    if len(at_file) != len(at_probe):
        raise ValueError("the rank depends on the batch")
    grown = [axis for axis, (a, b) in enumerate(zip(at_file, at_probe, strict=True)) if a != b]
    if len(grown) > 1:
        raise ValueError("more than one dimension depends on the batch")
    return grown[0] if grown else None


def resolve_reshape(shape: Shape, target: Sequence[int], *, allow_zero: bool) -> Shape | None:
    """Output shape of a Reshape (0 copies a dimension, -1 takes the rest), None if the elements differ."""
    if target.count(-1) > 1 or any(size < -1 for size in target):
        return None
    copied = [
        shape[i] if size == 0 and not allow_zero and i < len(shape) else size for i, size in enumerate(target)
    ]
    fixed = math.prod(size for size in copied if size != -1)
    if -1 in copied and fixed and math.prod(shape) % fixed == 0:
        copied = [math.prod(shape) // fixed if size == -1 else size for size in copied]
    return tuple(copied) if math.prod(copied) == math.prod(shape) else None


def keep_batch(
    inputs: tuple[Shape, Shape], at_file: Shape, natural: Shape | None, *, file_batch: int, rewrite: bool
) -> Shape | None:
    """Shape of a reshape's result at the probe batch, None if the reshape does not keep the batch.

    `inputs` are the operand's shapes at the file's batch and at the probe, `at_file` the result at the
    file's batch, `natural` what the target as written gives at the probe. With `rewrite` the target is a
    constant; where it spells the file's batch in the place of the batch axis, the probe's is meant.
    """
    before, grown = inputs
    axis = batch_axis(before, grown)
    if axis is None:
        return natural
    outer, inner = math.prod(before[:axis]), math.prod(before[axis + 1 :])
    factor = grown[axis] // before[axis]
    for place in dict.fromkeys((axis, 0)) if rewrite else ():
        if place < len(at_file) and at_file[place] == file_batch and math.prod(at_file[:place]) == outer:
            return (*at_file[:place], at_file[place] * factor, *at_file[place + 1 :])
    if natural is None or len(natural) != len(at_file):
        return None
    places = [i for i, (a, b) in enumerate(zip(at_file, natural, strict=True)) if a != b]
    if len(places) != 1 or math.prod(at_file[: places[0]]) != outer:
        return None
    flat = math.prod(at_file[places[0] + 1 :]) == 1 and inner > 1  # samples run into each other
    return None if flat else natural


def batch_fault(
    node: NodeProto, attributes: Mapping[str, object], axes: Sequence[int | None], rank: int, opset: int
) -> str | None:
    """Why a node would mix samples although its shapes do not show it; None if it does not.

    `axes` are the batch axes of its inputs, `rank` that of the first.
    """
    batch = next((axis for axis in axes if axis is not None), None)
    kind = node.op_type
    if batch is None:
        return None
    if kind in BATCH_FIRST and axes[0] not in {0, None}:
        return "its batch is not the first dimension"
    coerced = opset < 13 and kind in {"Softmax", "LogSoftmax", "Hardmax"}  # all axes from `axis`, default 1
    default = 1 if coerced else ALONG_AXIS.get(kind, FROM_AXIS.get(kind))
    if default is None:
        return None
    axis = int(str(attributes.get("axis", default)))
    axis += rank if axis < 0 else 0
    mixed = batch >= axis if coerced or kind in FROM_AXIS else batch == axis
    return "it works along the batch" if mixed else None
