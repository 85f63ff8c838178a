"""Operators that are several of the graph: fused arithmetic, transforms, sums in place, cells, grouped products."""

from __future__ import annotations

from functools import partial
from math import ceil, inf, log2, prod
from types import MappingProxyType

from phaze.workload.operators.operator_graph import OpKind
from phaze.workload.operators.recurrent_layers import Cell, Weights, recurrent_layer
from phaze.workload.torch_export.aten_lowering import Lowering, Rule
from phaze.workload.torch_export.exported_program import Node, Ref, integer, number, tensors_in

_STEP = OpKind.ELEMENTWISE


def fused_multiply(inner: str, low: Lowering, node: Node) -> str:
    """`addcmul`, `addcdiv`: self + value (a b), or a / b."""
    factors = low.operands(t for n in ("tensor1", "tensor2") for t in tensors_in(node.get(n)))
    base = low.maybe(node, "self")
    step = "" if base is None else "product"
    function = inner if len(factors) > 1 else "scale"
    made = low.add(node, _STEP, factors, step=step, function=function) if factors else None
    if base is None or made is None:
        return made or low.add(node, _STEP, [low.first(node)], function="scale")
    return low.add(node, _STEP, [base, made], function="add")


def lerp(low: Lowering, node: Node) -> str:
    """self + weight (end - self)."""
    start, end = low.tensor(node, "self"), low.tensor(node, "end")
    weight = low.maybe(node, "weight")
    apart = low.add(node, _STEP, [end, start], step="difference", function="sub")
    share = [apart] if weight is None else [apart, weight]
    part = low.add(node, _STEP, share, step="share", function="scale" if weight is None else "mul")
    return low.add(node, _STEP, [start, part], function="add")


def weight_norm(low: Lowering, node: Node) -> str:
    """v g / |v|: the length of every row, and each row times its quotient (Salimans and Kingma, arXiv 1602.07868)."""
    v, g = low.tensor(node, "v"), low.tensor(node, "g")
    wide, rows = low.shape(v), low.shape(g)
    terms = low.add(node, _STEP, [v], step="terms", shape=wide, function="mul")
    total = low.add(node, OpKind.REDUCE, [terms], step="sum", shape=rows, function="sum")
    length = low.add(node, _STEP, [total], step="length", shape=rows, function="sqrt")
    ratio = low.add(node, _STEP, [g, length], step="ratio", shape=rows, function="div")
    return low.add(node, _STEP, [v, ratio], function="mul")


def overlapping_sum(low: Lowering, node: Node) -> str:
    """`col2im` (fold): patches are added where they overlap."""
    return low.add(node, OpKind.REDUCE, [low.first(node)], function="sum")


def scattered_sum(low: Lowering, node: Node) -> str:
    """`scatter_add`, `index_add`: one addition for each element that is moved; what is added to costs nothing."""
    source = low.maybe(node, "src") or low.maybe(node, "source") or low.maybe(node, "values")
    base = low.maybe(node, "self")
    if source is None:
        return low.first(node)
    moved = low.add(node, _STEP, [source], step="moved", shape=low.shape(source), function="scale")
    return low.add(node, OpKind.VIEW, [moved] if base is None else [base, moved])


def grid_sample(low: Lowering, node: Node) -> str:
    """Four neighbours (of an image), weighed by their distance from places that may be computed."""
    x, grid, shape = low.tensor(node, "input"), low.maybe(node, "grid"), low.shape_of(node)
    _check_batch_first(low, node, "input")
    kernel = (2,) * (len(shape) - 2)
    step = "" if grid is None else "neighbours"
    made = low.add(node, OpKind.POOL, [x], step=step, shape=shape, function="average", kernel=kernel)
    if grid is None:
        return made
    weights = low.add(node, _STEP, [grid], step="weights", shape=low.shape(grid), function="scale")
    column = (shape[0], 1, *shape[2:])
    one = low.add(node, OpKind.REDUCE, [weights], step="weight", shape=column, function="sum")
    return low.add(node, _STEP, [made, one], function="mul")


