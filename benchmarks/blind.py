"""What the model says of every case of `dse measure gpu`, before anything is measured.

`python benchmarks/blind.py --arch h100 --limit 700 --out benchmarks/blind_h100.csv` writes a row for each figure of
each case: what it is, its unit, and the predictions of both rungs. `dse validate` says what was measured then.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections import defaultdict
from pathlib import Path

from phaze.validation.data_set_registry import DATA_SETS, Metric
from phaze.validation.measured.measurement_columns import Columns
from phaze.validation.own.gpu_script import COLUMNS, PARTS, TOLD, Machine, cases

UNITS = {Metric.POWER: "W", Metric.ENERGY: "J", Metric.MEMORY: "byte", Metric.CLOCK: "Hz"}
TELLING = {
    name: [c for c in columns if c in ("cols", "precision", "backend") or c not in ("device", "steps", *TOLD)]
    for name, columns in COLUMNS.items()
}
"""Columns that say what a case is."""
PLACEHOLDER = "1"
"""In place of what is measured; predictions must not look at it, but for `boards`."""


def tables(device: str, limit_w: float, latency: dict[tuple[str, int], float]) -> dict[str, Columns]:
    """The cases as tables whose measured columns hold placeholders; `latency`: predicted seconds, for watts."""
    rows: dict[str, list[dict[str, str]]] = defaultdict(list)
    for name, row, _ in cases(Machine(None, "cuda", 0.0), PARTS, small=False):
        whole = {**dict.fromkeys(COLUMNS[name], PLACEHOLDER), **{k: str(v) for k, v in row.items()}}
        whole |= {"device": device, "power_limit_w": str(limit_w)} if "power_limit_w" in whole else {}
        if (seconds := latency.get((name, len(rows[name])))) is not None:
            whole["latency_us"] = repr(1e6 * seconds)
        rows[name].append(whole)
    return {
        name: Columns(Path(name), {c: tuple(r[c] for r in some) for c in COLUMNS[name]}, len(some))
        for name, some in rows.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--arch", default="h100")
    parser.add_argument("--limit", type=float, default=700.0)
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    first = tables(asked.arch, asked.limit, {})
    latency = {}
    for name, backward in (
        ("gpu_products", False),
        ("gpu_kernels", False),
        ("gpu_attention", False),
        ("gpu_attention", True),
    ):
        metric = Metric.LATENCY_BACKWARD if backward else Metric.LATENCY
        judge = next(s.judge for s in DATA_SETS if s.name == name and s.metric is metric)
        which = [
            i
            for i in range(first[name].rows)
            if ("op" in first[name].text and first[name]["op"][i] == "backward") == backward
        ]
        for i, seconds in zip(which, judge(first[name]).predicted["calibrated"], strict=True):
            latency[name, i] = float(seconds)
    found = tables(asked.arch, asked.limit, latency)
    with asked.out.open("w", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(["set", "metric", "case", "unit", "analytic", "calibrated"])
        for one in DATA_SETS:
            if one.name not in found:
                continue
            columns = found[one.name]
            judged = one.judge(columns)
            rows = range(columns.rows)
            if one.metric in (Metric.LATENCY, Metric.LATENCY_BACKWARD) and one.name == "gpu_attention":
                rows = [
                    i
                    for i in rows
                    if (columns["op"][i] == "backward") == (one.metric is Metric.LATENCY_BACKWARD)
                ]
            for at, row in enumerate(rows):
                case = " ".join(f"{c}={columns[c][row]}" for c in TELLING[one.name] if c in columns.text)
                said = [judged.predicted.get(rung) for rung in ("analytic", "calibrated")]
                cells = ["" if values is None else f"{float(values[at]):.6g}" for values in said]
                out.writerow([one.name, one.metric.value, case, UNITS.get(one.metric, "s"), *cells])
    sys.stderr.write(f"written: {asked.out}\n")


if __name__ == "__main__":
    main()
