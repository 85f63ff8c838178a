"""The model families a workload file may name."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

from phaze.workload.families.decoder import Decoder
from phaze.workload.families.encoder import Encoder
from phaze.workload.families.family import FamilyDimensions


class Family(StrEnum):
    """Which graph the dimensions describe."""

    DECODER = "decoder"
    ENCODER = "encoder"


FAMILIES: Mapping[Family, type[FamilyDimensions]] = MappingProxyType(
    {Family.DECODER: Decoder, Family.ENCODER: Encoder}
)