def fourier(low: Lowering, node: Node) -> str:
    """A transform of N points in log2 N stages of butterflies, 5 operations per complex element each: 5 N log2 N.

    The count of Cooley and Tukey's radix 2, as benchmarks of transforms have it (Frigo and Johnson, FFTW). A real
    transform has half as many elements. Stages stand in a row, so that fusion makes them one kernel.
    """
    x, dims = low.first(node), node.get("dim", -1)
    before, after = low.shape(x), low.shape_of(node)
    along = [d for d in (dims if isinstance(dims, tuple) else (dims,)) if isinstance(d, int)]
    points = prod(max(before[d], after[d]) for d in along)
    narrow = min(before, after, key=prod)  # complex, of a real tensor's transform
    return _stages(low, node, x, points, narrow)


def _stages(low: Lowering, node: Node, x: str, points: int, shape: tuple[int, ...]) -> str:
    """Stages of butterflies on complex elements of a shape, then the result."""
    for stage in range(max(1, ceil(log2(max(points, 2))))):
        x = low.add(node, _STEP, [x], step=f"stage{stage}", shape=shape, function="butterfly")
    return low.add(node, OpKind.VIEW, [x])


def short_fourier(low: Lowering, node: Node) -> str:
    """`stft`: overlapping frames, times a window, and a transform of each."""
    x, points = low.first(node), int(str(node.get("n_fft")))
    *lead, bins, frames = low.shape_of(node)
    framed = low.add(node, OpKind.VIEW, [x], step="frames", shape=(*lead, frames, points))
    windowed = low.add(node, _STEP, [framed], step="window", shape=(*lead, frames, points), function="scale")
    return _stages(low, node, windowed, points, (*lead, frames, bins))


def cell_step(cell: Cell, low: Lowering, node: Node) -> tuple[str, ...] | str:
    """One step of a recurrent cell, its state given."""
    x = low.tensor(node, "input")
    states = [low.operand(name) for name in tensors_in(node.get("hx"))]
    fed, own = (low.tensor(node, name) for name in ("w_ih", "w_hh"))
    biases = [b for name in ("b_ih", "b_hh") if (b := low.maybe(node, name)) is not None]
    batch, width = low.shape(x)
    one = low.add(node, OpKind.VIEW, [x], step="step", shape=(batch, 1, width))
    state = tuple(s for s in states if s is not None) if all(states) else ()
    made = recurrent_layer(
        low.builder, low.label(node), cell, one, Weights(fed, own, tuple(biases)), state=state
    )
    return made.state if cell is Cell.LSTM else made.state[0]


def grouped_product(low: Lowering, node: Node) -> str:
    """`_grouped_mm` of sorted rows with one matrix per expert, (experts, inner, width): loads are taken as balanced."""
    x, weights = (low.factor(node, name, f"factor{i}") for i, name in enumerate([*node.reads()][:2]))
    shape = low.shape_of(node)
    experts = low.shape(weights)[0]
    rows = ceil(shape[0] / experts)
    stored = low.transposes.get(weights, weights)
    split = low.view(node, x, (experts, rows, low.shape(x)[-1]), "experts")
    wide = (experts, rows, shape[-1])
    flags = {"transpose_b": stored != weights, "experts": experts}
    made = low.add(node, OpKind.MATMUL, [split, stored], step="products", shape=wide, **flags)
    return low.add(node, OpKind.VIEW, [made])


_FEW_ROWS = 25  # up to so many distances are taken one by one (ATen's cdist_impl)


