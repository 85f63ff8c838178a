"""What tensor widths that differ by layer gain over one width for all layers, for models on one pipeline stage."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from math import inf

from layer_strategies import LayerWidths, layer_widths
from report import Report
from tables import table
from timing import seconds

from phaze.explore.evaluation.planned_iteration import estimator_of
from phaze.explore.request.explore_request import Task
from phaze.hardware.architecture import load_architecture, to_table
from phaze.hardware.cluster_network import load_network
from phaze.hardware.derived_figures import hbm_capacity_bytes
from phaze.workload.workload_loader import load_workload

Row = dict[str, object]

CASES = (
    ("qwen3-30b-a3b", "h100", 16, 64),
    ("bert-large", "t4", 16, 512),
    ("gpt3-6.7b", "v100", 32, 128),
    ("llama3-8b", "h100", 16, 64),
    ("llama3-8b", "a100-80gb", 16, 128),
    ("gpt3-13b", "a100-80gb", 16, 64),
    ("mistral-7b", "h100", 32, 64),
    ("llama2-7b", "h100", 64, 64),
    ("vit-g14", "a100-80gb", 16, 512),
    ("gpt2-xl", "v100", 8, 64),
    ("opt-350m", "t4", 8, 64),
    ("gpt3-small", "t4", 8, 64),
)
"""Model, chip, devices and samples."""


def measured(tell: Callable[[str], None], only: Sequence[str] = ()) -> Report:
    """Every case under software that hides all it can; `only`: models of such names."""
    rows = []
    for case in CASES:
        if not only or case[0] in only:
            tell(f"layer widths: {case[0]} on {case[2]} {case[1]}")
            rows.append(_row(*case))
    return Report("layer-widths", _text(rows), rows)


def _row(model: str, chip: str, devices: int, samples: int) -> Row:
    task = Task(load_workload(model), devices, load_network(), global_batch=samples)
    cluster = to_table([load_architecture(chip)])
    capacity = task.framework.usable_bytes(float(hbm_capacity_bytes(cluster)[0]))

    def work() -> tuple[float, float, float, LayerWidths]:
        each = [*layer_widths(estimator_of(task, cluster), capacity)]
        found = [(one.time_s if (one := some.chosen()) else inf, n) for n, some in enumerate(each)]
        return (
            min(some.uniform_s() for some in each),
            min(some.one_width_s() for some in each),
            min(found)[0],
            each[min(found)[1]],
        )

    (uniform_s, one_width_s, by_layer_s, best), spent = seconds(work)
    chosen = best.chosen()
    names = Counter(best.strategies[number].name for number in chosen.strategies) if chosen else {}
    return {
        "workload": model,
        "chip": chip,
        "devices": devices,
        "samples": samples,
        "uniform_s": uniform_s,
        "one_width_s": one_width_s,
        "by_layer_s": by_layer_s,
        "bound_s": chosen.lower_bound_s if chosen else inf,
        "layers": dict(names),
        "processor_s": spent,
    }


_HEAD = """# A strategy for each layer

What it would bring to choose data, tensor, sharding (ZeRO 3) and recompute layer by layer, with samples dealt anew
where the tensor width changes: the space of Galvatron (arXiv 2211.13878) on one pipeline stage, exact by dynamic
programming over layers (`benchmarks/layer_strategies.py`). Uniform: the best strategy that all
layers have. One width: sharding and recompute by layer, as `dse plan --plans layers` chooses them. By layer: widths,
too. All three by one formula, a sum over layers of the plan model's passes, exchanges and bytes, under software that
hides what it can. `d4-t4`: four replicas of four devices each; `s`: replicas divide weights; `r`: recompute.

Again: `python benchmarks/run.py layer-widths --out docs/benchmarks`.

"""


def _text(rows: Sequence[Row]) -> str:
    head = ["model, devices, samples", "uniform, ms", "one width, ms", "by layer, ms", "gain over uniform"]
    head += ["gain of widths", "layers", "s"]
    return _HEAD + table(head, [_cells(row) for row in rows]) + "\n"


def _cells(row: Row) -> list[str]:
    uniform, one, by_layer = (float(str(row[name])) for name in ("uniform_s", "one_width_s", "by_layer_s"))
    layers = row["layers"]
    assert isinstance(layers, dict)
    return [
        f"{row['workload']}, {row['devices']} {row['chip']}, {row['samples']}",
        *(f"{1e3 * seconds_:,.1f}" for seconds_ in (uniform, one, by_layer)),
        f"{100 * (1 - by_layer / uniform):.2f} %",
        f"{100 * (1 - by_layer / one):.2f} %",
        ", ".join(f"{count} {name.removeprefix('p1-')}" for name, count in layers.items()),
        f"{row['processor_s']:.1f}",
    ]
