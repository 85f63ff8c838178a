"""One time step of recurrent cells: the recurrent product, and the element-wise work around it.

A cell takes what the hoisted input product made for its time step (`fed`, biases included) and the state
before, and returns the state after. Formulas: Hochreiter & Schmidhuber 1997 with forget gates (LSTM),
Cho et al. arXiv 1406.1078 (GRU), Elman 1990 (RNN). The order of the gates costs nothing and is not kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from phaze.workload.ir import GraphBuilder, OpKind

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
    """Element-wise functions of a cell, keys of `cycles.FUNCTIONS`."""

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
