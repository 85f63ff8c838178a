"""What a reader has beside the page: a model, a small space, measurements. Made where a page names it."""

from __future__ import annotations

import json
import shutil
import sys

from pages import DOCS, ROOT, blocks

sys.path.append(str(ROOT / "tests" / "cases"))
import onnx_tiny

TINY = """
schema_version: 1
name: tiny
description: Two chips, so that a search takes no time.
fixed: {node: N5, global_buffer_bytes_per_cycle: 2048, hbm_generation: HBM3, hbm_stacks: 4, vector_cores: 4}
axes: [{fields: [tensor_cores], values: [8, 16]}]
"""

FEW = """
schema_version: 1
name: few
source: made up, so that a search takes no time
microbatches: [1]
chunks: [1]
stages: equal
schedules: [1f1b]
recompute: [some-blocks]
zero: [0, 1]
tensor: [4, 8]
divides: [tensor, pipeline]
"""


def _space(path):
    path.write_text(TINY, encoding="utf-8")


def _plans(path):
    path.write_text(FEW, encoding="utf-8")


def _model(path):
    shutil.copy(onnx_tiny.light("squeezenet"), path)


def _transformer(path):
    node = onnx_tiny.node("MatMul", ["x", "w"], ["y"])
    shape = onnx_tiny.tensor("x", "batch", "seq", 64)
    onnx_tiny.onnx.save(onnx_tiny.model([node], [shape], [onnx_tiny.weight("w", 64, 64)]), path)


def _config(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    sizes = {"n_embd": 256, "n_head": 4, "n_layer": 2, "n_positions": 128, "vocab_size": 1000}
    path.write_text(json.dumps({"model_type": "gpt2", **sizes}), encoding="utf-8")


def _example(page):
    def write(path):
        *_, last = (block for block in blocks(DOCS / "formats" / f"{page}.md") if block.language == "json")
        path.write_text(last.text, encoding="utf-8")

    return write


def _collectives(path):
    rows = [
        f"all_reduce,{ranks},{size},{5 + 2 * (ranks - 1) / ranks * size / 4e5:.3f}"
        for ranks in (2, 4, 8)
        for size in (2**power for power in range(10, 30, 2))
    ]
    path.write_text("\n".join(["collective,ranks,bytes,time_us", *rows]), encoding="utf-8")


_MAKERS = {
    "tiny.yaml": _space,
    "few.yaml": _plans,
    "model.onnx": _model,
    "transformer.onnx": _transformer,
    "path/to/config.json": _config,
    "layer.json": _example("schedule-2"),
    "chain.json": _example("placement-2"),
    "measurements.csv": _collectives,
}


def bring(text, folder):
    """Make in `folder` what the text names."""
    for name, make in _MAKERS.items():
        if name in text:
            make(folder / name)
