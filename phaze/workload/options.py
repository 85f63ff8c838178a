"""How a model is to be run, whatever form it came in."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from types import MappingProxyType

from phaze.errors import InputError
from phaze.workload.fusion_rules import ALL_FUSION, Fusion
from phaze.workload.low_precision import Recipe
from phaze.workload.rules_cache import KvCache
from phaze.workload.workload import Attention, Mode


@dataclass(frozen=True)
class LoadOptions:
    """What a caller may say beside the model.

    `sequence_length` and `global_batch` replace the model's own; `bind` gives sizes to symbolic
    dimensions. `context`: tokens of each sequence in the key-value cache before the pass (default: none in
    prefill, a whole sequence in decode), which `kv_cache` says the layout of. `fusion`: rules that are on. `recipe`: of
    linear layers in 8 or 4 bits. Raises InputError for sizes below 1 and for what does not go together.
    """

    mode: Mode = Mode.TRAINING
    attention: Attention = Attention.FLASH
    sequence_length: int | None = None
    global_batch: int | None = None
    bind: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    fusion: Set[Fusion] = ALL_FUSION
    context: int | None = None
    kv_cache: KvCache = KvCache.CONTIGUOUS
    recipe: Recipe | None = None

    def __post_init__(self) -> None:
        """Check the sizes, and that there is a cache where it is spoken of."""
        for what in ("global_batch", "sequence_length", "context"):
            value = getattr(self, what)
            if value is not None and value < 1:
                raise InputError(f"{what} is {value}; it must be at least 1")
        paged = self.kv_cache is KvCache.PAGED
        if self.mode is Mode.TRAINING and (self.context is not None or paged):
            raise InputError(
                "training keeps no key-value cache: context and its layout are for prefill and decode"
            )
        if paged and self.attention is not Attention.FLASH:
            raise InputError("a paged key-value cache needs flash attention")

    def refuse_binding(self, source: str) -> None:
        """Raise InputError where sizes are given to a model without symbolic dimensions."""
        if self.bind:
            names = ", ".join(self.bind)
            raise InputError(f"{source}: only ONNX and .pt2 files have dimensions to bind ({names})")

    def refuse_cache(self, source: str, what: str) -> None:
        """Raise InputError where a key-value cache is asked of a model that has none we could fill."""
        if self.mode is Mode.DECODE or self.context is not None or self.kv_cache is KvCache.PAGED:
            msg = f"{source}: {what} has no key-value cache to decode with; use training, or prefill without context"
            raise InputError(msg)

    def refuse_sequence(self, source: str, what: str) -> None:
        """Raise InputError where a sequence length is given to a model that has it among its own sizes."""
        if self.sequence_length is not None:
            msg = f"{source}: the sequence length of {what} is one of its dimensions; bind that instead"
            raise InputError(msg)
