"""Whole models on one device in fp32, as an eager framework or a compiler of graphs runs them.

Models are built from the dimensions of a row in the form that Hugging Face gives them, which the published
operators of the same models show (`op_in_model_neusight_fp32`): GPT writes its GELU out in eight operators; BERT's
forward pass is that of a classifier, without scores of the vocabulary, and its training that of a language model.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from phaze.cost.kernels.kernel import kernels_s
from phaze.cost.roofline import roofline_s
from phaze.cost.rung import Rung
from phaze.hardware.architecture import Architecture, to_table
from phaze.hardware.network import load_network
from phaze.validation.cases import Judged
from phaze.validation.chips import chip_of
from phaze.validation.columns import Columns
from phaze.validation.sets.products import NO_TEMPLATE
from phaze.workload.fusion_rules import ALL_FUSION, EAGER_FUSION
from phaze.workload.work import LayerChain, Pass, Work
from phaze.workload.workload import Attention, Mode, Workload
from phaze.workload.workload_loader import LoadOptions, workload_of

Works = Mapping[Work, int]
"""Kernels of a pass over a model, and how often each of them runs."""

UNKNOWN_FORM = "a model whose form the row does not say"
_COMPILED = "fusion"  # what the set calls torch.compile

# Family of a workload file and what it says beside sizes, by the start of a model's name.
_FORMS: Mapping[str, tuple[str, Mapping[str, Any]]] = MappingProxyType(
    {
        "gpt": ("decoder", {"activation": "gelu_new"}),
        "opt": ("decoder", {"activation": "relu"}),
        "bert": ("encoder", {"activation": "gelu", "norm_place": "post", "token_types": 2}),
        # T5-3B's sizes: its encoder and decoder, heads of 128. A token passes one expert, as large as its feed-forward.
        "switch": (
            "encoder-decoder",
            {"activation": "relu", "norm": "rms", "bias": False, "positions": "relative", "head_size": 128},
        ),
    }
)
SIZES: Mapping[str, str] = MappingProxyType(
    {"layers": "layers", "hidden": "hidden", "heads": "heads", "ffn": "ffn_hidden", "vocab": "vocabulary"}
)
"""Columns of a row, and what a workload file calls them."""


def neusight(columns: Columns) -> Judged:
    """One forward pass, or forward and backward without an optimizer step, over whole sequences."""
    numbers = {name: columns.numbers(name) for name in (*SIZES, "seq_len", "batch_size", "latency_ms")}
    measured: list[float] = []
    predicted: dict[Rung, list[float]] = {rung: [] for rung in Rung}
    excluded: Counter[str] = Counter()
    words = (columns[name] for name in ("device", "model", "mode", "option"))
    for row, (device, model, mode, option) in enumerate(zip(*words, strict=True)):
        chip, size = chip_of(device), {name: int(column[row]) for name, column in numbers.items()}
        training = mode.startswith("train")
        workload = workload_for(model, size, training=training, compiled=option == _COMPILED)
        if chip is None or workload is None:
            excluded[NO_TEMPLATE if chip is None else UNKNOWN_FORM] += 1
            continue
        works = works_of(
            workload.chain(size["batch_size"], 1), headless=not training and model.startswith("bert")
        )
        measured.append(float(numbers["latency_ms"][row]) * 1e-3)
        for rung, seconds in seconds_of(works, chip).items():
            predicted[rung].append(seconds)
    found = {rung: np.array(seconds) for rung, seconds in predicted.items()}
    return Judged(np.array(measured), found, dict(excluded))


def workload_for(
    model: str, size: Mapping[str, int], *, training: bool, compiled: bool = False
) -> Workload | None:
    """A model of a row's sizes, by the names of its columns; None for one whose form is not known."""
    form = next((start for start in _FORMS if model.startswith(start)), None)
    if form is None:
        return None
    sizes = tuple((field, size[column]) for column, field in SIZES.items())
    return _workload(form, sizes, size["seq_len"], training=training, compiled=compiled)


@lru_cache(maxsize=64)
def _workload(
    form: str, sizes: tuple[tuple[str, int], ...], tokens: int, *, training: bool, compiled: bool
) -> Workload:
    family, said = _FORMS[form]
    dropout = {"dropout": 0.1, "attention_dropout": 0.1}
    content = {
        "schema_version": 1,
        "name": form,
        "family": family,
        "source": {"dimensions": "the row"},
        "dimensions": {**dict(sizes), "max_positions": tokens, **dropout, **said},
        "sequence_length": tokens,
        "precision": "fp32",
    }
    mode = Mode.TRAINING if training else Mode.PREFILL
    attention, fusion = (Attention.UNFUSED, ALL_FUSION) if compiled else (Attention.EAGER, EAGER_FUSION)
    return workload_of(content, form, LoadOptions(mode, attention, fusion=fusion))


def works_of(chain: LayerChain, *, headless: bool = False) -> Works:
    """Kernels of all layers, `headless` without those behind the last block."""
    works: Counter[Work] = Counter()
    for unique, repeats in Counter(chain.index).items():
        layer = chain.layers[unique]
        if headless and layer.kind.startswith("head"):
            continue
        for pass_ in (layer.forward, layer.backward):
            for work in () if pass_ is None else pass_.works:
                works[work] += repeats
    return works


def seconds_of(works: Works, chip: Architecture) -> Mapping[Rung, float]:
    """Seconds of kernels one after the other, by rung; NaN where no law costs one of them."""
    table, unique = to_table([chip]), tuple(works)
    times: NDArray[np.float64] = np.array([works[work] for work in unique], dtype=np.float64)
    seconds = {rung: kernels_s(unique, table, rung)[0] for rung in (Rung.ANALYTIC, Rung.CALIBRATED)}
    seconds[Rung.ROOFLINE] = roofline_s(Pass(unique, ()), table, load_network("default"))[0]
    return {rung: float(each @ times) for rung, each in seconds.items()}
