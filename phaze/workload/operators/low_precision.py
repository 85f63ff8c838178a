"""Linear layers in 8 and 4 bits: which products run so, and what scaling their operands moves.

A recipe (Micikevicius et al., arXiv 2209.05433; MXFP8: arXiv 2506.08027; NVFP4: arXiv 2509.25149; all as in
Transformer Engine) runs the three products of every linear layer in a narrow format: forward, and the gradients
of input and weights. Attention, embeddings, the router of a mixture of experts and the scores of the vocabulary
stay as they are, as do all tensors between operators. In inference the weights of linear layers are kept so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType

from phaze.errors import InputError
from phaze.workload.operators.operator_graph import Operator, OperatorGraph, OpKind
from phaze.workload.operators.operator_steps import OperatorContext, flag, word
from phaze.workload.work import Format, Gemm

SCALED = ":scaled"
"""After the name of a tensor: its copy in few bits, where the tensor itself is kept, too."""

_COPIES = 2  # scaled along the rows for one product and along the columns for another


class Recipe(StrEnum):
    """Recipe by which operands of linear layers are scaled to a narrow format.

    Those that end in `-weights` keep the weights of a model that is served so and widen them on their way into the
    arrays; those that end in `-experts` are for the experts of a mixture, all else stays in the workload's precision.
    They, and int8, are for inference alone.
    """

    FP8 = "fp8"  # one scale per tensor
    FP8_EARLY = "fp8-early"  # the same, before a tensor-parallel group gathers its parts
    FP8_ROWS = "fp8-rows"  # one per row, after gathers in 16 bits
    FP8_BLOCKS = "fp8-blocks"  # one per 128 values of an activation, and per 128 x 128 of a weight
    MXFP8 = "mxfp8"  # one per 32 values
    NVFP4 = "nvfp4"  # one per 16 values, and one per tensor
    INT8 = "int8"  # one per row of an activation and column of a weight
    FP8_WEIGHTS = "fp8-weights"  # one per column
    INT8_WEIGHTS = "int8-weights"
    INT4_WEIGHTS = "int4-weights"  # one, and a zero, per 128 values
    MXFP4_WEIGHTS = "mxfp4-weights"  # one per 32 values
    NVFP4_WEIGHTS = (
        "nvfp4-weights"  # one per 16 values: how engines run nvfp4 on chips without products of 4 bits
    )
    MXFP4_EXPERTS = "mxfp4-experts"  # the same for experts alone: gpt-oss as it is published
    MXFP4_MXFP8_EXPERTS = "mxfp4-mxfp8-experts"  # activations in mxfp8, products in 8 bits
    NVFP4_EXPERTS = "nvfp4-experts"  # weights and activations: DeepSeek-R1-NVFP4 as it is published

    @property
    def operands(self) -> Format | None:
        """Format in the arithmetic; None: the workload's own."""
        return _SCALINGS[self].operands

    @property
    def weight_bytes(self) -> float:
        """Bytes of a weight with its share of the scales."""
        return _SCALINGS[self].weight_bytes

    @property
    def element_bytes(self) -> float | None:
        """Bytes of a value of an activation with its share of the scales; None: as the workload has it."""
        return _SCALINGS[self].element_bytes

    @property
    def experts_alone(self) -> bool:
        """Whether products of experts alone run so."""
        return self in (Recipe.MXFP4_EXPERTS, Recipe.MXFP4_MXFP8_EXPERTS, Recipe.NVFP4_EXPERTS)

    @property
    def trains(self) -> bool:
        """Whether gradients are products in few bits, too; otherwise it is for inference."""
        return _SCALINGS[self].trains

    @property
    def gathered(self) -> bool:
        """Whether a tensor-parallel group gathers values that are scaled already."""
        return self.element_bytes is not None and self is not Recipe.FP8_ROWS

    @property
    def keeps_scaled(self) -> bool:
        """Whether inputs wait for backward as they were scaled, and scaled weights for the next microbatch.

        So does Transformer Engine (`pytorch/module/linear.py`: saved_inputmat, weight_fp8, weight_t_fp8). TorchAO, of
        which the other recipes are, keeps the input of 16 bits and scales both anew (`float8_linear.py`: input_hp,
        weight_hp_t): memory is that of bf16 (76.8 and 77.0 GiB, TorchTitan, arXiv 2410.06511).
        """
        return self not in (Recipe.FP8_EARLY, Recipe.FP8_ROWS)

    @property
    def readings(self) -> int:
        """Number of times that a tensor is read to scale it.

        Once more for a scale of the whole tensor, which has to be known before, and for a rotation of the columns.
        """
        return _SCALINGS[self].readings


