from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from math import inf
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import answers
import commands
import convergence
import convergence_tables
import everywhere
import idle_clock
import numpy as np
import peers.process
import planning
import pytest
import run
import schedule_tables
import silicon
from answers import Answer, Answers, Instance
from convergence_jobs import Kept, Plan
from convergence_runs import FLOOR, Run, course, medians, ratio
from operator_graphs import Graph, backward
from peers.process import Peer, PeerError, ask, installed
from peers.project import Project
from peers.replay import Replay
from phaze.solvers.scheduling import Method, check_schedule, read_instance, schedule
from plots import Curve, draw
from schedule_instances import CORES, Family, instance
from schedules import Limits

from phaze.hardware.architecture import load_architecture, to_table
from phaze.hardware.physical_constants import constants
from phaze.hardware.silicon.dvfs import fit_clock
from phaze.hardware.silicon.package_power import tdp_w
from phaze.hardware.spaces.space_file import load_space

BENCHMARKS = Path(run.__file__).parent


@pytest.mark.parametrize("family", Family)
def test_instances_are_valid_and_as_large_as_asked(family):
    for size, cores in zip((1, 10, 40, 100), CORES[::3], strict=True):
        problem = read_instance(instance(family, size, cores, seed=3))
        assert len(problem.operators) == size
        assert tuple(problem.capacity.values()) == cores
        assert all(op.latency_s >= op.parallel_latency_s > 0 for op in problem.operators)


