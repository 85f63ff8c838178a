"""On small spaces drawn at random the certified optimum is that of brute force, and no strategy is above it."""

from __future__ import annotations

import numpy as np
import pytest
from small_cases import certified, small_decoder

from phaze.errors import InputError
from phaze.explore.evaluation.design_candidates import Candidates
from phaze.explore.evaluation.evaluation_oracle import Oracle
from phaze.explore.request.explore_request import Budgets, Designs, Task
from phaze.explore.request.search_progress import Clock, SilentProgress
from phaze.explore.sampling.sampled_study import Sampler, check_sampler
from phaze.explore.strategies.heuristic_searches import PhazeSearch, RandomSearch
from phaze.explore.strategies.sampler_search import SampledSearch
from phaze.explore.strategies.search_strategy import SearchBudget
from phaze.explore.strategies.wham.wham_search import WhamSearch
from phaze.hardware.silicon.package_power import tdp_w
from phaze.hardware.spaces.space_file import parse_space
from phaze.testing.small_problem import KnownOracle, first_throughput
from phaze.workload.workload import Mode

FIELDS = {
    "tensor_cores": (1, 2, 3, 4, 6),
    "tensor_core_rows": (32, 64, 128, 256),
    "vector_cores": (1, 2, 4),
    "vector_core_alus": (64, 256, 1024),
    "global_buffer_bytes": ("4MiB", "32MiB", "64MiB"),
}
CASES = [(0, Mode.TRAINING), (1, Mode.PREFILL), (2, Mode.TRAINING), (3, Mode.PREFILL)]
SAMPLERS = [Sampler.TPE, Sampler.NSGA2, Sampler.CMAES]
EVALUATIONS = 10


def drawn(seed):
    """A space of 36 or 54 architectures, and a power budget that most of them keep."""
    rng = np.random.default_rng(seed)
    chosen = rng.permutation(list(FIELDS))[:4]
    axes = []
    for name, size in zip(chosen, (3, 3, 2, int(rng.integers(2, 4))), strict=True):
        values = rng.permutation(FIELDS[name])[:size]
        axes.append(f"  - {{fields: [{name}], values: [{', '.join(map(str, values))}]}}\n")
    space = parse_space(f"schema_version: 1\nname: drawn\naxes:\n{''.join(axes)}", "drawn.yaml")
    return space, Budgets(power_w=float(np.quantile(tdp_w(space.table()), 0.7)))


@pytest.fixture(scope="module", params=CASES, ids=lambda case: f"{case[0]}-{case[1]}")
def case(request, tmp_path_factory, network):
    """Candidates, a task, every candidate evaluated, and the certified optimum."""
    seed, mode = request.param
    space, budgets = drawn(seed)
    workload = small_decoder(tmp_path_factory.mktemp("case"), mode)
    task = Task(workload, (4, 6, 8, 3)[seed], network, held={"microbatches": (1,)})
    candidates = Candidates(space, budgets)
    oracle = Oracle(candidates, [task], first_throughput, Clock(1e9))
    known = {e.number: e for e in oracle.evaluate(candidates.all().numbers)}
    found = certified(candidates, task, clock=Clock(1e9))
    assert found.finished
    return candidates, task, known, found.most


def fresh(case):
    candidates, task, known, _ = case
    return KnownOracle(candidates, [task], first_throughput, Clock(1e9), worked_out=known)


def test_the_certified_optimum_is_that_of_brute_force(case):
    *_, known, certified = case
    assert certified == pytest.approx(max(e.value for e in known.values()), rel=1e-9)


def check(search, case, evaluations=EVALUATIONS):
    """A short run of a search."""
    *_, certified = case
    report = search.run(fresh(case), SearchBudget(evaluations), 7, SilentProgress())
    assert 0 < report.best_value <= certified * (1 + 1e-9)
    assert report.evaluations <= evaluations
    return report


@pytest.mark.parametrize("search", [PhazeSearch(), RandomSearch()], ids=lambda search: search.name)
def test_no_search_of_its_own_is_above_it(case, search):
    check(search, case)


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_no_sampler_is_above_it(case, sampler):
    needs(sampler)
    check(SampledSearch(sampler, patience=1), case)


@pytest.mark.parametrize("case", CASES[:1], indirect=True)
def test_neither_is_one_that_models_the_space(case):
    needs(Sampler.GP)
    # Its model begins after ten trials, and takes a second for each of the next.
    assert check(SampledSearch(Sampler.GP, patience=1, batch=6), case, evaluations=7).figures["trials"] > 10


def needs(sampler):
    try:
        check_sampler(sampler, objectives=1)
    except InputError:
        pytest.skip("not installed")


def test_wham_is_above_it_only_where_stages_differ(case):
    *_, certified = case
    oracle, search = fresh(case), WhamSearch(Designs.PER_STAGE, configs=2, top_k=3)
    report, told = search.search(oracle, SearchBudget(EVALUATIONS), 0, SilentProgress())
    assert 0 < report.best_value <= certified * (1 + 1e-9)
    assert told.one.throughputs[0] == report.best_value
    stages = {stage.id for stage in told.per_stage.stages}
    assert told.per_stage.throughput_samples_per_s <= certified * (1 + 1e-9) or len(stages) > 1