@dataclass(frozen=True, slots=True)
class _Scaling:
    """Figures of a recipe, as its properties tell them."""

    operands: Format | None
    weight_bytes: float
    element_bytes: float | None
    readings: int
    trains: bool = True


_SCALE = 2  # bytes of a scale in 16 bits
_PER_TENSOR = _Scaling(Format.FP8, 1.0, 1.0, 2)
_SCALINGS: Mapping[Recipe, _Scaling] = MappingProxyType(
    {
        Recipe.FP8: _PER_TENSOR,
        Recipe.FP8_EARLY: _PER_TENSOR,
        Recipe.FP8_ROWS: _PER_TENSOR,
        # DeepSeek-V3, arXiv 2412.19437, section 3.3: scales in fp32
        Recipe.FP8_BLOCKS: _Scaling(Format.FP8, 1 + 4 / 128**2, 1 + 4 / 128, 1),
        Recipe.MXFP8: _Scaling(Format.FP8, 1 + 1 / 32, 1 + 1 / 32, 1),
        Recipe.NVFP4: _Scaling(Format.FP4, 0.5 + 1 / 16, 0.5 + 1 / 16, 3),
        # LLM.int8(), arXiv 2208.07339, and SmoothQuant, arXiv 2211.10438: a scale per row is found and used at once
        Recipe.INT8: _Scaling(Format.INT8, 1.0, 1.0, 1, trains=False),
        Recipe.FP8_WEIGHTS: _Scaling(None, 1.0, None, 0, trains=False),
        Recipe.INT8_WEIGHTS: _Scaling(None, 1.0, None, 0, trains=False),
        # GPTQ, arXiv 2210.17323, and AWQ, arXiv 2306.00978, in groups of 128: a scale in fp16 and a zero of 4 bits
        Recipe.INT4_WEIGHTS: _Scaling(None, 0.5 + (_SCALE + 0.5) / 128, None, 0, trains=False),
        # gpt-oss, arXiv 2508.10925: 4.25 bits per parameter
        Recipe.MXFP4_WEIGHTS: _Scaling(None, 0.5 + 1 / 32, None, 0, trains=False),
        Recipe.NVFP4_WEIGHTS: _Scaling(None, 0.5 + 1 / 16, None, 0, trains=False),
        Recipe.MXFP4_EXPERTS: _Scaling(None, 0.5 + 1 / 32, None, 0, trains=False),
        Recipe.MXFP4_MXFP8_EXPERTS: _Scaling(Format.FP8, 0.5 + 1 / 32, 1 + 1 / 32, 1, trains=False),
        Recipe.NVFP4_EXPERTS: _Scaling(Format.FP4, 0.5 + 1 / 16, 0.5 + 1 / 16, 3, trains=False),
    }
)


NO_RECIPE = "none"
"""Linear layers in the precision of the workload, where a word is asked for."""


def recipe_word(recipe: Recipe | None) -> str:
    """A recipe, or that there is none, as tables and options have it."""
    return NO_RECIPE if recipe is None else recipe.value


def recipe_of_word(text: str) -> Recipe | None:
    """The recipe behind `recipe_word`. Raises ValueError for any other word."""
    return None if text == NO_RECIPE else Recipe(text)


