"""Models of four libraries imported one by one: how many come in, in what time and memory, with PyTorch's FLOPs."""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from commands import KeptRows, Row
from report import Report
from tables import duration, table

CORPUS = Path(__file__).parent / "corpus.txt"
BATCH = 2
WANTED_S, WANTED_BYTES = 10.0, 500e6


@dataclass(frozen=True)
class Model:
    """A line of the corpus: a library and the name that it knows a model by."""

    library: str
    name: str

    @property
    def case(self) -> str:
        """Both, as a row calls it."""
        return f"{self.library} {self.name}"


def corpus(file: Path = CORPUS) -> list[Model]:
    """The models that a file lists, one to a line."""
    lines = (
        line.split() for line in file.read_text(encoding="utf-8").splitlines() if not line.startswith("#")
    )
    return [Model(*line) for line in lines]


def measured(
    tell: Callable[[str], None], limit_s: float, only: Sequence[str] = (), kept: Path | None = None
) -> Report:
    """Every model once, each in a process of its own with so many seconds; `only`: names, or libraries.

    `kept`: file of rows that are done, which are not measured again.
    """
    done, models = KeptRows(kept), corpus()
    wanted = [m for m in models if not only or {m.library, m.name} & set(only)]
    missing = [m for m in wanted if m.case not in done.cases]
    if missing:
        from corpus_models import prepare

        prepare()
    rows = []
    for number, model in enumerate(models):
        if model not in wanted and model.case not in done.cases:
            continue
        row = done.get(model.case, lambda model=model: apart(model, limit_s))  # type: ignore[misc]
        if model in missing:
            tell(f"{number + 1}/{len(models)} {model.case}: {row['status']} {row.get('reason', '')[:150]}")
        rows.append(row)
    return Report("imports", text(rows), rows)


