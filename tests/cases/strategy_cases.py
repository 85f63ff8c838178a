"""Small models on small clusters whose strategies can all be tried."""

from __future__ import annotations

from functools import cache
from typing import Any

from phaze.hardware.architecture import load_architecture, to_table
from phaze.hardware.cluster_network import Network, load_network, two_tiers
from phaze.parallel.cluster import Cluster
from phaze.parallel.framework import Framework, load_framework
from phaze.parallel.training.iteration_estimate import Estimator
from phaze.workload.fusion_rules import NO_FUSION
from phaze.workload.operators.low_precision import Recipe
from phaze.workload.workload import Attention, Mode, Workload
from phaze.workload.workload_loader import LoadOptions, workload_of

LAUNCHES = {"dispatch_s": 2e-4, "dispatch_backward_s": 3e-4, "microbatch_s": 1e-3}
HIDES = {"hides_gathers": True, "hides_reduction": True, "interference": 0.2}
SOFTWARE = {
    "ideal": {},
    "hides": HIDES,
    "launches": LAUNCHES,
    "launches beside": LAUNCHES | HIDES,
    "waits": {"waits": True, "hides_transfers": True, "gather_rank_s": 1e-6} | LAUNCHES,
    "blocking": {"blocking": True, "reduces_every_microbatch": False} | LAUNCHES,
}
"""What software may do, all together in the end."""


@cache
def small_gpt(
    layers: int = 4,
    attention: Attention = Attention.UNFUSED,
    experts: int = 0,
    *,
    tied: bool = False,
    recipe: Recipe | None = None,
) -> Workload:
    """A GPT of a few blocks."""
    dimensions: dict[str, Any] = {
        "layers": layers,
        "hidden": 512,
        "heads": 8,
        "ffn_hidden": 2048,
        "vocabulary": 30000,
        "max_positions": 256,
        "activation": "gelu_tanh",
        "norm": "layer",
        "norm_place": "pre",
        "bias": True,
        "positions": "learned",
        "tied_embeddings": tied,
    }
    if experts:
        dimensions["experts"] = {"number": experts, "per_token": 2, "hidden": 1024}
    content = {
        "schema_version": 1,
        "name": "small",
        "family": "decoder",
        "source": {"dimensions": "made up for tests"},
        "dimensions": dimensions,
        "sequence_length": 256,
    }
    return workload_of(
        content, "small", LoadOptions(Mode.TRAINING, attention, fusion=NO_FUSION, recipe=recipe)
    )


def framework(**changes: object) -> Framework:
    """Software that hides and costs nothing, with some of its properties changed."""
    return load_framework("exposed").model_copy(update=changes)


def estimator(
    devices: int = 8,
    batch: int = 16,
    chip: str = "a100",
    software: Framework | None = None,
    network: Network | None = None,
    workload: Workload | None = None,
) -> Estimator:
    """A small GPT on a few chips in domains of four."""
    told = network or two_tiers(4, None, 1e-6, 25e9, 5e-6)
    table = to_table([load_architecture(chip)])
    return Estimator(workload or small_gpt(), table, Cluster(devices, batch, told), software or framework())


def default_network() -> Network:
    """The packaged default."""
    return load_network("default")
