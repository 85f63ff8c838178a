"""Recurrent layers, unrolled over time, and one time step of their cells: what waits for what is exact.

A cell takes what the hoisted input product made for its time step (`fed`, biases included) and the state
before, and returns the state after. Formulas: Hochreiter & Schmidhuber 1997 with forget gates (LSTM),
Cho et al. arXiv 1406.1078 (GRU), Elman 1990 (RNN). The order of the gates costs nothing and is not kept.

The product of the inputs with their weight has no recurrence, so it is made for all time steps at once, as
cuDNN does (Appleyard et al., arXiv 1604.01946); each time step then multiplies the state before. In
training every time step adds its own share to the gradient of the recurrent weight.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from phaze.workload.operators.operator_graph import GraphBuilder, OpKind

State = tuple[str, ...]


class Cell(StrEnum):
    """Kinds of recurrent cells."""

    LSTM = "lstm"
    GRU = "gru"  # the reset gate acts after the recurrent product, as in cuDNN and PyTorch
    GRU_RESET_FIRST = "gru_reset_first"  # it acts before, as published: two products in a row
    RNN = "rnn"


@dataclass(frozen=True, slots=True)
class Weights:
    """Parameters of a layer in one direction, by name.

    `input`: (gates x hidden, width); `recurrent`: (gates x hidden, hidden); `biases`: none, one that is
    added to the input product, or also one of the recurrent product, (gates x hidden) each.
    """

    input: str
    recurrent: str
    biases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Functions:
    """Element-wise functions of a cell, keys of `elementwise_cycles.FUNCTIONS`."""

    gate: str = "sigmoid"
    candidate: str = "tanh"
    output: str = "tanh"


@dataclass(frozen=True, slots=True)
class TimeStep:
    """Builds the operators of one time step; tensors have shape (batch, multiple of hidden)."""

    builder: GraphBuilder
    name: str
    fed: str
    weights: Weights
    functions: Functions

    @property
    def hidden(self) -> int:
        """Width of the state."""
        return self.builder.shape(self.weights.recurrent)[-1]

    def product(self, part: str, state: str, weight: str) -> str:
        """State times a transposed recurrent weight."""
        shape = (self.builder.shape(state)[0], self.builder.shape(weight)[0])
        return self.builder.add(
            f"{self.name}.{part}", OpKind.MATMUL, (state, weight), shape, transpose_b=True
        )

    def apply(self, part: str, function: str, *operands: str) -> str:
        """One element-wise operator, as wide as its first operand."""
        shape = self.builder.shape(operands[0])
        return self.builder.add(f"{self.name}.{part}", OpKind.ELEMENTWISE, operands, shape, function=function)

    def pieces(self, tensor: str, **units: int) -> tuple[str, ...]:
        """A tensor cut along its width into pieces of so many times the state's width."""
        batch = self.builder.shape(tensor)[0]
        named = {f"{tensor}.{key}": (batch, count * self.hidden) for key, count in units.items()}
        return self.builder.split_into(f"{tensor}.pieces", tensor, named)


def lstm(step: TimeStep, state: State) -> State:
    """c' = f c + i g; h' = o tanh(c'), with i, f, o, g from one recurrent product."""
    hidden, cell = state
    total = step.apply("sum", "add", step.product("recurrent", hidden, step.weights.recurrent), step.fed)
    gates, candidate = step.pieces(total, gates=3, candidate=1)
    gates = step.apply("gates", step.functions.gate, gates)
    candidate = step.apply("candidate", step.functions.candidate, candidate)
    i, f, o = step.pieces(gates, input=1, forget=1, output=1)
    new, old = step.apply("new", "mul", i, candidate), step.apply("old", "mul", f, cell)
    cell = step.apply("cell", "add", new, old)
    return step.apply("hidden", "mul", o, step.apply("squashed", step.functions.output, cell)), cell


def gru(step: TimeStep, state: State) -> State:
    """h' = n + z (h - n), n = tanh(fed + r (R h)): one recurrent product."""
    (hidden,) = state
    recurrent = step.product("recurrent", hidden, step.weights.recurrent)
    for bias in step.weights.biases[1:]:
        recurrent = step.apply("biased", "add", recurrent, bias)
    fed_gates, fed_candidate = step.pieces(step.fed, gates=2, candidate=1)
    own_gates, own_candidate = step.pieces(recurrent, gates=2, candidate=1)
    update, reset = _gru_gates(step, own_gates, fed_gates)
    kept = step.apply("reset", "mul", reset, own_candidate)
    return _gru_state(step, hidden, kept, fed_candidate, update)


def gru_reset_first(step: TimeStep, state: State) -> State:
    """h' = n + z (h - n), n = tanh(fed + R (r h)): the candidate's product waits for the reset gate."""
    (hidden,) = state
    for_gates, for_candidate = (f"{step.weights.recurrent}.{part}" for part in ("gates", "candidate"))
    fed_gates, fed_candidate = step.pieces(step.fed, gates=2, candidate=1)
    update, reset = _gru_gates(step, step.product("recurrent", hidden, for_gates), fed_gates)
    kept = step.product("candidate_product", step.apply("reset", "mul", reset, hidden), for_candidate)
    return _gru_state(step, hidden, kept, fed_candidate, update)


def _gru_gates(step: TimeStep, own: str, fed: str) -> tuple[str, ...]:
    gates = step.apply("gates", step.functions.gate, step.apply("sum", "add", own, fed))
    return step.pieces(gates, update=1, reset=1)


def _gru_state(step: TimeStep, hidden: str, kept: str, fed: str, update: str) -> State:
    candidate = step.apply("candidate", step.functions.candidate, step.apply("inner", "add", kept, fed))
    change = step.apply("change", "mul", step.apply("difference", "sub", hidden, candidate), update)
    return (step.apply("hidden", "add", change, candidate),)


def rnn(step: TimeStep, state: State) -> State:
    """h' = tanh(fed + R h)."""
    total = step.apply("sum", "add", step.product("recurrent", state[0], step.weights.recurrent), step.fed)
    return (step.apply("hidden", step.functions.candidate, total),)


CELLS: Mapping[Cell, Callable[[TimeStep, State], State]] = {
    Cell.LSTM: lstm,
    Cell.GRU: gru,
    Cell.GRU_RESET_FIRST: gru_reset_first,
    Cell.RNN: rnn,
}


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
    """Inputs of each time step: one product and its biases for all steps, then cut."""
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
