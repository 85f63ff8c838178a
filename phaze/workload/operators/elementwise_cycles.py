"""Vector-core cost of element-wise functions: fp32-ALU cycles per element, forward and backward.

Base costs are PHAZE's and WHAM's published estimator tables: add, subtract, multiply, compare and
multiply-add 1; divide 10; exponential 10 (the per-element share of softmax); logarithm, power,
square root and erf 15; tanh 27; sine or cosine 13; sigmoid 12 / 22; swish 14 / 15; dropout 2 / 1.
Where those tables are too kind (gelu as a ReLU, softmax without its maximum pass) the cost here is
the sum over the arithmetic of the formula, written beside it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

EXP = 10.0
DIV = 10.0
ROOT = 15.0
LOG = 15.0
ERF = 15.0


class Keep(StrEnum):
    """Tensor that an element-wise function keeps for its backward pass."""

    NOTHING = "nothing"
    INPUTS = "inputs"
    OUTPUT = "output"
    MASK = "mask"  # one byte per element


@dataclass(frozen=True, slots=True)
class FunctionCost:
    """Cycles per output element forward, per gradient element of each operand backward.

    `backward` 0 means the gradient is passed on as it is, without an operator.
    """

    forward: float
    backward: float
    keep: Keep = Keep.NOTHING


_BINARY = FunctionCost(1, 1, Keep.INPUTS)

FUNCTIONS: dict[str, FunctionCost] = {
    "add": FunctionCost(1, 0),
    "sub": FunctionCost(1, 1),
    "mul": _BINARY,
    "div": FunctionCost(DIV, DIV + 1, Keep.INPUTS),
    "max": _BINARY,
    "min": _BINARY,
    "pow": FunctionCost(15, 16, Keep.INPUTS),
    "neg": FunctionCost(1, 1),
    "abs": FunctionCost(1, 1, Keep.INPUTS),
    "scale": FunctionCost(1, 1),  # times a constant
    "copy": FunctionCost(1, 1),
    "mask": FunctionCost(1, 0),  # add a constant that all heads share
    "cast": FunctionCost(1, 1),
    "where": FunctionCost(1, 1, Keep.MASK),
    "clip": FunctionCost(2, 1, Keep.MASK),
    "relu": FunctionCost(1, 1, Keep.OUTPUT),
    "relu2": FunctionCost(
        2, 2, Keep.INPUTS
    ),  # comparison, square; twice the input where it is positive, times dy
    "leaky_relu": FunctionCost(2, 2, Keep.OUTPUT),
    # the slope is trained: its gradient is x dy where x is negative
    "prelu": FunctionCost(2, 2, Keep.INPUTS),
    "elu": FunctionCost(EXP + 2, 2, Keep.OUTPUT),
    # x Phi(x) = x/2 (1 + erf(x/sqrt 2)): scale, erf, multiply-add, multiply; backward also the density
    # exp(-x^2/2): erf + exp + square, scale, multiply-add, multiply-add, times dy.
    "gelu": FunctionCost(ERF + 3, ERF + EXP + 5, Keep.INPUTS),
    # tanh form: cubic argument (3), tanh 27, multiply-add, multiply; backward: tanh again and 8 products.
    "gelu_tanh": FunctionCost(27 + 5, 27 + 8, Keep.INPUTS),
    "silu": FunctionCost(14, 15, Keep.INPUTS),
    # activation(gate) * up from one tensor twice as wide as the result; per result element.
    "swiglu": FunctionCost(14 + 1, (15 + 2) / 2, Keep.INPUTS),
    "geglu": FunctionCost(ERF + 3 + 1, (ERF + EXP + 5 + 2) / 2, Keep.INPUTS),
    "geglu_tanh": FunctionCost(27 + 5 + 1, (27 + 8 + 2) / 2, Keep.INPUTS),
    "reglu": FunctionCost(1 + 1, (1 + 2) / 2, Keep.INPUTS),
    # a causal convolution of four taps for each channel (Mamba): a multiply-add each
    "short_conv": FunctionCost(4, 4, Keep.INPUTS),
    "sigmoid": FunctionCost(12, 22, Keep.OUTPUT),
    "hard_sigmoid": FunctionCost(3, 1, Keep.MASK),
    "hard_swish": FunctionCost(4, 4, Keep.INPUTS),
    "softplus": FunctionCost(EXP + LOG + 1, 12 + 1, Keep.INPUTS),
    "tanh": FunctionCost(27, 2, Keep.OUTPUT),
    "erf": FunctionCost(ERF, ERF, Keep.INPUTS),
    "exp": FunctionCost(EXP, 1, Keep.OUTPUT),
    "log": FunctionCost(LOG, DIV, Keep.INPUTS),
    "sqrt": FunctionCost(ROOT, ROOT + 1, Keep.OUTPUT),
    "sin": FunctionCost(13, 13 + 1, Keep.INPUTS),
    "cos": FunctionCost(13, 13 + 1, Keep.INPUTS),
    # rotation of pairs by a precomputed table of sines and cosines: multiply and multiply-add.
    "rope": FunctionCost(2, 2),
    "dropout": FunctionCost(2, 1, Keep.MASK),
    # a stage of a Fourier transform: a complex product and two complex sums for every two complex elements
    "butterfly": FunctionCost(5, 5),
}
