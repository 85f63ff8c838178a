"""How a model is to be run, whatever form it came in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from phaze.errors import InputError
from phaze.workload.workload import Attention, Mode


@dataclass(frozen=True)
class LoadOptions:
    """What a caller may say beside the model.

    `sequence_length` and `global_batch` replace the model's own; `bind` gives sizes to symbolic
    dimensions. Raises InputError for sizes below 1.
    """

    mode: Mode = Mode.TRAINING
    attention: Attention = Attention.FLASH
    sequence_length: int | None = None
    global_batch: int | None = None
    bind: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    fusion: bool = True

    def __post_init__(self) -> None:
        """Check the sizes."""
        for what in ("global_batch", "sequence_length"):
            value = getattr(self, what)
            if value is not None and value < 1:
                raise InputError(f"{what} is {value}; it must be at least 1")

    def refuse_binding(self, source: str) -> None:
        """Raise InputError where sizes are given to a model without symbolic dimensions."""
        if self.bind:
            names = ", ".join(self.bind)
            raise InputError(f"{source}: only ONNX files have dimensions to bind ({names})")

    def refuse_sequence(self, source: str, what: str) -> None:
        """Raise InputError where a sequence length is given to a model that has it among its own sizes."""
        if self.sequence_length is not None:
            msg = f"{source}: the sequence length of {what} is one of its dimensions; bind that instead"
            raise InputError(msg)