def distances(low: Lowering, node: Node) -> str:
    """`cdist` of (..., P, M) and (..., R, M): |a - b|^2 = |a|^2 + |b|^2 - 2 a b, for all P x R pairs one product.

    As ATen takes it of Euclidean distances of more than 25 rows; of fewer, and for other norms, each difference is
    taken, raised and summed.
    """
    a, b, shape = low.tensor(node, "x1"), low.tensor(node, "x2"), low.shape_of(node)
    power = 2.0 if node.get("p") is None else number(node, "p")
    mode = integer(node, "compute_mode", 0)
    many = max(low.shape(a)[-2], low.shape(b)[-2]) > _FEW_ROWS
    if power != 2.0 or mode == 2 or (mode == 0 and not many):
        return _each_distance(low, node, a, b, power)
    made = low.add(node, OpKind.MATMUL, [a, b], step="product", shape=shape, transpose_b=True)
    for side, tensor in (("left", a), ("right", b)):
        wide = low.shape(tensor)
        column, row = (*wide[:-1], 1), (*wide[:-2], 1, wide[-2])
        squares = low.add(node, _STEP, [tensor], step=f"{side}_squares", shape=wide, function="mul")
        length = low.add(node, OpKind.REDUCE, [squares], step=f"{side}_sum", shape=column, function="sum")
        if side == "right":
            length = low.view(node, length, row, "right_row")
        made = low.add(node, _STEP, [made, length], step=f"add_{side}", shape=shape, function="add")
    return low.add(node, _STEP, [made], function="sqrt")


def _each_distance(low: Lowering, node: Node, a: str, b: str, power: float | None) -> str:
    *lead, rows, columns = low.shape_of(node)
    width = low.shape(a)[-1]
    wide, narrow = (*lead, rows, columns, width), (*lead, rows, columns)
    left = low.view(node, a, (*low.shape(a)[:-1], 1, width), "left")
    right = low.view(node, b, (*low.shape(b)[:-2], 1, *low.shape(b)[-2:]), "right")
    apart = low.add(node, _STEP, [left, right], step="difference", shape=wide, function="sub")
    raised = "mul" if power == 2.0 else "abs" if power in {1.0, inf} else "pow"
    terms = low.add(node, _STEP, [apart], step="terms", shape=wide, function=raised)
    whole = "max" if power == inf else "sum"
    if power in {1.0, inf}:
        return low.add(node, OpKind.REDUCE, [terms], function=whole)
    total = low.add(node, OpKind.REDUCE, [terms], step="sum", shape=narrow, function=whole)
    return low.add(node, _STEP, [total], function="sqrt" if power == 2.0 else "pow")


def _check_batch_first(low: Lowering, node: Node, argument: str) -> None:
    value = node.get(argument)
    if isinstance(value, Ref) and low.extents[value.tensor].batch_axis not in {0, None}:
        raise low.error(node, "does not keep the batch: it is not the first dimension of the input")


COMPOSED: MappingProxyType[str, Rule] = MappingProxyType(
    {
        "addcmul": partial(fused_multiply, "mul"),
        "addcdiv": partial(fused_multiply, "div"),
        "lerp": lerp,
        "_weight_norm": weight_norm,
        "_weight_norm_interface": weight_norm,
        "cdist": distances,
        "col2im": overlapping_sum,
        **dict.fromkeys(("scatter_add", "index_add", "scatter_reduce"), scattered_sum),
        **dict.fromkeys(("grid_sampler", "grid_sampler_2d", "grid_sampler_3d"), grid_sample),
        **dict.fromkeys(("_fft_r2c", "_fft_c2r", "_fft_c2c"), fourier),
        **dict.fromkeys(("fft_fft", "fft_ifft", "fft_rfft", "fft_irfft", "fft_fft2", "fft_ifft2"), fourier),
        **dict.fromkeys(
            ("fft_rfft2", "fft_irfft2", "fft_fftn", "fft_ifftn", "fft_rfftn", "fft_irfftn"), fourier
        ),
        "stft": short_fourier,
        "lstm_cell": partial(cell_step, Cell.LSTM),
        "gru_cell": partial(cell_step, Cell.GRU),
        **dict.fromkeys(("rnn_tanh_cell", "rnn_relu_cell"), partial(cell_step, Cell.RNN)),
        **dict.fromkeys(("_grouped_mm", "grouped_mm_fallback"), grouped_product),
    }
)
"""Rules by the operator's name."""
