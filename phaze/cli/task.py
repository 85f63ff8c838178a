"""From what was typed to what the explorer is asked: one place for all verbs."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from phaze.cli.output import choose
from phaze.errors import InputError
from phaze.quantity import parse_area, parse_frequency, parse_power, parse_power_density

if TYPE_CHECKING:
    from phaze.explore.document import ResultDocument
    from phaze.explore.request import Budgets, Task
    from phaze.hardware.architecture import Architecture
    from phaze.hardware.space import DesignSpace
    from phaze.placement.cluster import FixedDegrees
    from phaze.workload.workload import Workload


def one_workload(names: Sequence[str]) -> str:
    """The workload asked for. InputError where `--workload` was given more than once."""
    if len(names) > 1:
        raise InputError(
            f"--workload is given {len(names)} times ({', '.join(names)}); only dse run looks for one design "
            "for several workloads, so give one"
        )
    return names[0]


def make_task(
    workloads: Sequence[str],
    *,
    mode: str,
    attention: str,
    devices: int,
    global_batch: int | None,
    network: str,
    bind: Sequence[str] = (),
    context: int | None = None,
    kv_cache: str = "contiguous",
    fusion: str = "all",
    fixed: FixedDegrees | None = None,
    rung: str = "analytic",
    calibration: Path | None = None,
) -> Task:
    """A workload on a cluster."""
    from phaze.cost.kernels.calibration_file import load_calibration
    from phaze.cost.rung import Rung
    from phaze.explore.request import Task
    from phaze.hardware.network import load_network
    from phaze.placement.cluster import FixedDegrees
    from phaze.workload.fusion_rules import parse_fusion
    from phaze.workload.load import load_workload
    from phaze.workload.rules_cache import KvCache
    from phaze.workload.workload import Attention, Mode

    kind = choose(Attention, attention, "--attention")
    loaded = load_workload(
        one_workload(workloads),
        choose(Mode, mode, "--mode"),
        kind,
        global_batch=global_batch,
        bind=bindings(bind),
        context=context,
        kv_cache=choose(KvCache, kv_cache, "--kv-cache"),
        fusion=parse_fusion(fusion, "--fusion"),
    )
    return Task(
        loaded,
        devices,
        load_network(network),
        global_batch,
        fixed or FixedDegrees(),
        choose(Rung, "calibrated" if calibration else rung, "--rung"),
        load_calibration(calibration) if calibration else None,
    )


def open_workload(name: str, *, mode: str, attention: str, bind: Sequence[str] = ()) -> Workload:
    """A workload to look at."""
    from phaze.workload.load import load_workload
    from phaze.workload.workload import Attention, Mode

    kind = choose(Attention, attention, "--attention")
    return load_workload(name, choose(Mode, mode, "--mode"), kind, bind=bindings(bind))


def bindings(texts: Sequence[str]) -> dict[str, int] | None:
    """Sizes of a file's symbolic dimensions, from `seq=2048,image=224`."""
    found = {}
    for part in ",".join(texts).split(","):
        if not part:
            continue
        name, _, size = (piece.strip() for piece in part.rpartition("="))
        if not name or not size.isdigit() or int(size) < 1:
            raise InputError(f"--bind {part!r} is not NAME=SIZE with a whole size, for instance seq=2048")
        found[name] = int(size)
    return found or None


def make_budgets(
    power: str | None,
    area: str | None,
    tdp_margin: float,
    *,
    dvfs: bool = False,
    power_density: str | None = None,
) -> Budgets:
    """Limits per accelerator."""
    from phaze.explore.request import Budgets

    if not 0 < tdp_margin < math.inf:
        raise InputError(f"--tdp-margin {tdp_margin:g} must be a number greater than zero")
    return Budgets(
        power_w=parse_power(power, "--power") if power is not None else None,
        area_mm2=parse_area(area, "--area") if area is not None else None,
        tdp_margin=tdp_margin,
        dvfs=dvfs,
        power_density_w_per_mm2=(
            parse_power_density(power_density, "--power-density") if power_density is not None else None
        ),
    )


def make_space(name: str, node: str | None, clock: str | None, held: Sequence[str] = ()) -> DesignSpace:
    """A design space, with the process node, the clock and the fields of `held` (`FIELD=VALUE`) fixed where asked."""
    from phaze.hardware.fields import field_named
    from phaze.hardware.space_file import load_space
    from phaze.hardware.space_fix import fix

    space = load_space(name)
    if node is not None:
        space = space.fixed(node=field_named("node", "--node").parse(node.upper(), "--node"))
    if clock is not None:
        space = space.fixed(clock_hz=parse_frequency(clock, "--clock"))
    return fix(space, held)


def find_architecture(name: str) -> Architecture:
    """An architecture by name, YAML file, run directory (its winner) or RUN:ID (any design evaluated there)."""
    from phaze.hardware.architecture import load_architecture

    folder, colon, design = name.rpartition(":")
    if colon and Path(folder).is_dir():
        return _evaluated_design(Path(folder), design)
    path = Path(name)
    if not path.is_dir():
        return load_architecture(name)
    if not (path / "architecture.yaml").is_file():
        raise InputError(f"no run at {path}: architecture.yaml is missing")
    return load_architecture(path / "architecture.yaml")


def _evaluated_design(folder: Path, design: str) -> Architecture:
    """The winner of a run with the fields of another of its designs."""
    from difflib import get_close_matches

    from phaze.hardware.architecture import load_architecture
    from phaze.hardware.fields import field_table
    from phaze.runs.directory import load_designs

    rows = {str(row["id"]): row for row in load_designs(folder)}
    if design not in rows:
        near = get_close_matches(design, rows, n=3)
        hint = f"; nearest: {', '.join(near)}" if near else ""
        raise InputError(f"{folder} has no evaluated design {design!r}{hint}")
    fields = {name: value for name, value in rows[design].items() if name in field_table()}
    return load_architecture(folder / "architecture.yaml").replace(design, **fields)


def run_folder(out: Path | None, workloads: Sequence[str]) -> Path:
    """The folder asked for, or the default one of this moment."""
    from phaze.runs.directory import default_directory

    return out or default_directory("+".join(Path(name).stem for name in workloads), datetime.now(UTC))


def input_files(workloads: Sequence[str], network: str, space: str | None = None) -> dict[str, Path]:
    """The files behind what was asked, built-in ones included."""
    from phaze.hardware.catalogue import Catalogue, find
    from phaze.workload.load import source_file

    several = len(workloads) > 1
    files = {
        f"workload {Path(name).stem}" if several else "workload": source_file(name) for name in workloads
    }
    files["network"] = find(Catalogue.NETWORK, network)
    return files if space is None else {**files, "space": find(Catalogue.SPACE, space)}


def with_inputs(document: ResultDocument, inputs: dict[str, Path]) -> ResultDocument:
    """The document with the command line that was typed and the hashes of the files it named."""
    from phaze.runs.manifest import hashes

    typed = {"command": ["dse", *sys.argv[1:]], "inputs_sha256": hashes(inputs)}
    return document.model_copy(update={"manifest": document.manifest.model_copy(update=typed)})