def test_instances_are_the_same_in_every_process():
    code = "import json; from schedule_instances import *; print(json.dumps(list(instances(list(Family), 30, 2))))"
    command = [sys.executable, "-c", code]
    printed = [
        subprocess.run(
            command, cwd=BENCHMARKS, env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("1", "2")
    ]
    assert printed[0] == printed[1]
    documents = json.loads(printed[0])
    assert documents[0] == json.loads(json.dumps(instance(Family.TRANSFORMER_FORWARD, 30, CORES[0], 0)))
    assert len({document["name"] for document in documents}) == len(documents)


def test_gradients_of_a_small_network():
    graph = Graph()
    entry = graph.vector("norm", (), 100)
    left, right = (graph.linear(name, entry, 8, 8, 8, fused=name == "left") for name in ("left", "right"))
    graph.product("score", (left, right), 1, 8, 8, 8)
    after = {node.name: set(node.after) for node in backward(graph.nodes)}
    assert after == {
        "score_da": set(),
        "score_db": set(),
        "right_dx": {"score_db"},
        "right_dw": {"score_db"},
        "left_dx": {"score_da"},
        "left_dw": {"score_da"},
        "d_norm_sum": {"right_dx", "left_dx"},
        "d_norm": {"d_norm_sum"},
    }


def tiny(seed, pairing):
    return read_instance(instance(Family.RANDOM, 7, CORES[2 + seed], seed, core_pairing=pairing))


@pytest.mark.parametrize("peer", Peer)
@pytest.mark.parametrize(("seed", "pairing"), [(0, False), (1, True), (2, False)])
def test_peers_agree_with_the_exact_method(peer, seed, pairing):
    if installed(peer) is None:
        pytest.skip(f"{peer.value} is not installed")
    problem = tiny(seed, pairing)
    theirs = ask(peer, problem, limit_s=20.0)
    assert theirs.optimal
    assert theirs.makespan_s == pytest.approx(schedule(problem).makespan_s, rel=1e-6)
    assert theirs.lower_bound_s == pytest.approx(theirs.makespan_s, rel=1e-6)


@pytest.mark.parametrize("pairing", [False, True])
@pytest.mark.parametrize("family", Family)
def test_a_schedule_survives_the_way_to_ticks_and_back(family, pairing):
    problem = read_instance(instance(family, 24, (3, 5), 0, core_pairing=pairing))
    ours, project = schedule(problem, Method.CRITICAL_PATH), Project(problem)
    document = project.document(limit_s=1.0)
    back = project.in_seconds(document["hint"])
    check_schedule(problem, back.result(0.0, 0.0, optimal=False))
    assert back.makespan <= ours.makespan_s * (1 + 1e-9)
    assert document["horizon"] <= project.ticks_per_s * back.makespan


def test_a_peer_that_claims_too_much_is_found_out(monkeypatch):
    problem = tiny(0, pairing=False)
    document = Project(problem).document(1.0)
    claim = {
        "schedule": document["hint"],
        "makespan": 0.99 * document["horizon"],
        "bound": 0,
        "optimal": True,
    }
    monkeypatch.setattr(peers.process, "_run", lambda *_: {**claim, "runtime_s": 0.0})
    with pytest.raises(PeerError, match="claims"):
        ask(Peer.CP_SAT, problem, 1.0)


def test_known_answers_of_peers_are_not_asked_for_again(tmp_path, monkeypatch):
    asked = Counter()

    def solve(case, method, limit_s):
        asked[case.name] += 1
        return Answer(case.group, case.name, case.digest, method, limit_s, True, 2.0, 2.0, 0.1)

    monkeypatch.setattr(answers, "solve", solve)
    one, other = (Instance("set", name, {"name": name}) for name in ("one", "other"))
    for case in (one, one, other):
        assert Answers(tmp_path / "answers.jsonl").get(case, "ortools", 60.0).makespan_s == 2.0
    assert asked == {"one": 1, "other": 1}


def test_wins_ties_and_losses():
    case = Instance("set", "case", {})
    ours = Answer("set", "case", case.digest, "exact", 5.0, False, 2.0, 1.0, 5.0)
    ahead = replace(ours, method="ortools", makespan_s=1.9, lower_bound_s=0.5)
    behind = replace(ours, method="ilp", makespan_s=None, lower_bound_s=0.0, note="failed")
    level = replace(ours, method="pyjobshop", lower_bound_s=1.0 + 1e-9)
    text = schedule_tables.report([case], Limits(5.0, 5.0), [ours, ahead, behind, level]).text
    assert "| set, CP-SAT | 0 / 0 / 1 | 1 / 0 / 0 |" in text
    assert "| set, HiGHS | 1 / 0 / 0 | 1 / 0 / 0 |" in text
    assert "| set, PyJobShop | 0 / 1 / 0 | 0 / 1 / 0 |" in text
    assert "| case, CP-SAT | 5 % | 0 |" in text


def test_a_curve_has_the_exponent_of_its_power_law():
    points = [(x, 3e-3 * x**2.5) for x in (10, 20, 50)]
    assert Curve("a", points).exponent == pytest.approx(2.5)
    stopped = Curve("<b>", [*points, (100, 1.0)], frozenset([100]))
    assert stopped.exponent == pytest.approx(2.5)
    picture = ElementTree.fromstring(draw([stopped, Curve("one", points[:1])], "a & b", "x", "time (s)"))
    fills = [dot.get("fill") for dot in picture.iter("{http://www.w3.org/2000/svg}circle")]
    assert fills.count("#fff") == 1
    assert len(fills) == 5


def test_the_command_writes_tables_and_rows(tmp_path, monkeypatch, capsys):
    arguments = ["run.py", "schedules", "--operators", "8", "--per-family", "1", "--peer-limit", "0"]
    monkeypatch.setattr(sys, "argv", [*arguments, "--out", str(tmp_path)])
    run.main()
    table = (tmp_path / "schedules.md").read_text(encoding="utf-8")
    assert table.count("| exact, 5 s | 1/1 |") == 3
    assert table.startswith(capsys.readouterr().out.strip())
    rows = json.loads((tmp_path / "schedules.json").read_text(encoding="utf-8"))["schedules"]
    assert Counter(row["method"] for row in rows) == {"exact": 3, "critical-path": 3}


@pytest.mark.soak
def test_searches_converge_on_a_small_case(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["run.py", "convergence", "--quick", "--out", str(tmp_path)])
    run.main()
    text = (tmp_path / "convergence.md").read_text(encoding="utf-8")
    rows = json.loads((tmp_path / "convergence.json").read_text(encoding="utf-8"))["convergence"]
    searches = {row["name"]: row for row in rows if row["kind"] == "search"}
    assert {"phaze", "random"} <= set(searches)
    assert all(-1e-9 < row["distance"] <= 1 for row in searches.values() if "distance" in row)
    assert "## Space `small`" in text
    assert (tmp_path / "convergence-small-evaluations.svg").exists()
    assert str(BENCHMARKS) not in text + json.dumps(rows)


def test_searches_are_kept_and_taken_up_where_they_stopped(tmp_path, monkeypatch):
    done, interrupts = [], iter([False, False, False, True])

    def do_job(job):
        done.append((job.workload, job.name, job.seed))
        if next(interrupts, False):
            raise KeyboardInterrupt
        if job.name == "certified":
            value = None if job.workload == "huge" else 10.0
            return [{"workload": job.workload, "kind": "certified", "value": value, "upper_bound": value}]
        return [{"workload": job.workload, "kind": "search", "value": 8.0, "history": [[1, 1.0, 8.0]]}]

    def measure(limit_s=inf):
        plan = Plan(("a", "huge"), ("s",), evaluations=5, seeds=2, workers=0, limit_s=limit_s)
        return convergence.measure(plan, lambda _: None, Kept(tmp_path / "runs.jsonl"))

    monkeypatch.setattr(convergence, "do_job", do_job)
    with pytest.raises(KeyboardInterrupt):
        measure()
    assert done == [("a", "certified", 0), ("huge", "certified", 0), ("a", "phaze", 0), ("a", "wham", 0)]
    assert [row["kind"] for row in measure(limit_s=0.0)] == ["certified", "certified", "search"]
    interrupted = done.pop()
    rows = measure()
    assert done[3] == interrupted
    assert len(done) == len(set(done)) == len(rows)
    assert [seed for _, _, seed in done] == sorted(seed for _, _, seed in done)
    assert all(row["distance"] == pytest.approx(0.2) for row in rows if row["kind"] == "search")
    assert len(rows) == 2 + 2 + 2 * 5


def search(name, case, history, optimum=10.0):
    steps = tuple((float(n), s, v) for n, s, v in history)
    return Run(name, ("space", case), optimum, steps, evaluations=8, runtime_s=4.0)


def test_the_course_of_searches():
    one = search("a", "x", [(1, 0.5, 5.0), (4, 2.0, 9.6)])
    other = search("a", "y", [(2, 1.0, 10.0)])
    assert one.reaches(0.05) == (4, 2.0)
    assert one.reaches(0.01) == (inf, inf)
    assert course([one], 0) == [(1.0, 0.5), (4.0, pytest.approx(0.04)), (8.0, pytest.approx(0.04))]
    # The median of two runs: half way between what both miss.
    assert course([one, other], 1)[:2] == [(0.5, pytest.approx(0.75)), (1.0, pytest.approx(0.25))]
    assert course([other], 0)[-1] == (8, FLOOR)
    assert ratio(medians([one, other]), {("space", "x"): 4.8, ("space", "z"): 1.0}) == pytest.approx(2.0)


def test_rows_become_tables_with_every_claim_that_can_be_judged():
    case = {"space": "s", "workload": "w", "devices": 4}
    rows = [
        {**case, "kind": "certified", "name": "certified", "value": 10.0, "upper_bound": 10.0},
        {**case, "kind": "chip", "name": "tpuv4", "value": 5.0, "note": ""},
        {**case, "kind": "chip", "name": "tpuv2", "value": None, "note": "does not fit"},
        found_by("wham", [[1, 1.0, 9.8]]),
        found_by("tpe", [[1, 1.0, 4.9], [10, 2.0, 9.8]]),
        {**case, "kind": "search", "name": "gp", "seed": 0, "value": None, "note": "needs torch"},
    ]
    text = convergence_tables.report(rows).text
    assert "| throughput over | tpuv4 (1) | tpe (1) | within 5 % sooner than tpe |" in text
    assert "| wham | 1.96 | 1.00 | 10.0, 2.0 in time (1) |" in text
    assert "| wham | 1 | 20 | 2 % | 2 % | 200 ms | 1/1: 1, 1 s | 0/1: never |" in text
    assert "- gp: needs torch" in text


def found_by(name, history):
    return {
        "space": "s",
        "workload": "w",
        "kind": "search",
        "name": name,
        "seed": 0,
        "value": history[-1][2],
        "evaluations": 20,
        "runtime_s": 4.0,
        "history": history,
    }


def test_operators_held_back_by_core_parallel_ones_are_replayed_after_them():
    problem = tiny(0, pairing=False)
    replay = Replay(problem, [1.0] * len(problem.operators))
    for i in problem.topological_order:
        replay.run(i, mode=1)
    assert sorted(replay.starts) == [float(k) for k in range(len(problem.operators))]


def test_laws_of_silicon_with_other_constants():
    """The shipped constants change nothing, dearer products do, and families without their own take the generic one."""
    shipped = constants().tables["family"].rows
    products = {name: row["product_energy"] for name, row in shipped.items()}
    scalars = {name: constants()[name] for name in silicon.FREE}
    chips = [load_architecture(name) for name in ("h200", "a100", "tpuv4")]
    before = tdp_w(to_table(chips))
    with silicon.applied(silicon.Laws(scalars, products)):
        assert tdp_w(to_table(chips)) == pytest.approx(before)
    with silicon.applied(silicon.Laws(scalars, {"generic": 2.0, "ampere": products["ampere"]})):
        dearer, same, other = tdp_w(to_table(chips)) / before
    assert (dearer > 1.1, same, other) == (True, pytest.approx(1), pytest.approx(1))
    assert tdp_w(to_table(chips)) == pytest.approx(before)


def test_errors_of_silicon_are_those_of_its_laws():
    chip = load_architecture("a100")
    assert float(silicon.errors_of_tdps([chip])[0]) == pytest.approx(np.log(tdp_w(to_table([chip]))[0] / 400))
    clock = float(fit_clock(to_table([chip]), 250)[0])
    errors = silicon.errors_of_clocks(
        [silicon.Clock(chip, None, 250, clock), silicon.Clock(chip, None, 250, clock / 2)]
    )
    assert errors == pytest.approx([0, np.log(2)])
    assert silicon.mean_pct(errors) == "50.0 %, bias +50.0 %"
    assert silicon.die_of(chip) == silicon.die_of(load_architecture("a100-pcie-80gb"))
    assert silicon.die_of(chip) != silicon.die_of(load_architecture("h100"))


def test_commands_keep_bytecode_as_where_phaze_is_installed(monkeypatch):
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setenv("DSE_DATA", "there")
    told = commands._environment()
    assert "PYTHONDONTWRITEBYTECODE" not in told
    assert told["DSE_DATA"] == "there"


def test_every_question_is_in_one_share_and_is_asked_once(monkeypatch, tmp_path):
    asked = []

    def answer(name, arguments, limit_s, **_):
        asked.append(name)
        known = {"case": name, "seconds": 68.0, "processor_s": 9.0, "peak_bytes": 1, "winner": "a"}
        if "16384" in name:
            return known | {"seconds": 80.0, "gap": 0.5}
        infeasible = {"failed": "dse: no", "infeasible": True}
        return known | (infeasible if "300W" in name else {"gap": 0.0})

    monkeypatch.setattr(everywhere, "searched", answer)
    models = (SimpleNamespace(name="one", layers=2), SimpleNamespace(name="two", layers=3))
    monkeypatch.setattr(everywhere, "builtin_workloads", lambda: models)
    kept = tmp_path / "rows"
    for which in (1, 2, 3, 3):
        share = everywhere.Share.read(f"{which}/3")
        report = everywhere.measured(lambda _: None, 60.0, (), kept, share)
    assert len(asked) == len(set(asked)) == len(report.rows) == 12
    assert [row["workload"] for row in report.rows] == ["two", "one"] * 6
    assert "winner" not in report.rows[0]
    assert "8 of the 12 questions that were asked are in time, of 12 that there are" in " ".join(
        report.text.split()
    )
    assert (
        "| one | no, 68 s | 68 s | no, 68 s | 68 s | **late** 80 s (50 %) | **late** 80 s (50 %) |"
        in report.text
    )
    with pytest.raises(ValueError, match="4/3"):
        everywhere.Share.read("4/3")


def test_answers_about_another_default_space_do_not_count(monkeypatch, tmp_path):
    answer = {"seconds": 1.0, "processor_s": 1.0, "peak_bytes": 1, "gap": 0.0}
    monkeypatch.setattr(everywhere, "searched", lambda name, *_, **__: {"case": name, **answer})
    monkeypatch.setattr(everywhere, "builtin_workloads", lambda: (SimpleNamespace(name="one", layers=2),))
    case, kept = "one --devices 8 --power 300W", tmp_path / "rows"
    other = {"case": case, "seconds": 70.0, "architectures": 7}
    kept.write_text(json.dumps(other) + "\n" + json.dumps({**other, "case": "two"}) + "\n", encoding="utf-8")
    report = everywhere.measured(lambda _: None, 60.0, (), kept)
    row = next(row for row in report.rows if row["case"] == case)
    assert (row["seconds"], row["architectures"]) == (1.0, load_space("default").size)
    assert len(report.rows) == 6


def test_planning_tells_models_by_the_longest_question():
    rows = [
        {"workload": "quick", "devices": 64, "processor_s": 0.5, "plans": 10},
        {"workload": "slow", "devices": 64, "processor_s": 1.0, "plans": 20},
        {"workload": "slow", "devices": 1024, "processor_s": 3.0, "plans": 3000},
        {"workload": "large", "devices": 64, "failed": "it does not fit"},
        {"service": "serving quick on 8 h200", "processor_s": 0.7, "tokens_per_s": 1234.5},
    ]
    text = planning._text(rows)
    told = [
        line.split(" | ") for line in text.splitlines() if line.startswith(("| quick", "| slow", "| large"))
    ]
    assert [cells[0].strip("| ") for cells in told] == ["slow", "quick", "large"]
    assert told[0][1:] == ["1.0", "3.0", "3,000 |"]
    assert told[2][1] == "none fits"
    assert "2 of 4 training plans are found within 2 s" in text
    assert "| serving quick on 8 h200 | 0.7 | 1,234 |" in text


def test_the_clock_of_an_idle_machine_counts_what_a_child_does_beside_it_once(monkeypatch):
    clock, child_s, own_s = idle_clock.IdleClock(), {7: 2.0}, [0.0]
    clock.at_start_s = 0.0  # whatever this process took before, sums are exact
    monkeypatch.setattr(idle_clock, "active_children", lambda: [1])
    monkeypatch.setattr(idle_clock, "_is_there", lambda connection, timeout: True)
    monkeypatch.setattr(clock, "_children_s", lambda: dict(child_s))
    monkeypatch.setattr(idle_clock.time, "process_time", lambda: clock.at_start_s + own_s[0])
    pipe = object()
    clock.ask(pipe)
    own_s[0], child_s[7] = 3.0, 4.0  # it has done 2 s of what it was asked for, and goes on
    clock.wait(pipe)
    assert clock.show() == 3.0
    child_s[7] = 7.0
    clock.wait(pipe)
    assert clock.show() == 5.0
    clock.take(pipe)
    own_s[0] = 10.0
    assert clock.show() == 12.0
    clock.ask(pipe)  # it begins now
    child_s[7] = 8.0
    clock.wait(pipe)
    assert clock.show() == 13.0
