"""Recurrent layers, unrolled over time: what waits for what is exact.

The product of the inputs with their weight has no recurrence, so it is made for all time steps at once, as
cuDNN does (Appleyard et al., arXiv 1604.01946); each time step then multiplies the state before. In
training every time step adds its own share to the gradient of the recurrent weight.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from phaze.workload.ir import GraphBuilder, OpKind
from phaze.workload.recurrent_cells import CELLS, Cell, Functions, State, TimeStep, Weights

GATES: Mapping[Cell, int] = {Cell.LSTM: 4, Cell.GRU: 3, Cell.GRU_RESET_FIRST: 3, Cell.RNN: 1}
MOST_UNROLLED = 30_000
"""Operators of a graph with recurrent layers: chains of that many take a minute to cut and compare."""

_STEP_OPERATORS: Mapping[Cell, int] = {Cell.LSTM: 11, Cell.GRU: 11, Cell.GRU_RESET_FIRST: 11, Cell.RNN: 3}
STATES: Mapping[Cell, int] = {Cell.LSTM: 2, Cell.GRU: 1, Cell.GRU_RESET_FIRST: 1, Cell.RNN: 1}


@dataclass(frozen=True, slots=True)
class Unrolled:
    """Results of a layer: `sequence` (batch, steps, hidden) and the last `state`, (batch, hidden) each.

    The state is the hidden state, and for an LSTM the cell after it; of both directions, joined to
    (batch, 2 hidden), in a bidirectional layer.
    """

    sequence: str
    state: State


def recurrent_weights(
    builder: GraphBuilder, name: str, cell: Cell, sizes: tuple[int, int], biases: int = 1
) -> Weights:
    """Declare the parameters of a layer in one direction; `sizes` are (input width, hidden width)."""
    width, hidden = sizes
    rows = GATES[cell] * hidden
    return Weights(
        builder.parameter(f"{name}.input_weight", (rows, width)),
        builder.parameter(f"{name}.recurrent_weight", (rows, hidden)),
        tuple(builder.parameter(f"{name}.bias{i}", (rows,)) for i in range(biases)),
    )


def recurrent_layer(
    builder: GraphBuilder,
    name: str,
    cell: Cell,
    x: str,
    weights: Weights,
    *,
    state: State = (),
    reverse: bool = False,
    functions: Functions | None = None,
) -> Unrolled:
    """Append one layer in one direction over `x` (batch, steps, width).

    `state`: tensors (batch, hidden) to start from; without them it starts from zeros, and the first time
    step multiplies those too, as frameworks do. `reverse`: from the last time step to the first. Raises InputError
    for so many time steps that the graph would have more than `MOST_UNROLLED` operators.
    """
    batch, steps, _ = builder.shape(x)
    builder.reserve(steps * _STEP_OPERATORS[cell], f"{steps} time steps of {name}", MOST_UNROLLED)
    hidden = builder.shape(weights.recurrent)[-1]
    fed = _fed_steps(builder, name, cell, x, weights)
    if cell is Cell.GRU_RESET_FIRST:
        parts = {"gates": 2 * hidden, "candidate": hidden}
        named = {f"{weights.recurrent}.{part}": (rows, hidden) for part, rows in parts.items()}
        builder.split_into(f"{weights.recurrent}.pieces", weights.recurrent, named)
    state = state or tuple(
        builder.add(f"{name}.start{i}", OpKind.VIEW, (), (batch, hidden)) for i in range(STATES[cell])
    )
    made: dict[int, str] = {}
    for t in reversed(range(steps)) if reverse else range(steps):
        step = TimeStep(builder, f"{name}.step{t}", fed[t], weights, functions or Functions())
        state = CELLS[cell](step, state)
        made[t] = state[0]
    sequence = builder.add(name, OpKind.VIEW, (made[t] for t in range(steps)), (batch, steps, hidden))
    return Unrolled(sequence, state)


def _fed_steps(builder: GraphBuilder, name: str, cell: Cell, x: str, weights: Weights) -> tuple[str, ...]:
    """What each time step gets from the inputs: one product and its biases for all steps, then cut."""
    batch, steps, _ = builder.shape(x)
    shape = (batch, steps, builder.shape(weights.input)[0])
    fed = builder.add(f"{name}.input", OpKind.MATMUL, (x, weights.input), shape, transpose_b=True)
    # Inside a GRU's reset gate stands the bias of the recurrent product; elsewhere both biases meet here.
    for bias in weights.biases[: 1 if cell is Cell.GRU else 2]:
        fed = builder.add(f"{name}.input+{bias}", OpKind.ELEMENTWISE, (fed, bias), shape, function="add")
    return builder.split_into(
        f"{name}.steps", fed, {f"{name}.step{t}.fed": (batch, shape[-1]) for t in range(steps)}
    )


def bidirectional_layer(
    builder: GraphBuilder, name: str, cell: Cell, x: str, weights: Sequence[Weights], *, state: State = ()
) -> Unrolled:
    """Append a layer in both directions over `x`; results are joined along the width.

    `weights`, `state`: as of `recurrent_layer`, those of the forward direction first.
    """
    half = len(state) // 2
    ways = [
        recurrent_layer(builder, f"{name}.forward", cell, x, weights[0], state=state[:half]),
        recurrent_layer(builder, f"{name}.backward", cell, x, weights[1], state=state[half:], reverse=True),
    ]
    states = zip(ways[0].state, ways[1].state, strict=True)
    return Unrolled(
        _joined(builder, name, [way.sequence for way in ways]),
        tuple(_joined(builder, f"{name}.last{i}", pair) for i, pair in enumerate(states)),
    )


def _joined(builder: GraphBuilder, name: str, halves: Sequence[str]) -> str:
    *rest, width = builder.shape(halves[0])
    return builder.add(name, OpKind.VIEW, halves, (*rest, 2 * width))
