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
        *(
            "Attention",
            "MultiHeadAttention",
            "GroupQueryAttention",
            "RotaryEmbedding",
            "EmbedLayerNormalization",
        ),
    }
)
# Operators whose second operand is a weight that all samples share.
WEIGHTED = frozenset({"ConvTranspose", "LSTM", "GRU", "RNN"})
# Operators that mix or join elements along attribute `axis`, with its default.
ALONG_AXIS = {"Softmax": -1, "LogSoftmax": -1, "Hardmax": -1, "Concat": 0, "Split": 0, "LpNormalization": -1}
# Operators that mix all axes from `axis` on.
FROM_AXIS = {"LayerNormalization": -1, "RMSNormalization": -1}


def batch_axis(at_file: Shape, at_probe: Shape) -> int | None:
    """The axis whose size differs, None if there is none. Raises ValueError if more than one differs."""
    if at_file == at_probe:
        return None
    if len(at_file) != len(at_probe):
        raise ValueError("the rank depends on the batch")
    grown = [axis for axis, (a, b) in enumerate(zip(at_file, at_probe, strict=True)) if a != b]
    if len(grown) > 1:
        raise ValueError("more than one dimension depends on the batch")
    return grown[0]


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
    inputs: tuple[Shape, Shape],
    at_file: Shape,
    natural: Shape | None,
    *,
    file_batch: int,
    rewrite: bool,
    before_batch: int = 1,
) -> tuple[Shape, int] | None:
    """Result of a reshape at the probe batch, None if it does not keep the batch.

    The result is a shape and how many rows of its batch axis run slower than the batch: 1 where the axis
    is (batch, ...), 17 where 17 positions were merged with the batch into (17 x batch). `before_batch` is
    that number for the operand. `inputs` are the operand's shapes at the file's batch and at the probe,
    `at_file` the result at the file's batch, `natural` what the target as written gives at the probe.
    With `rewrite` the target is a constant; where it spells the file's batch, the probe's is meant.
    """
    before, grown = inputs
    axis = batch_axis(before, grown)
    if axis is None:
        return None if natural is None else (natural, 1)
    outer = math.prod(before[:axis]) * before_batch
    factor = grown[axis] // before[axis]
    if rewrite:
        inner = (before[axis] // (file_batch * before_batch), *before[axis + 1 :])
        place = _rewritten(inner, outer, (axis, at_file), file_batch, merge=natural is None)
        if place is not None:
            scaled = (*at_file[:place], at_file[place] * factor, *at_file[place + 1 :])
            return scaled, outer // math.prod(at_file[:place])
    if natural is None or len(natural) != len(at_file):
        return None
    places = [i for i, (a, b) in enumerate(zip(at_file, natural, strict=True)) if a != b]
    if len(places) != 1 or not _holds(at_file, places[0], outer, file_batch):
        return None
    sample = math.prod(before) // (outer * file_batch)
    flat = math.prod(at_file[places[0] + 1 :]) == 1 and sample > 1  # samples run into each other
    return None if flat else (natural, outer // math.prod(at_file[: places[0]]))


def _holds(shape: Shape, place: int, outer: int, batch: int) -> bool:
    """Whether a batch that runs `outer` elements below the top lies within one axis of a shape."""
    above = math.prod(shape[:place])
    return outer % above == 0 and shape[place] % (outer // above * batch) == 0


def _rewritten(inner: Shape, outer: int, target: tuple[int, Shape], batch: int, *, merge: bool) -> int | None:
    """Axis of a constant target that stands for the batch: its own, or one merged with other axes."""
    axis, at_file = target
    for own in sorted(range(len(at_file)), key=lambda i: i != axis):
        if at_file[own] == batch and math.prod(at_file[:own]) == outer:
            return own
    if not merge:
        return None
    # (positions, batch, heads x width) to (positions, batch x heads, width), as in torch's attention.
    if axis > 0 and math.prod(at_file[:axis]) == outer and math.prod(at_file[axis + 1 :]) > 1:
        return axis if at_file[axis] % batch == 0 else None
    place: int = next((i for i in range(len(at_file)) if math.prod(at_file[: i + 1]) >= outer * batch), 0)
    tail = math.prod(at_file[place + 1 :])
    whole = any(tail == math.prod(inner[i:]) for i in range(len(inner)))
    return place if whole and _holds(at_file, place, outer, batch) else None


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
    if kind in WEIGHTED and axes[1:2] not in ([], [None]):
        return "its weight depends on the batch"
    if kind in {"LSTM", "GRU", "RNN"} and axes[0] not in {1 - int(str(attributes.get("layout", 0))), None}:
        return "its batch is its time"
    coerced = opset < 13 and kind in {"Softmax", "LogSoftmax", "Hardmax"}  # all axes from `axis`, default 1
    default = 1 if coerced else ALONG_AXIS.get(kind, FROM_AXIS.get(kind))
    if default is None:
        return None
    axis = int(str(attributes.get("axis", default)))
    axis += rank if axis < 0 else 0
    mixed = batch >= axis if coerced or kind in FROM_AXIS else batch == axis
    return "it works along the batch" if mixed else None
