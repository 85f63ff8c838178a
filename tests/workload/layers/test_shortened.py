"""Models cut into layers by a few of their blocks, against the same models cut as a whole."""

from __future__ import annotations

import pytest

from phaze.workload.families.model_family import Extent
from phaze.workload.graph_workload import GraphWorkload
from phaze.workload.layers.layer_reuse import Repeats, repeats_of
from phaze.workload.parallel_degrees import Sharding
from phaze.workload.workload import Attention, Mode
from phaze.workload.workload_library import builtin_names, builtin_spec
from phaze.workload.workload_loader import FamilyModel, load_workload

SHORT = [name for name in builtin_names() if repeats_of(builtin_spec(name).dimensions)]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.soak] if name == "gnmt8" else []) for name in SHORT]
)
def test_few_blocks_stand_for_all(name):
    spec = builtin_spec(name)
    tokens = spec.sequence_length and min(
        spec.sequence_length, 64
    )  # of which recurrent layers have one after the other
    spec = spec.model_copy(update={"sequence_length": tokens})
    extent = Extent(1, tokens or 1)
    whole = GraphWorkload(
        FamilyModel(spec.name, spec, extent, Attention.FLASH), Mode.TRAINING, precision=spec.precision
    )
    assert load_workload(name, sequence_length=tokens).chain(1, 1) == whole.chain(1, 1)


def test_most_families_of_blocks_are_short():
    assert len(SHORT) > 40


def test_sharded_layers_are_the_same():
    spec = builtin_spec("gpt3")
    whole = GraphWorkload(FamilyModel("gpt3", spec, Extent(1, 2048), Attention.FLASH), Mode.TRAINING)
    for sharding in (Sharding(8, sequence=True), Sharding(2, context=2)):
        assert load_workload("gpt3").chain(2, sharding) == whole.chain(2, sharding)


def test_blocks_are_numbered_on():
    index, names = (
        (0, 1, 2, 1, 2, 1, 2, 3),
        (
            "embedding",
            *(f"block{i}.{half}" for i in range(3) for half in ("attention", "mlp")),
            "head",
        ),
    )
    found = Repeats(3, 5).extended(index, names)
    assert found is not None
    assert found[0] == (0, *(1, 2) * 5, 3)
    assert found[1][7:] == ("block3.attention", "block3.mlp", "block4.attention", "block4.mlp", "head")


def test_names_without_blocks_tell_nothing():
    assert Repeats(3, 5).extended((0, 1, 2), ("a", "b", "c")) is None
