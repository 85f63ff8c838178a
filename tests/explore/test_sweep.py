from __future__ import annotations

import json
import subprocess
import sys

import pytest

from phaze.errors import InfeasibleError, InputError, Shortfall
from phaze.explore.document import Breakdown, Design, Placement, WorkloadResult
from phaze.explore.metrics import metric
from phaze.explore.progress import Silent
from phaze.explore.sweep import Sampler, SweepPlan, design_row, non_dominated, sweep

LIMIT_W = 60.0
PARAMETERS = {
    "cores": [{"tensor_cores": 2**i} for i in range(7)],
    "memory": [{"hbm_generation": g, "hbm_stacks": s} for g in ("HBM2e", "HBM3") for s in (4, 6)],
}


def make(fields) -> Design:
    """A chip with a closed-form answer: more cores are faster and hotter."""
    throughput = float(fields["tensor_cores"] * fields["hbm_stacks"])
    result = WorkloadResult(
        iteration_time_s=8 / throughput,
        throughput_samples_per_s=throughput,
        mfu=0.5,
        devices=8,
        devices_used=8,
        global_batch=8,
        energy_per_iteration_j=8.0,
        memory_bytes=1e9,
        placement=Placement(
            data_parallel=8,
            tensor_parallel=1,
            pipeline_parallel=1,
            microbatch_size=1,
            recompute="none",
            stages=[],
        ),
        breakdown=Breakdown(compute_s=1, memory_s=0, collective_s=0, bubble_s=0, optimizer_s=0),
    )
    return Design(
        id="-".join(str(v) for v in fields.values()),
        architecture=dict(fields),
        area_mm2=10.0 * fields["tensor_cores"],
        tdp_w=fields["tensor_cores"] + 5.0 * fields["hbm_stacks"],
        area_parts_mm2={},
        power_parts_w={},
        workloads={"w": result},
    )


class Chips:
    def __init__(self) -> None:
        self.calls: list[dict] = []

    def design(self, fields) -> Design:
        self.calls.append(dict(fields))
        design = make(fields)
        if design.tdp_w > LIMIT_W:
            raise InfeasibleError("too hot", (Shortfall("--power", LIMIT_W, design.tdp_w, "W"),))
        return design


def plan(tmp_path, trials, **changes) -> SweepPlan:
    base = {
        "parameters": PARAMETERS,
        "objectives": [metric("throughput"), metric("tdp")],
        "trials": trials,
        "journal": tmp_path / "study.journal",
        "sampler": Sampler.TPE,
        "seed": 1,
    }
    return SweepPlan(**{**base, **changes})


def run(plan, chips=None, stop=lambda: False):
    return sweep(chips or Chips(), plan, Silent(), stop)


def all_designs() -> list[Design]:
    every = [make({**a, **b}) for a in PARAMETERS["cores"] for b in PARAMETERS["memory"]]
    return [design for design in every if design.tdp_w <= LIMIT_W]


@pytest.mark.parametrize("sampler", list(Sampler))
def test_enough_trials_find_the_best_and_only_feasible_designs(tmp_path, sampler):
    result = run(plan(tmp_path, 48, sampler=sampler))
    best = max(d.workloads["w"].throughput_samples_per_s for d in all_designs())
    assert max(d.workloads["w"].throughput_samples_per_s for d in result.frontier) == best
    assert all(d.tdp_w <= LIMIT_W for d in result.designs)
    assert result.trials == 48
    assert 0 < result.infeasible < 48


def test_duplicates_are_evaluated_once(tmp_path):
    chips = Chips()
    result = run(plan(tmp_path, 40), chips)
    keys = [json.dumps(call, sort_keys=True) for call in chips.calls]
    assert len(keys) == len(set(keys)) < 40
    assert len(result.designs) == len({d.id for d in result.designs})


@pytest.mark.parametrize("sampler", list(Sampler))
@pytest.mark.parametrize("cut", [3, 11])
def test_stopped_and_resumed_gives_the_same_answer(tmp_path, sampler, cut):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    whole = run(plan(tmp_path / "a", 16, sampler=sampler))
    chips = Chips()
    asked = iter(range(1000))
    partial = run(plan(tmp_path / "b", 16, sampler=sampler), chips, stop=lambda: next(asked) >= cut)
    assert partial.trials == cut
    seen = list(chips.calls)
    resumed = run(plan(tmp_path / "b", 16, sampler=sampler), chips)
    assert [d.id for d in resumed.designs] == [d.id for d in whole.designs]
    assert resumed.frontier == whole.frontier
    assert resumed.infeasible == whole.infeasible
    assert not any(call in seen for call in chips.calls[len(seen) :])


def test_a_finished_sweep_evaluates_nothing_again(tmp_path):
    first, chips = run(plan(tmp_path, 16)), Chips()
    assert run(plan(tmp_path, 16), chips) == first
    assert chips.calls == []


def test_another_sweep_in_the_same_journal_is_refused(tmp_path):
    run(plan(tmp_path, 8))
    with pytest.raises(InputError, match="other objectives, sampler, seed or space"):
        run(plan(tmp_path, 8, seed=2))
    with pytest.raises(InputError, match="other objectives"):
        run(plan(tmp_path, 8, objectives=[metric("throughput")]))


def test_nothing_feasible_tells_what_falls_short(tmp_path):
    hot = {"cores": [{"tensor_cores": 1024}], "memory": PARAMETERS["memory"]}
    with pytest.raises(InfeasibleError, match="none of 8 sampled designs") as caught:
        run(plan(tmp_path, 8, parameters=hot))
    assert caught.value.shortfalls[0].what == "--power"


def test_non_dominated_by_its_definition():
    designs = all_designs()
    objectives = [metric("throughput"), metric("tdp"), metric("area")]

    def point(design):
        row = design_row(design)
        return (-row["throughput_samples_per_s"], row["tdp_w"], row["area_mm2"])

    expected = {
        point(d)
        for d in designs
        if not any(
            all(a <= b for a, b in zip(point(o), point(d), strict=True)) and point(o) != point(d)
            for o in designs
        )
    }
    kept = non_dominated(designs, objectives)
    assert {point(d) for d in kept} == expected
    assert len(kept) == len(expected)


def test_same_seed_same_designs_in_another_process(tmp_path):
    code = (
        "import sys, pathlib; sys.path.insert(0, sys.argv[1]); import test_sweep as t;"
        "print([d.id for d in t.run(t.plan(pathlib.Path(sys.argv[2]), 20)).designs])"
    )
    outputs = []
    for hash_seed in ("1", "2"):
        folder = tmp_path / hash_seed
        folder.mkdir()
        command = [sys.executable, "-c", code, str(__file__).rpartition("/")[0], str(folder)]
        done = subprocess.run(
            command, env={"PYTHONHASHSEED": hash_seed}, capture_output=True, text=True, check=True
        )
        outputs.append(done.stdout)
    assert outputs[0] == outputs[1]
    assert outputs[0].count("'") > 4