def apart(model: Model, limit_s: float) -> Row:
    """The row of a model, made in a child of this process that has the libraries already; late ones are ended."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "row.json"
        child = os.fork()
        if child == 0:
            _child(model, file, limit_s)
        _, status, usage = os.wait4(child, 0)
        if file.exists():
            return {"case": model.case, **json.loads(file.read_text(encoding="utf-8"))}
    late = os.WIFSIGNALED(status) and os.WTERMSIG(status) in {signal.SIGALRM, signal.SIGXCPU}
    told = f"not done in {limit_s:g} s" if late else f"the process ended with status {status}"
    return {
        "case": model.case,
        "status": "late" if late else "failed",
        "reason": told,
        "seconds": usage.ru_utime,
    }


def _child(model: Model, file: Path, limit_s: float) -> None:
    """Write the row of a model, and end."""
    signal.alarm(int(20 * limit_s))  # by the clock; what counts is processor time
    resource.setrlimit(resource.RLIMIT_CPU, (int(limit_s), int(limit_s) + 5))
    sys.stderr.flush()
    try:
        for row in _rows(model):
            _write(row, file)
    except BaseException as error:  # noqa: BLE001 - a row of its own
        where = traceback.extract_tb(error.__traceback__)[-1]
        reason = f"{type(error).__name__}: {' '.join(str(error).split())[:400]} ({where.name})"
        _write({"status": "failed", "reason": reason}, file)
    os._exit(0)


def _write(row: Row, file: Path) -> None:
    file.with_suffix(".part").write_text(json.dumps(row), encoding="utf-8")
    file.with_suffix(".part").rename(file)


def _rows(model: Model) -> Iterator[Row]:
    """What becomes of a model; then, where it came in, the same with what PyTorch counts."""
    from corpus_models import LIBRARIES, config_folder, tokens_of, unbatched

    from phaze import from_torch
    from phaze.errors import InputError
    from phaze.workload.workload_loader import load_workload

    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        if model.library == "transformers":
            path = config_folder(model.name, Path(folder))
            example = None
        else:
            example = LIBRARIES[model.library](model.name)
        _forget_peak()
        before, began = _peak_bytes(), resource.getrusage(resource.RUSAGE_SELF).ru_utime
        try:
            if example is None:
                workload = load_workload(f"hf:{path}", sequence_length=tokens_of(path))
            else:
                axes: Mapping[int | str, int | None] = unbatched(example.keywords)
                workload = from_torch(
                    example.module, example.inputs, example.keywords, name=model.name, batch_axes=axes
                )
            chain = workload.chain(BATCH, 1)
        except InputError as error:
            reason = " ".join(str(error).replace(str(folder), "").split())
            reason = reason.rpartition(", and it cannot be recorded: ")[2]
            yield {"status": "refused", "reason": reason, **_spent(before, began)}
            return
    kind = type(workload._model).__name__  # type: ignore[attr-defined]
    row = {
        "status": "imported",
        "as": kind,
        "mode": str(workload.mode),
        **_spent(before, began),
        "operators": len(workload.operator_graph(1).operators),
        "layers": len(chain.index),
        "unique_layers": len(chain.layers),
        "parameters": workload.parameter_count,
        "flops": chain.model_flops,
    }
    yield row | {"not_counted": "not done in time"}
    yield row | _compared(model, example, row)


def _compared(model: Model, example: Any, row: Row) -> Row:
    """What PyTorch counts for the same step, where it can run it without memory."""
    from corpus_models import LIBRARIES

    try:
        example = example or LIBRARIES[model.library](model.name)
        parameters = sum({id(p): p.numel() for p in example.module.parameters() if p.requires_grad}.values())
        found = {
            "torch_parameters": parameters,
            "torch_flops": torch_flops(example, row["mode"] == "training"),
        }
        return found | {"equal": found["torch_flops"] == row["flops"]}
    except Exception as error:  # noqa: BLE001 - torch cannot run it so
        return {"not_counted": f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"}


def torch_flops(example: Any, training: bool) -> int:
    """FLOPs of a step of `BATCH` samples as `torch.utils.flop_counter` has them, attention as plain products.

    The weight gradient of a grouped convolution, which torch counts once for each group, is counted once; products of
    experts, which it does not count, as what they are.
    """
    import torch
    from corpus_models import unbatched
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    from phaze.workload.torch_export.known_content import full_masks
    from phaze.workload.torch_export.recorded_decisions import Decisions, deciding
    from phaze.workload.torch_export.recording_places import as_if_on_cpu

    shared = unbatched(example.keywords)
    full = full_masks(torch, [*enumerate(example.inputs), *example.keywords.items()])

    def wide(value: Any, place: str, narrow: bool, batch: int = BATCH) -> Any:
        if isinstance(value, dict):
            return {k: wide(v, place, narrow, 1 if k in shared else batch) for k, v in value.items()}
        if isinstance(value, (list, tuple)):
            return type(value)(wide(v, place, narrow, batch) for v in value)
        if not isinstance(value, torch.Tensor):
            return value
        shape = (value.shape[0] * batch, *value.shape[1:]) if value.dim() else ()
        kind = torch.bfloat16 if narrow and value.is_floating_point() else value.dtype
        return torch.zeros(shape, dtype=kind, device=place)

    def counted(module: Any, place: str, pretending: Any, *, narrow: bool = False) -> int:
        mapping = {torch.ops.aten.convolution_backward: _convolution_backward}
        if hasattr(torch.ops.aten, "_grouped_mm"):
            mapping[torch.ops.aten._grouped_mm] = _grouped_product
        counter = FlopCounterMode(display=False, custom_mapping=mapping)
        given = (wide(example.inputs, place, narrow), wide(dict(example.keywords), place, narrow))
        with pretending, sdpa_kernel(SDPBackend.MATH), counter, torch.set_grad_enabled(training):
            with deciding(torch, Decisions(branch=False), module, full):  # as in the recording
                found = module(*given[0], **given[1])
            if training:
                floats = [t for t in _tensors(found) if t.grad_fn is not None and t.is_floating_point()]
                torch.autograd.backward(floats, [torch.zeros_like(t) for t in floats])
        return int(counter.get_total_flops())

    try:
        return counted(example.module, "meta", torch.device("meta"))
    except (RuntimeError, NotImplementedError) as error:
        if "BF16" in str(error):  # grouped products know no other format
            return counted(example.module.bfloat16(), "meta", torch.device("meta"), narrow=True)
        # weights that say they lie on the CPU: code asks for them
        module, pretending = as_if_on_cpu(torch, example.module)
        with pretending:
            return counted(module, "cpu", nullcontext())


def _convolution_backward(
    gradient: Any,
    x: Any,
    weight: Any,
    bias: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    outer: Any,
    groups: int,
    wanted: Sequence[bool],
    *,
    out_val: Any = None,
    **_: Any,
) -> int:
    """As many as forward, for each of the two gradients that are asked for."""
    places = x if transposed else gradient
    return 2 * prod(places[2:]) * places[0] * prod(weight) * sum(wanted[:2])


def _grouped_product(left: Sequence[int], right: Sequence[int], *_: Any, **__: Any) -> int:
    """Rows of all groups together with a matrix each, or their gradients: torch has no formula of its own."""
    return 2 * left[-2] * left[-1] * right[-1]


def _tensors(value: Any) -> list[Any]:
    """Tensors in what a model hands out."""
    import torch

    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, Mapping):
        return [t for v in value.values() for t in _tensors(v)]
    if isinstance(value, (list, tuple)):
        return [t for v in value for t in _tensors(v)]
    return [t for v in vars(value).values() for t in _tensors(v)] if hasattr(value, "sample") else []


def _spent(before: int, began: float) -> Row:
    took = resource.getrusage(resource.RUSAGE_SELF).ru_utime - began
    return {"seconds": took, "bytes": _peak_bytes() - before}


def _forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def _peak_bytes() -> int:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def text(rows: Sequence[Row]) -> str:
    """Counts by library, and why models are refused."""
    libraries = list(dict.fromkeys(row["case"].split()[0] for row in rows))
    lines = [_counts(name, [r for r in rows if r["case"].split()[0] == name]) for name in libraries]
    lines.append(_counts("all", rows))
    headers = ("library", "models", "imported", "share", "FLOPs equal", "differ", "not counted")
    headers += (f"over {WANTED_S:g} s", f"over {WANTED_BYTES / 1e6:g} MB", "slowest")
    others = [(r["case"], r["status"], r["reason"]) for r in rows if r["status"] != "imported"]
    unequal = [
        (r["case"], f"{r['flops']:.6g}", f"{r['torch_flops']:.6g}") for r in rows if r.get("equal") is False
    ]
    measured = f"Measured here: {len(rows)} of the {len(corpus())} models that the corpus names. {_by_nature(rows)}\n"
    parts = ["# Models imported from four libraries\n", _INTRODUCTION, measured, table(headers, lines)]
    parts += ["\n## The slowest and the largest\n", _SPENT, table(("model", "time", "memory"), _most(rows))]
    if others:
        parts += ["\n## What does not come in\n", _left(("model", "", "what is said"), others)]
    if unequal:
        parts += ["\n## FLOPs that differ\n", table(("model", "ours", "PyTorch"), unequal), _REASONS]
    return "\n".join(parts) + "\n"


_NATURE = ("on the content of tensors", "every sample against every other")
"""What is said of models that are no fixed graph of one sample."""


def _by_nature(rows: Sequence[Row]) -> str:
    """How many are no fixed graph, and which share of the others comes in."""
    never = sum(any(part in row.get("reason", "") for part in _NATURE) for row in rows)
    inside = sum(row["status"] == "imported" for row in rows)
    if never == len(rows):
        return ""
    return (
        f"{never} of them are no fixed graph of one sample (what they compute depends on the content of tensors, or on "
        f"the other samples); of the other {len(rows) - never}, {100 * inside / (len(rows) - never):.1f} % come in."
    )


def _most(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """The ten that took longest, and those of the ten with most memory that are not among them."""
    inside = [row for row in rows if row["status"] == "imported"]
    kept = sorted(inside, key=lambda row: -row["seconds"])[:_LISTED]
    large = sorted(inside, key=lambda row: -row["bytes"])[:_LISTED]
    kept += [row for row in large if row not in kept]
    return [(row["case"], duration(row["seconds"]), f"{row['bytes'] / 1e6:.0f} MB") for row in kept]


def _left(headers: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table of words."""
    lines = [headers, ["---"] * len(headers), *rows]
    return "\n".join(
        "| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines
    )


