"""Two towers that meet in one product: images and texts (CLIP, arXiv 2103.00020).

Each tower is a whole graph, grafted into a larger one with something travelling beside it.
"""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from phaze.workload.families.model_family import Count, Extent, FamilyDimensions, together
from phaze.workload.families.transformer_blocks import Transformer
from phaze.workload.families.transformer_dimensions import TransformerDimensions
from phaze.workload.families.transformer_operators import embed
from phaze.workload.families.vision_transformer import VisionTransformer
from phaze.workload.layers.layer_cutting import cut, whole_context
from phaze.workload.operators.operator_graph import GraphBuilder, Operator, OperatorGraph, OpKind
from phaze.workload.sharding.shard_roles import Shard
from phaze.workload.workload import Attention


def graft(g: GraphBuilder, part: OperatorGraph, entry: str, beside: str) -> tuple[str, str]:
    """Append all operators of `part`, which has one input and one output, behind the tensor `entry`.

    Wherever the part alone could be cut into layers, its activation and `beside` are one tensor for a
    moment, so that the whole can be cut there too. Names are put under the part's own. Returns the names
    of the part's output and of what travelled beside it.
    """
    grafting = _Grafting(g, part, {part.inputs[0]: entry})
    layers = cut(part, whole_context(part, training=True))
    for number, layer in enumerate(layers, 1):
        for op in layer.operators:
            grafting.append(op)
        if layer is not layers[-1] and len(layer.outputs) == 1:
            made = layer.outputs[0]
            name = f"{part.name}.beside{number}"
            grafting.names[made], beside = together(g, name, grafting.names[made], beside)
    return grafting.names[part.outputs[0]], beside


class _Grafting:
    """A graph that takes in another; `names` leads from the other's tensors to its own."""

    def __init__(self, g: GraphBuilder, part: OperatorGraph, names: dict[str, str]) -> None:
        self.g = g
        self.part = part
        self.names = names
        for tensor in part.parameters():
            self.names[tensor.name] = g.parameter(
                self._under(tensor.name), tensor.shape, tensor.element_bytes
            )

    def append(self, op: Operator) -> None:
        """The same operator over the tensors here."""
        name, inputs = self._under(op.name), tuple(self.names[t] for t in op.inputs)
        tensors = [self.part.tensors[t] for t in op.outputs]
        self.names |= {t.name: self._under(t.name) for t in tensors}
        if len(tensors) > 1:
            self.g.split_into(
                name, inputs[0], {self._under(t.name): t.shape for t in tensors}, **op.attributes
            )
        else:
            self.g.add(name, op.kind, inputs, tensors[0].shape, tensors[0].element_bytes, **op.attributes)

    def _under(self, name: str) -> str:
        return f"{self.part.name}.{name}"


class TextTower(TransformerDimensions):
    """A stack of blocks over a text, of which one token becomes the text's vector."""

    features: Annotated[Count, Field(description="width of the vector")]
    causal: Annotated[bool, Field(description="a token sees only those before it")] = True

    def graph(self, name: str, extent: Extent, attention: Attention) -> OperatorGraph:
        """Forward graph from token ids to vectors (batch, features)."""
        t = Transformer(GraphBuilder(name), self, extent, attention)
        x = embed(t, self, t.batch, t.sequence)
        for number in range(self.layers):
            x = t.block(number, x, causal=self.causal)
        x = t.operator("head.last", OpKind.VIEW, (x,), (t.batch, self.hidden))
        x = t.norm("head.norm", x)
        return t.g.build((t.linear("head.vector", x, self.features, Shard.NONE, bias=False),))


class TwoTower(FamilyDimensions):
    """Every image of a microbatch is held against every text of it; the loss goes both ways.

    Vectors of other devices take no part in the product. `classes` of the image tower is the width of its
    vector. The towers run one after the other, and what the other one needs or made travels beside.
    """

    image: Annotated[VisionTransformer, Field(description="tower of images")]
    text: Annotated[TextTower, Field(description="tower of texts")]

    @model_validator(mode="after")
    def _meet(self) -> Self:
        """Both vectors are equally wide."""
        if self.image.classes != self.text.features:
            msg = (
                f"image.classes ({self.image.classes}) and text.features ({self.text.features}) must be equal"
            )
            raise ValueError(msg)
        return self

    @property
    def heads_to_divide(self) -> None:
        """None: towers are repeated on every device."""
        return

    @property
    def depth(self) -> int:
        """Blocks of both towers."""
        return self.image.layers + self.text.layers

    @property
    def longest_sequence(self) -> int:
        """Longest text."""
        return self.text.max_positions

    def graph(self, name: str, extent: Extent, attention: Attention) -> OperatorGraph:
        """Forward graph from images and token ids to similarities (images, texts) and (texts, images)."""
        g = GraphBuilder(name)
        towers = [
            tower.graph(part, extent, attention)
            for part, tower in (("image", self.image), ("text", self.text))
        ]
        entry, ids = (
            g.input(
                f"{tower.name}.{source}", tower.tensors[source].shape, tower.tensors[source].element_bytes
            )
            for tower in towers
            for source in tower.inputs
        )
        image, ids = graft(g, towers[0], entry, ids)
        text, image = graft(g, towers[1], ids, image)
        return g.build(_similarities(g, image, text))


def _similarities(g: GraphBuilder, image: str, text: str) -> tuple[str, str]:
    """Products of all pairs of vectors of length one, times a trained factor; and the same transposed."""
    size = (g.shape(image)[0], g.shape(text)[0])
    unit = [
        g.add(f"similarity.{side}", OpKind.NORM, (x,), g.shape(x), function="rms")
        for side, x in (("image", image), ("text", text))
    ]
    products = g.add("similarity.products", OpKind.MATMUL, unit, size, transpose_b=True)
    scale = g.parameter("similarity.scale", (1,))
    scaled = g.add("similarity.scaled", OpKind.ELEMENTWISE, (products, scale), size, function="mul")
    turned = g.add("similarity.turned", OpKind.VIEW, (scaled,), size[::-1])
    return scaled, turned
