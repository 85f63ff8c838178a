"""Searches for models that nobody here wrote: twenty of four libraries, whole, each written to a file first.

    python benchmarks/run.py imported-searches [--only NAME] [--runs FILE] --out docs/benchmarks

What is measured is `dse run --workload FILE --power 150W --devices 8`, by the clock of an idle machine.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from commands import KeptRows, Row, searched
from report import Report
from tables import duration, percent, table

ASKED = ("--power", "150W", "--devices", "8")

IMAGES = (
    "torchvision resnet50",
    "torchvision swin_t",
    "torchvision vit_b_16",
    "torchvision convnext_tiny",
    "torchvision efficientnet_b0",
    "torchvision densenet121",
    "torchvision mobilenet_v3_large",
    "timm beit_base_patch16_224",
    "timm mixer_b16_224",
    "timm deit_tiny_patch16_224",
    "diffusers DiTTransformer2DModel",
)
"""Models that become a `.pt2` file, batch symbolic."""

PYTHIA_410M = {
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "max_position_embeddings": 2048,
}

TEXTS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "transformers pythia-410m": ("gpt_neox", PYTHIA_410M),
    "transformers t5": ("t5", {}),
    "transformers bert": ("bert", {}),
    "transformers gpt2": ("gpt2", {}),
    "transformers roberta": ("roberta", {}),
    "transformers distilbert": ("distilbert", {}),
    "transformers opt": ("opt", {}),
    "transformers bart": ("bart", {}),
    "transformers whisper": ("whisper", {}),
}
"""Type of transformers and what differs from its default config: models that become a `config.json`."""


def measured(
    tell: Callable[[str], None], limit_s: float, only: Sequence[str] = (), kept: Path | None = None
) -> Report:
    """Every search once; `only`: names, or libraries. `kept`: file of rows that are done."""
    done, rows = KeptRows(kept), []
    for case in (*IMAGES, *TEXTS):
        if only and not set(case.split()) & set(only) and case not in done.cases:
            continue
        row = done.get(case, lambda case=case: _search(case, limit_s))  # type: ignore[misc]
        tell(f"{case}: {row['processor_s']:.1f} s of processors, gap {row.get('gap')}")
        rows.append(row)
    return Report("imported-searches", text(rows, limit_s), rows)


def _search(case: str, limit_s: float) -> Row:
    with tempfile.TemporaryDirectory() as folder:
        file = _config(case, Path(folder)) if case in TEXTS else _program(case, Path(folder))
        return searched(case, ["--workload", file, *ASKED], limit_s, idle=True)


def _config(case: str, folder: Path) -> str:
    from transformers import AutoConfig

    kind, changed = TEXTS[case]
    content = AutoConfig.for_model(kind, **changed).to_dict() | {"model_type": kind}
    (folder / "config.json").write_text(json.dumps(content, default=str), encoding="utf-8")
    return f"hf:{folder / 'config.json'}"


def _program(case: str, folder: Path) -> str:
    import torch
    from corpus_models import LIBRARIES, prepare

    prepare()
    library, name = case.split()
    example = LIBRARIES[library](name)
    batch = torch.export.Dim("batch")

    def twice(value: object) -> object:
        """Two samples, since one is taken for a size that never changes."""
        return torch.cat([value, value]) if isinstance(value, torch.Tensor) else value

    def grows(value: object) -> object:
        return {0: batch} if isinstance(value, torch.Tensor) else None

    inputs = tuple(map(twice, example.inputs))
    keywords = {key: twice(value) for key, value in example.keywords.items()}
    shapes = (*map(grows, inputs), *map(grows, keywords.values()))
    program = torch.export.export(example.module, inputs, keywords, dynamic_shapes=shapes)
    torch.export.save(program, folder / "model.pt2")
    return str(folder / "model.pt2")


def text(rows: Sequence[Row], limit_s: float) -> str:
    """One line a search."""
    lines = [
        (
            row["case"],
            row.get("failed") or percent(row["gap"]),
            duration(row["seconds"]),
            duration(row["processor_s"]),
            f"{row['peak_bytes'] / 1e6:.0f} MB",
            row.get("winner", ""),
        )
        for row in rows
    ]
    proven = sum(row.get("gap") == 0.0 and row["seconds"] <= limit_s for row in rows)
    headers = ("model", "gap", "time", "processor time", "memory", "winner")
    return (
        _INTRODUCTION
        + f"\n{proven} of {len(rows)} are proven within {limit_s:g} s.\n\n{table(headers, lines)}\n"
    )


_INTRODUCTION = """\
# Searches for imported models

`dse run --workload FILE --power 150W --devices 8`, of models from four libraries in the size in which they come
(default configs, one of Pythia-410M, DiT with four blocks): images as `.pt2` files with a symbolic batch, texts as
`hf:config.json`. Time by the clock of an idle machine, that of the import included; memory of the largest process.
"""
