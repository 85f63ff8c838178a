"""Memory of transformer layers on one device, as published for Megatron-LM (arXiv 2205.05198, figures 1 and 7)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from types import MappingProxyType

import numpy as np

from phaze.cost.rung import Rung
from phaze.validation.cases import Judged
from phaze.validation.columns import Columns
from phaze.workload.sharding.parallel_degrees import Sharding
from phaze.workload.work import LayerChain
from phaze.workload.workload import Attention, Mode, Workload
from phaze.workload.workload_loader import LoadOptions, workload_of

_GIB, _TOKENS, _VOCABULARY = 2.0**30, 2048, 51200
# Stages of a device where schedules are interleaved, by model (table 3 of the paper).
_INTERLEAVED: Mapping[str, int] = MappingProxyType({"175B": 3, "530B": 3})
_SIZES = ("heads", "hidden", "layers", "tp", "pp", "micro_batch")


@dataclass(frozen=True, slots=True)
class _Setup:
    """One model on its devices, and what a row says of activations."""

    heads: int
    hidden: int
    layers: int
    tensor: int
    pipeline: int
    microbatch: int
    interleaved: int
    config: str

    @property
    def chain(self) -> LayerChain:
        """Layers of one tensor-parallel rank."""
        sequence = "no seq" not in self.config and (
            "seq parallel" in self.config or "sequence" in self.config
        )
        model = _model(self.layers, self.hidden, self.heads)
        return model.chain(
            self.microbatch, Sharding(self.tensor, sequence=sequence), selective="selective" in self.config
        )

    @property
    def state_bytes(self) -> float:
        """Weights, gradients and optimizer state of one stage."""
        parameters = sum(self.chain.layers[i].parameters for i in _blocks(self.chain))
        model = _model(self.layers, self.hidden, self.heads)
        return parameters * model.numerics.state_bytes / self.pipeline

    @property
    def activation_bytes(self) -> float:
        """What the first stage keeps: as many microbatches as there are stages, and more where it is interleaved."""
        layers = [self.chain.layers[i] for i in _blocks(self.chain)]
        if "full" in self.config:  # the input of each block, whose first layer is its attention
            kept = sum(layer.input_bytes for layer in layers if layer.kind == "block.attention")
        else:
            kept = sum(layer.saved_bytes for layer in layers)
        more = (self.pipeline - 1) / (self.pipeline * self.interleaved) if self.interleaved else 0.0
        return kept * (1.0 + more)


def megatron(columns: Columns) -> Judged:
    """State and activations in bytes, and activations as a share of those with tensor parallelism alone."""
    sizes = [columns.numbers(name) for name in _SIZES]
    measured, predicted = [], []
    excluded: Counter[str] = Counter()
    rows = zip(columns["model"], columns["config"], columns["metric"], columns.numbers("value"), strict=True)
    for row, (model, config, metric, value) in enumerate(rows):
        heads, hidden, layers, tensor, pipeline, batch = (int(column[row]) for column in sizes)
        interleaved = _INTERLEAVED.get(model, 0)
        setup = _Setup(heads, hidden, layers, tensor, pipeline, batch, interleaved, config)
        if metric.startswith("parameters"):
            found, unit = setup.state_bytes, _GIB
        elif metric.startswith("activations"):
            found, unit = setup.activation_bytes, _GIB
        elif "relative" in metric:
            baseline = replace(setup, config="no recompute")
            found, unit = setup.activation_bytes / baseline.activation_bytes, 0.01
        else:
            excluded["another kind of memory"] += 1
            continue
        measured.append(value * unit)
        predicted.append(found)
    return Judged(np.array(measured), {Rung.ANALYTIC: np.array(predicted)}, dict(excluded))


def _blocks(chain: LayerChain) -> list[int]:
    """Unique layers of the transformer's blocks, one per position; embedding, last norm and loss left out."""
    return [unique for unique in chain.index if chain.layers[unique].kind.startswith("block")]


@lru_cache(maxsize=32)
def _model(layers: int, hidden: int, heads: int) -> Workload:
    """A GPT of Megatron-LM; attention unfused, dropout everywhere."""
    content = {
        "schema_version": 1,
        "name": "megatron",
        "family": "decoder",
        "source": {"dimensions": "arXiv 2205.05198, table 3"},
        "dimensions": {
            "layers": layers,
            "hidden": hidden,
            "heads": heads,
            "ffn_hidden": 4 * hidden,
            "vocabulary": _VOCABULARY,
            "max_positions": _TOKENS,
            "activation": "gelu_tanh",
            "norm": "layer",
            "norm_place": "pre",
            "bias": True,
            "positions": "learned",
            "tied_embeddings": True,
            "dropout": 0.1,
            "attention_dropout": 0.1,
        },
        "sequence_length": _TOKENS,
    }
    return workload_of(content, "megatron", LoadOptions(Mode.TRAINING, Attention.UNFUSED, fusion=frozenset()))