def with_recipe(graph: OperatorGraph, recipe: Recipe | None) -> OperatorGraph:
    """The graph with its linear layers marked for their rules; each input is scaled for its first reader.

    Raises InputError for a recipe of experts where there are none.
    """
    if recipe is None:
        return graph
    if recipe.experts_alone and not any("experts" in op.attributes for op in graph.operators):
        raise InputError(f"{graph.name}: recipe {recipe} is for experts, and the model has none")
    operators, scaled = [], set[str]()
    for op in graph.operators:
        if not _is_linear(op, graph) or (recipe.experts_alone and "experts" not in op.attributes):
            operators.append(op)
            continue
        marks = {"recipe": recipe.value, "scaled": op.inputs[0] in scaled}
        operators.append(replace(op, attributes=MappingProxyType({**op.attributes, **marks})))
        scaled.add(op.inputs[0])
    return replace(graph, operators=tuple(operators))


def recipe_of(op: Operator) -> Recipe | None:
    """The recipe that a product is marked with."""
    found = word(op, "recipe")
    return Recipe(found) if found else None


def narrowed(gemm: Gemm, recipe: Recipe, weight: int | None = None) -> Gemm:
    """The product with operands of the recipe; its result stays as it is.

    `weight`: which operand is one, 0 or 1; in training both kinds are as wide.
    """
    sizes = gemm.groups * gemm.m * gemm.k, gemm.groups * gemm.k * gemm.n
    each = [recipe.weight_bytes if side == weight else recipe.element_bytes for side in (0, 1)]
    left, right = (
        own if width is None else width * size
        for own, width, size in zip((gemm.a_bytes, gemm.b_bytes), each, sizes, strict=True)
    )
    return replace(gemm, a_bytes=left, b_bytes=right, operands=recipe.operands or gemm.operands)


def scaling_bytes(op: Operator, tensor: str, ctx: OperatorContext) -> float:
    """HBM bytes of scaling an activation, or the gradient of one, for all products that read it; 0 without a recipe.

    Weights are scaled once per iteration, which is not counted. Where nothing is trained, one copy is enough.
    """
    recipe = recipe_of(op)
    if recipe is None or tensor in ctx.parameters or (tensor == op.inputs[0] and flag(op, "scaled")):
        return 0.0
    if recipe.element_bytes is None:
        return 0.0
    copies = _COPIES if ctx.training else 1
    moved = recipe.readings * ctx.bytes(tensor) + copies * recipe.element_bytes * ctx.elements(tensor)
    gathered = flag(op, "gathers_input" if tensor == op.inputs[0] else "scatters_result")
    return moved / (ctx.sharding.tensor if gathered and recipe is Recipe.FP8_EARLY else 1)


def kept_input(op: Operator, sizes: Mapping[str, float], ctx: OperatorContext) -> dict[str, float]:
    """Bytes that a product keeps of its inputs, `sizes` bytes each without a recipe."""
    recipe = recipe_of(op)
    if recipe is None or not recipe.keeps_scaled or recipe.element_bytes is None:
        return dict(sizes)
    return {t: recipe.element_bytes * ctx.elements(t) for t in sizes}


def scaled_weight_bytes(operators: Iterable[Operator], ctx: OperatorContext) -> float:
    """Bytes of weights in few bits beyond those of the weights themselves.

    In training copies, along rows and along columns, which stay from the first microbatch to the last. In inference
    there is nothing else, so that it is below zero: what they take less.
    """
    beside: dict[str, float] = {}
    for op in operators:
        recipe = recipe_of(op)
        if recipe is None or (ctx.training and not recipe.keeps_scaled):
            continue
        for t in (t for t in op.inputs[:2] if ctx.tensors[t].is_parameter):
            scaled = recipe.weight_bytes * ctx.elements(t)
            beside[t] = _COPIES * scaled if ctx.training else scaled - ctx.bytes(t)
    return sum(beside.values())


def _is_linear(op: Operator, graph: OperatorGraph) -> bool:
    """A product with a parameter, other than those that need all their bits."""
    if op.kind is not OpKind.MATMUL or flag(op, "exact") or op.outputs[0] in graph.outputs:
        return False
    return any(graph.tensors[t].is_parameter for t in op.inputs[:2])
