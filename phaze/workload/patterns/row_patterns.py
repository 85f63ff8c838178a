"""Norms and activations that are written out, operator by operator."""

from __future__ import annotations

from phaze.workload.operators.operator_graph import Operator, OpKind
from phaze.workload.patterns.graph_editor import GraphEditor

_STEP = OpKind.ELEMENTWISE
_CURVES = {"tanh": "gelu_tanh", "erf": "gelu", "sigmoid": "silu"}
_WRITTEN = frozenset({"scale", "mul", "pow", "add", "div", *_CURVES})
_LONGEST = 30  # tensors read in an activation


def find_activations(e: GraphEditor) -> None:
    """x Phi(x) by the error function or a hyperbolic tangent, and x sigmoid(c x): one function each."""
    for function, meaning in _CURVES.items():
        for curve in e.operators(_STEP, function):
            for x in _candidates(e, curve):
                if (end := _end(e, curve, x)) is not None:
                    e.become(end, _STEP, [x], function=meaning)
                    break


def _candidates(e: GraphEditor, curve: Operator) -> list[str]:
    """Tensors that an activation may be of: what its curve is taken of, or one of two terms (or factors) of that."""
    x = e.unscaled(curve.inputs[0])
    cubic = e.maker(x, _STEP, "add", "mul") if curve.attributes["function"] == "tanh" else None
    return [x] if cubic is None else [e.unscaled(t) for t in cubic.inputs]


def _end(e: GraphEditor, curve: Operator, x: str) -> Operator | None:
    """The last operator of an activation of x with that curve."""
    op, numbers = e.reader(curve.outputs[0]), 0
    while op is not None and op.kind is _STEP and op.attributes.get("function") in {"scale", "mul"}:
        after = e.reader(op.outputs[0])
        if len(set(op.inputs)) == 2:
            if not _is_formula(e, op, x):
                return None
            halved = (
                curve.attributes["function"] == "sigmoid" or numbers > 1 or x not in map(e.source, op.inputs)
            )
            return op if halved else after if after and after.attributes.get("function") == "scale" else None
        op, numbers = after, numbers + 1
    return None


def _is_formula(e: GraphEditor, end: Operator, x: str) -> bool:
    """Whether an operator is made of x alone, by element-wise steps with one curve among them."""
    waiting, curves = list(end.inputs), 0
    for _ in range(_LONGEST):
        if not waiting:
            return curves == 1
        tensor = waiting.pop()
        if e.source(tensor) == x:
            continue
        op = e.maker(e.source(tensor), _STEP, *_WRITTEN)
        if op is None or e.elements(tensor) != e.elements(x):
            return False
        curves += op.attributes.get("function") in _CURVES
        waiting += op.inputs
    return False


def find_norms(e: GraphEditor) -> None:
    """RMS norm, x / sqrt(mean(x^2) + c), and layer norm, the same of x - mean(x); scale and shift with them."""
    for mean in e.operators(OpKind.REDUCE, "mean"):
        squares = e.maker(e.source(mean.inputs[0]), _STEP, "mul", "pow")
        if squares is None or len({e.source(t) for t in squares.inputs}) != 1:
            continue
        x = e.source(squares.inputs[0])
        end = _normalised(e, mean, x)
        width = e.shape(mean.inputs[0])[-1]
        if end is None or e.elements(mean.outputs[0]) * width != e.elements(x):
            continue
        whole = _centred(e, x)
        path = mean.name.rpartition(".")[0]
        _with_parameters(e, end, x if whole is None else whole, "rms" if whole is None else "layer", path)


def _normalised(e: GraphEditor, mean: Operator, x: str) -> Operator | None:
    """The product (or division) of x with what became of its mean square."""
    op, rooted = e.reader_through_views(mean.outputs[0]), False
    while op is not None and op.kind is _STEP:
        function = op.attributes.get("function")
        if len(op.inputs) == 1 and function in {"scale", "sqrt", "div", "pow", "clip"}:
            rooted = rooted or function in {"sqrt", "pow"}
            op = e.reader_through_views(op.outputs[0])
            continue
        alike = any(_is_same_or_centred(e, t, x) for t in op.inputs)
        return op if rooted and function in {"mul", "div"} and alike else None
    return None


def _is_same_or_centred(e: GraphEditor, tensor: str, x: str) -> bool:
    """Whether a tensor is x; or both are one tensor without its mean, worked out twice."""
    if e.same(tensor, x):
        return True
    one, other = _centred(e, e.source(tensor)), _centred(e, x)
    return one is not None and one == other


def _centred(e: GraphEditor, x: str) -> str | None:
    """The tensor whose mean x lacks."""
    op = e.maker(x, _STEP, "sub")
    if op is None or len(op.inputs) != 2:
        return None
    mean = e.maker(e.source(op.inputs[1]), OpKind.REDUCE, "mean")
    before = e.source(op.inputs[0])
    return before if mean is not None and e.source(mean.inputs[0]) == before else None


def _with_parameters(e: GraphEditor, end: Operator, x: str, function: str, path: str) -> None:
    """One norm up to its scale and shift, as far as they follow, called by the path of its module."""
    parameters: list[str] = []
    for step in ("mul", "add"):
        after = e.reader_through_views(end.outputs[0])
        if after is None or after.kind is not _STEP or after.attributes.get("function") != step:
            break
        width = e.shape(end.outputs[0])[-1]
        row = next((p for t in after.inputs if (p := _row(e, t, width)) is not None), None)
        if row is None:
            break
        parameters.append(row)
        end = after
    if e.shape(end.outputs[0]) != e.shape(x):
        x = e.view_before(end, e.free(f"{end.name}.rows"), [x], e.shape(end.outputs[0]))
    e.become(e.renamed(end, path), OpKind.NORM, [x, *parameters], function=function)


def _row(e: GraphEditor, tensor: str, width: int) -> str | None:
    """The parameter of one row behind a tensor, perhaps with one added to it."""
    plus_one = e.maker(tensor, _STEP, "scale")
    tensor = e.source(tensor if plus_one is None else plus_one.inputs[0])
    return tensor if e.is_parameter(tensor) and e.elements(tensor) == width else None
