"""What each rule of fusion does to a model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from phaze.workload.fusion_rules import Fusion
from phaze.workload.work import LayerChain


@dataclass(frozen=True, slots=True)
class Applied:
    """How often a rule is applied on one device for one microbatch, and the HBM bytes that it saves in all."""

    times: int
    saved_bytes: float


def fusion_report(chain: LayerChain) -> Mapping[Fusion, Applied]:
    """Every rule over the whole model, forward and backward; one that is off, or finds nothing, has zeros.

    What rides on several hosts in turn counts under the rule of the first: a chain on a product is epilogues.
    """
    times: Counter[Fusion] = Counter()
    saved = dict.fromkeys(Fusion, 0.0)
    for unique, repeats in sorted(Counter(chain.index).items()):
        layer = chain.layers[unique]
        for fused in (*layer.forward.fused, *(layer.backward.fused if layer.backward else ())):
            times[fused.rule] += repeats
            saved[fused.rule] += repeats * fused.saved_bytes
    return {rule: Applied(times[rule], saved[rule]) for rule in Fusion}
