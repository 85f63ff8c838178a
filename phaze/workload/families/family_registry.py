"""The model families a workload file may name."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

from phaze.workload.families.convolutional_family import Convolutional
from phaze.workload.families.decoder_family import Decoder
from phaze.workload.families.encoder_families import Encoder, EncoderDecoder
from phaze.workload.families.model_family import FamilyDimensions
from phaze.workload.families.recommender_family import Recommender
from phaze.workload.families.recurrent_family import RecurrentTranslator
from phaze.workload.families.two_tower_family import TwoTower
from phaze.workload.families.vision_transformer import VisionTransformer


class Family(StrEnum):
    """Model family: the graph that the dimensions describe."""

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