def _counts(name: str, rows: Sequence[Row]) -> tuple[str, ...]:
    kinds = Counter(row["status"] for row in rows)
    inside = [row for row in rows if row["status"] == "imported"]
    equal = Counter(row.get("equal") for row in inside)
    slow = sum(row["seconds"] > WANTED_S for row in inside)
    large = sum(row["bytes"] > WANTED_BYTES for row in inside)
    slowest = duration(max((row["seconds"] for row in inside), default=0.0))
    share = f"{100 * kinds['imported'] / len(rows):.1f} %"
    numbers = (len(rows), kinds["imported"], share, equal[True], equal[False], equal[None], slow, large)
    return (name, *map(str, numbers), slowest)


_LISTED = 10

_SPENT = """\
Processor time and peak memory, the ten that took longest first, then what else is among the ten with most memory.
"""

_REASONS = """
Where it was looked into: PyTorch also runs what nothing reads (the last encoder of canine, 2.42e12; a pooler beside a
head for words, 2 x 2 x 768 x 768: big_bird, fnet, layoutlm, luke, squeezebert; auxiliary heads that only a loss reads:
dpt, upernet, 3 x 2 x 200 x 256 x 3 of mask2former; a pooling head: siglip; what linear attention would hand to one more
block: minimax, 2 x 2.68e8), and products of constants (two tables of rotations of gemma4_vit); rows of an expert are
rounded up (qwen2_moe: 1,024 rows for 60 experts);
linear attention of qwen3_next is counted in its own chunks, and PyTorch pads 128 tokens of mamba2 to its chunk of 256;
PyTorch counts nothing inside `cdist` (VQModel: 2 x 2,048 x 256 x 3), nor a product over one element (masks of
longformer and led: 4 x 2 x 2 x 512 x 512).
"""

_INTRODUCTION = """\
Each model is built without memory for its weights, recorded by PyTorch at two batches, and turned into the layers of a
training step of two samples: processor time and memory of that, without what the libraries themselves take. One model
for each architecture of timm and torchvision, default configs of transformers (128 tokens) and diffusers, of which
layers that repeat are cut to four. FLOPs forward and backward are compared with those that PyTorch counts for the
same step, operator by operator.
"""
