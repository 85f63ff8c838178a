"""Views as nodes: a graph says of them only which shapes they have, so the plainest way between those is written."""

from __future__ import annotations

from itertools import pairwise
from math import prod

from phaze.report.exports.onnx.onnx_draft import Draft, NotInOnnx, Shape
from phaze.workload.operators.operator_graph import Operator


def write_view(d: Draft, op: Operator) -> None:
    """Reshape, Transpose, Split, Concat, Slice or Expand, whatever leads from the inputs to the outputs."""
    if not op.inputs:
        d.begun += op.outputs
    elif len(op.outputs) > 1:
        _split(d, op, _joined(d, op))
    elif len(op.inputs) > 1:
        _concat(d, op)
    else:
        _move(d, op.inputs[0], op.outputs[0])


def _move(d: Draft, x: str, out: str) -> None:
    before, after = d.shape(x), d.shape(out)
    if before == after and d.batch_axes(x) == d.batch_axes(out):
        d.node("Identity", [x], out)
    elif not d.batch_axes(x) and d.batch_axes(out):
        _every_sample(d, x, out)
    elif prod(before) == prod(after):
        order = _order(before, after)
        if order is None:
            d.reshape(x, d.target(out), out)
        else:
            d.node("Transpose", [x], out, perm=order)
    elif prod(after) < prod(before):
        _cut(d, x, out)
    else:
        _spread(d, x, out)


def _order(before: Shape, after: Shape) -> list[int] | None:
    """The only way in which axes, all of different sizes but for those of one, change places."""
    if len(before) != len(after) or before == after or sorted(before) != sorted(after):
        return None
    if len(set(before)) < len(before):
        return None
    return [before.index(size) for size in after]


def _every_sample(d: Draft, x: str, out: str) -> None:
    """What is the same for all samples, once for each."""
    if d.batch_axes(out) != [0] or prod(d.shape(x)) != prod(d.shape(out)[1:]) * d.shape(out)[0]:
        raise NotInOnnx("a view that brings the batch into another axis than the first")
    one = d.reshape(x, d.shape(out), f"{out}/one")
    ones = d.whole_numbers(f"{out}/ones", [1] * (len(d.shape(out)) - 1))
    d.node("Concat", [d.batch_size(), ones], f"{out}/sizes", axis=0)
    d.node("Expand", [one, f"{out}/sizes"], out)


def _cut(d: Draft, x: str, out: str) -> None:
    """The first elements, along the axes that become shorter, or of each sample as a row."""
    before, after = d.shape(x), d.shape(out)
    axes = [i for i, (a, b) in enumerate(zip(before, after, strict=False)) if a != b]
    alike = len(before) == len(after) and all(before[i] > after[i] for i in axes)
    if alike and not set(axes) & set(d.batch_axes(x)):
        _slice(d, x, out, axes, [after[i] for i in axes])
        return
    rows, _ = d.rows(x, f"{out}/rows")
    _slice(d, rows, f"{out}/cut", [1], [prod(after)])
    d.reshape(f"{out}/cut", d.target(out), out)


def _slice(d: Draft, x: str, out: str, axes: list[int], ends: list[int]) -> None:
    starts = d.whole_numbers(f"{out}/starts", [0] * len(axes))
    given = [x, starts, d.whole_numbers(f"{out}/ends", ends), d.whole_numbers(f"{out}/axes", axes)]
    d.node("Slice", given, out)


def _spread(d: Draft, x: str, out: str) -> None:
    """Copies along axes of one, or zeros behind the last elements."""
    before, after = d.shape(x), d.shape(out)
    batch = d.batch_axes(x)
    if len(before) == len(after) and all(a in (b, 1) for a, b in zip(before, after, strict=True)):
        sizes = [1 if i in batch else size for i, size in enumerate(after)]
        d.node("Expand", [x, d.whole_numbers(f"{out}/sizes", sizes)], out)
    elif len(before) == len(after) and all(a <= b for a, b in zip(before, after, strict=True)):
        pads = [0] * len(before) + [b - a for a, b in zip(before, after, strict=True)]
        d.node("Pad", [x, d.whole_numbers(f"{out}/pads", pads)], out)
    else:
        rows, size = d.rows(x, f"{out}/rows")
        times, rest = divmod(prod(after), size)
        many = d.node("Tile", [rows, d.whole_numbers(f"{out}/times", [1, times])], f"{out}/copies")
        if rest:
            behind = d.whole_numbers(f"{out}/pads", [0, 0, 0, rest])
            many = d.node("Pad", [many, behind], f"{out}/padded")
        d.reshape(many, d.target(out), out)


