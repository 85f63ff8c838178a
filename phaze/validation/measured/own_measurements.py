"""A user's own measurements: tables to fill in, and products read from one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from phaze.errors import InputError
from phaze.hardware.architecture import Architecture
from phaze.validation.measured.measured_cases import Row
from phaze.validation.measured.measurement_columns import read_columns
from phaze.validation.measured.measurement_schemas import OWN_PRODUCTS
from phaze.validation.sets.kernels.gemm_measurements import product_of


class Template(StrEnum):
    """Tables that `dse measure template` writes."""

    GEMM = "gemm"
    COLLECTIVE = "collective"
    SERVING = "serving"


@dataclass(frozen=True, slots=True)
class _Table:
    """Columns with what they hold, example rows, and the command that reads the filled table."""

    columns: Mapping[str, str]
    rows: tuple[str, ...]
    reader: str


_TABLES: Mapping[Template, _Table] = {
    Template.GEMM: _Table(
        {
            "dtype": "operands: bf16, fp16, fp32 or fp8",
            "batch": "independent products in one kernel; the column may be left out",
            "m": "rows of the left operand, elements",
            "n": "columns of the right operand, elements",
            "k": "columns of the left operand, elements",
            "latency_us": "time of the kernel alone, microseconds: the median of many, after a warm-up",
        },
        ("bf16,1,1,4096,4096,21.5", "bf16,1,4096,4096,4096,512.0", "bf16,16,2048,2048,128,75.0"),
        "dse calibrate FILE --arch CHIP --out CHIP.calibration.yaml",
    ),
    Template.COLLECTIVE: _Table(
        {
            "collective": "all_reduce, all_gather, reduce_scatter, all_to_all or send_recv",
            "ranks": "devices of the group",
            "ranks_per_node": "devices of a node among them; the column may be left out: all in one",
            "bytes": "buffer of one device as nccl-tests counts it, bytes",
            "time_us": "time of the collective, microseconds",
        },
        ("all_reduce,8,8,1048576,61.0", "all_reduce,16,8,268435456,2950.0", "all_gather,8,8,67108864,180.0"),
        "dse networks fit FILE --out NETWORK.yaml",
    ),
    Template.SERVING: _Table(
        {
            "workload": "model that is served: a name of dse workloads, or a file",
            "tensor_parallel": "devices of the replica, which divide every layer",
            "prompt_tokens": "tokens of a prompt, mean",
            "output_tokens": "tokens that are generated for it, mean",
            "concurrency": "requests in flight at this replica: as many clients, each of which asks again at once",
            "recipe": "few bits of linear layers, as --recipe has them; empty, or the column left out: none",
            "tpot_ms": "time per output token after the first, milliseconds: mean over requests",
        },
        (
            "llama3-8b,1,1024,256,1,,8.1",
            "llama3-8b,1,1024,256,16,,9.9",
            "llama3-8b,1,1024,256,64,,15.2",
            "llama3-8b,2,1024,256,16,,6.9",
        ),
        "dse measure serving FILE --arch CHIP",
    ),
}


def template_text(template: Template) -> str:
    """A table with its header and example rows to replace; comments above say what every column holds."""
    table = _TABLES[template]
    told = [f"# {name}: {meaning}" for name, meaning in table.columns.items()]
    head = [
        f"# Your measurements, read by {table.reader}",
        *told,
        "# The rows are examples: replace all of them.",
    ]
    return "\n".join([*head, ",".join(table.columns), *table.rows]) + "\n"


def own_products(path: Path, chip: Architecture) -> tuple[Row, ...]:
    """Rows of a table of products, measured on a chip.

    Raises InputError for a table that cannot be read, a bad row, or a format that is not known.
    """
    columns = read_columns(path, OWN_PRODUCTS)
    if columns.bad:
        raise InputError(f"{path}, {columns.bad[0]}")
    m, k, n = (columns.numbers(side) for side in "mkn")
    batch = columns.numbers("batch") if "batch" in columns.text else [1.0] * columns.rows
    found = []
    for row, (dtype, latency) in enumerate(zip(columns["dtype"], columns.numbers("latency_us"), strict=True)):
        work = product_of(dtype, m[row], k[row], n[row], batch[row])
        if work is None:
            raise InputError(
                f"{path}, {columns.place(row)}: {dtype!r} is not a format of operands; use bf16, fp16, fp32 or fp8"
            )
        found.append(Row(chip, (work,), float(latency) * 1e-6))
    return tuple(found)
