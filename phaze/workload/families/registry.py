"""The model families a workload file may name."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

from phaze.workload.families.convolutional import Convolutional
from phaze.workload.families.decoder import Decoder
from phaze.workload.families.encoder import Encoder
from phaze.workload.families.encoder_decoder import EncoderDecoder
from phaze.workload.families.family import FamilyDimensions
from phaze.workload.families.recommender import Recommender
from phaze.workload.families.recurrent import RecurrentTranslator
from phaze.workload.families.two_tower import TwoTower
from phaze.workload.families.vit import VisionTransformer


class Family(StrEnum):
    """Which graph the dimensions describe."""

    DECODER = "decoder"
    ENCODER = "encoder"
    ENCODER_DECODER = "encoder-decoder"
    VIT = "vit"
    CONVOLUTIONAL = "convolutional"
    RECOMMENDER = "recommender"
    RECURRENT = "recurrent"
    TWO_TOWER = "two-tower"


FAMILIES: Mapping[Family, type[FamilyDimensions]] = MappingProxyType(
    {
        Family.DECODER: Decoder,
        Family.ENCODER: Encoder,
        Family.ENCODER_DECODER: EncoderDecoder,
        Family.VIT: VisionTransformer,
        Family.CONVOLUTIONAL: Convolutional,
        Family.RECOMMENDER: Recommender,
        Family.RECURRENT: RecurrentTranslator,
        Family.TWO_TOWER: TwoTower,
    }
)