def _concat(d: Draft, op: Operator) -> None:
    """Several tensors as one, side by side along the axis that adds up, or all of a sample in a row."""
    out = op.outputs[0]
    parts = [_of_samples(d, t, out, i) for i, t in enumerate(op.inputs)]
    axis = _axis([s for _, s in parts], d.shape(out))
    if axis is not None:
        d.node("Concat", [name for name, _ in parts], out, axis=axis)
        return
    rows = [d.reshape(name, [-1, prod(shape)], f"{out}/row {i}") for i, (name, shape) in enumerate(parts)]
    d.node("Concat", rows, f"{out}/row", axis=1)
    size, wanted = sum(prod(shape) for _, shape in parts), prod(d.shape(out))
    whole = f"{out}/row"
    if wanted < size:
        _slice(d, whole, f"{out}/cut", [1], [wanted])
        whole = f"{out}/cut"
    elif wanted > size:
        pads = d.whole_numbers(f"{out}/pads", [0, 0, 0, wanted - size])
        whole = d.node("Pad", [whole, pads], f"{out}/padded")
    d.reshape(whole, d.target(out), out)


def _of_samples(d: Draft, tensor: str, out: str, number: int) -> tuple[str, Shape]:
    """An input of a concatenation, repeated for every sample where the result has samples and it has none."""
    shape = d.shape(tensor)
    real = tensor if out in d.places else d.as_real(tensor, f"{out}/{number}/real")
    if d.batch_axes(tensor) or not d.batch_axes(out):
        return real, shape
    rank = len(d.shape(out))
    wide = (1,) * (rank - len(shape)) + shape
    if wide[0] != 1 or len(wide) != rank:
        wide = (1, *shape)
    name = d.reshape(real, wide, f"{out}/{number}")
    ones = d.whole_numbers(f"{out}/{number}/ones", [1] * (len(wide) - 1))
    d.node("Concat", [d.batch_size(), ones], f"{out}/{number}/sizes", axis=0)
    return d.node("Expand", [name, f"{out}/{number}/sizes"], f"{out}/{number}/samples"), wide


def _axis(shapes: list[Shape], whole: Shape) -> int | None:
    """The axis along which tensors make up a whole, all others being alike."""
    for axis in range(len(whole)):
        alike = all(
            len(s) == len(whole) and (*s[:axis], *s[axis + 1 :]) == (*whole[:axis], *whole[axis + 1 :])
            for s in shapes
        )
        if alike and sum(s[axis] for s in shapes) == whole[axis]:
            return axis
    return None


def _joined(d: Draft, op: Operator) -> tuple[str, Shape]:
    """What is cut: the input, or several side by side."""
    if len(op.inputs) == 1:
        return op.inputs[0], d.shape(op.inputs[0])
    name = f"{op.outputs[0]}/whole"
    rows = [d.rows(t, f"{name}/{i}") for i, t in enumerate(op.inputs)]
    return d.node("Concat", [row for row, _ in rows], name, axis=1), (1, sum(size for _, size in rows))


def _split(d: Draft, op: Operator, whole: tuple[str, Shape]) -> None:
    """Pieces side by side, of each sample in a row where no axis adds up; what is left over is cut off."""
    x, before = whole
    shapes = [d.shape(t) for t in op.outputs]
    axis = _axis(shapes, before)
    if axis is not None:
        sizes = d.whole_numbers(f"{op.outputs[0]}/sizes", [s[axis] for s in shapes])
        d.node("Split", [x, sizes], op.outputs, axis=axis)
        return
    rows = d.reshape(x, [-1, prod(before)], f"{op.outputs[0]}/row")
    ends = [0]
    for shape in shapes:
        ends.append(ends[-1] + prod(shape))
    for out, (start, end) in zip(op.outputs, pairwise(ends), strict=True):
        if end > prod(before):
            raise NotInOnnx("pieces that overlap")
        given = [
            d.whole_numbers(f"{out}/{word}", [n]) for word, n in (("start", start), ("end", end), ("axis", 1))
        ]
        d.node("Slice", [rows, *given], f"{out}/piece")
        d.reshape(f"{out}/piece", d.target(out), out)
