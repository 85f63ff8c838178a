from __future__ import annotations

import re
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from phaze.solvers.scheduling import (
    Method,
    Mode,
    Operator,
    ScheduleProblem,
    ScheduleResult,
    Status,
    check_schedule,
    schedule,
)

from phaze.report.charts import gantt_files, gantt_svg
from phaze.report.charts.gantt_chart import gantt, slack_s
from phaze.testing.figure_contract import Markup

SVG = "{http://www.w3.org/2000/svg}"
EVIL = '<script>alert("1")</script> & \x00\ud800'


def given_schedule(problem, starts_s, cores, modes):
    """A schedule written down by hand, with a lower bound 20 % below its makespan."""
    used = {op.id: op.modes[modes.get(op.id, 0)] for op in problem.operators}
    ends_s = {name: starts_s[name] + mode.latency_s for name, mode in used.items()}
    end = max(ends_s.values())
    return ScheduleResult(
        Status.FEASIBLE,
        Method.EXACT,
        makespan_s=end,
        lower_bound_s=0.8 * end,
        gap=0.2,
        runtime_s=0.1,
        starts_s=starts_s,
        ends_s=ends_s,
        modes={name: modes.get(name, 0) for name in used},
        parallel=tuple(name for name, mode in used.items() if mode.cores is None),
        cores=cores,
    )


@pytest.fixture
def example():
    """Two tensor cores, one vector core: `all` runs core-parallel after `slow`, `quick` may wait 2 ms."""
    ops = (
        Operator("slow", ("TC",), 3e-3, 3e-3),
        Operator("quick", ("VC",), 1e-3, 1e-3),
        Operator("all", ("TC", "VC"), 4e-3, 2e-3),
    )
    problem = ScheduleProblem(ops, (("slow", "all"),), {"TC": 2, "VC": 1})
    cores = {"slow": ("TC0",), "quick": ("VC0",), "all": ("TC0", "VC0")}
    return problem, given_schedule(problem, {"slow": 0.0, "quick": 0.0, "all": 3e-3}, cores, {"all": 1})


def test_operators_without_slack_are_critical(example):
    problem, result = example
    slack = slack_s(problem, result)
    assert slack == pytest.approx({"slow": 0.0, "quick": 2e-3, "all": 0.0})
    assert {bar.name: bar.critical for bar in gantt(*example, "layer").bars} == {
        "slow": True,
        "quick": False,
        "all": True,
    }


def test_an_operator_that_another_waits_for_to_draw_bandwidth_has_no_slack():
    """`late` needs what `early` drew; `side` may end as late as `late`."""
    ops = tuple(
        Operator(name, ("TC",), None, moldable=(Mode(1, latency_s, bandwidth),))
        for name, latency_s, bandwidth in (("early", 2.0, 6.0), ("side", 5.0, 3.0), ("late", 4.0, 6.0))
    )
    problem = ScheduleProblem(ops, (), {"TC": 3}, bandwidth=10.0)
    cores = {"early": ("TC0",), "side": ("TC1",), "late": ("TC2",)}
    result = given_schedule(problem, {"early": 0.0, "side": 0.0, "late": 2.0}, cores, {})
    check_schedule(problem, result)
    assert slack_s(problem, result) == pytest.approx({"early": 0.0, "side": 1.0, "late": 0.0})


operators = st.lists(
    st.tuples(st.sampled_from([("TC",), ("VC",), ("TC", "VC")]), st.integers(0, 4), st.integers(1, 4)),
    min_size=1,
    max_size=7,
)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(operators, st.sets(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=6), st.booleans())
def test_slack_is_how_much_later_one_operator_can_start(rows, pairs, more):
    """Against the definition: push one operator, push in turn what it runs into, and look at the end."""
    ops = tuple(Operator(str(i), u, float(a), float(b)) for i, (u, a, b) in enumerate(rows))
    edges = tuple((str(i), str(j)) for i, j in pairs if i < j < len(ops))
    problem = ScheduleProblem(ops, edges, {"TC": 2, "VC": 1 + more})
    result = schedule(problem, Method.CRITICAL_PATH, 1.0)
    length, before = durations(result), pushes(problem, result)

    def end_if_later(name, delay):
        starts = dict(result.starts_s)
        starts[name] += delay
        for _ in ops:
            for one, other in before:
                starts[other] = max(starts[other], starts[one] + length[one])
        return max(starts[o] + length[o] for o in starts)

    for name, slack in slack_s(problem, result).items():
        assert end_if_later(name, slack) == pytest.approx(result.makespan_s)
        assert end_if_later(name, slack + 0.5) == pytest.approx(result.makespan_s + 0.5)


def durations(result):
    return {name: end - result.starts_s[name] for name, end in result.ends_s.items()}


def pushes(problem, result):
    """Pairs whose order a schedule fixes: edges, a common core, a core-parallel operator beside a timed one."""
    length = durations(result)
    timed = [name for name in length if length[name] > 0]
    ordered = [(a, b) for a in timed for b in timed if result.starts_s[a] < result.starts_s[b]]
    return [
        *problem.edges,
        *(
            (a, b)
            for a, b in ordered
            if {a, b} & set(result.parallel) or set(result.cores[a]) & set(result.cores[b])
        ),
    ]


def test_every_core_has_its_row_and_a_core_parallel_operator_one_block_over_all(example):
    chart = gantt(*example, "layer")
    assert chart.rows == ("TC0", "TC1", "VC0")
    assert {bar.name: bar.blocks for bar in chart.bars} == {
        "slow": ((0, 0),),
        "quick": ((2, 2),),
        "all": ((0, 2),),
    }
    assert "gap 20.0 %, not proven optimal; method exact" in chart.facts


def test_on_many_cores_neighbours_that_run_the_same_share_a_row():
    """Operators on many cores each, beside a link that core-parallel operators do not block."""
    ops = (
        Operator("wide", ("TC",), None, moldable=(Mode(32, 2.0),)),
        Operator("fused", ("TC", "VC"), None, moldable=(Mode(2, 2.0),)),
        Operator("send", ("LINK",), 2.5),
        Operator("all", ("VC",), 9.0, 1.0),
    )
    problem = ScheduleProblem(ops, (), {"LINK": 1, "TC": 64, "VC": 64}, unblocked=frozenset({"LINK"}))
    cores = {
        "wide": tuple(f"TC{k}" for k in range(32)),
        "fused": ("TC40", *(f"VC{k}" for k in range(2)), "TC41"),
        "send": ("LINK0",),
        "all": (),
    }
    starts = {"wide": 0.0, "fused": 0.0, "send": 0.0, "all": 2.0}
    chart = gantt(problem, given_schedule(problem, starts, cores, {"all": 1}), "many")
    assert chart.rows == ("TC0-31", "TC32-39", "TC40-41", "TC42-63", "VC0-1", "VC2-63", "LINK0")
    blocks = {bar.name: bar.blocks for bar in chart.bars}
    assert blocks == {"wide": ((0, 0),), "fused": ((2, 2), (4, 4)), "send": ((6, 6),), "all": ((0, 5),)}
    facts = {bar.name: bar.facts for bar in chart.bars}
    assert "mode: 32 cores of each unit" in facts["wide"]
    assert "mode: core-parallel" in facts["all"]
    assert "slack: 0.5 s" in facts["send"]
    assert len({kind.fill for kind in chart.kinds}) == 4


def test_svg_bars_stand_where_and_when_operators_run(example):
    root = ElementTree.fromstring(gantt_svg.draw_gantt_svg(gantt(*example, "layer")))
    groups = {
        g.find(f"{SVG}title").text.partition("\n")[0]: g.find(f"{SVG}rect") for g in root.iter(f"{SVG}g")
    }
    box = {name: [float(rect.get(k)) for k in ("x", "y", "width", "height")] for name, rect in groups.items()}
    assert box["slow"][0] == box["quick"][0]
    assert box["slow"][2] == pytest.approx(3 * box["quick"][2], rel=1e-3)
    assert box["all"][0] == pytest.approx(box["slow"][0] + box["slow"][2], abs=0.02)
    assert box["all"][1] == box["slow"][1] < box["quick"][1]
    assert box["all"][3] == pytest.approx(box["quick"][1] + box["quick"][3] - box["slow"][1])
    assert {name: rect.get("class") for name, rect in groups.items()} == {
        "slow": "critical",
        "quick": "bar",
        "all": "critical",
    }


def test_svg_says_what_the_header_and_the_legend_must_say(example):
    root = ElementTree.fromstring(gantt_svg.draw_gantt_svg(gantt(*example, "layer")))
    texts = [node.text for node in root.iter(f"{SVG}text")]
    assert texts[0] == "layer"
    assert texts[1].startswith("makespan 5.00 ms, lower bound 4.00 ms, gap 20.0 %")
    assert {"TC", "VC", "TC+VC", "no slack (critical chain)", "idle", "lower bound", "time (ms)"} <= {*texts}
    tip = next(g.find(f"{SVG}title").text for g in root.iter(f"{SVG}g") if "quick" in g[0].text)
    assert tip.splitlines() == [
        "quick",
        "unit: VC",
        "start: 0 ms",
        "end: 1 ms",
        "duration: 1 ms",
        "slack: 2 ms",
        "mode: single core, VC0",
    ]


def test_svg_names_stand_only_where_they_fit():
    ops = (Operator("a" * 60, ("TC",), 1.0), Operator("b" * 60, ("TC",), 9.0), Operator("c", ("TC",), 1.0))
    problem = ScheduleProblem(ops, (), {"TC": 1})
    starts = {ops[0].id: 0.0, ops[1].id: 1.0, "c": 10.0}
    result = given_schedule(problem, starts, dict.fromkeys(starts, ("TC0",)), {})
    root = ElementTree.fromstring(gantt_svg.draw_gantt_svg(gantt(problem, result, "names")))
    names = [node.text for node in root.iter(f"{SVG}text") if node.get("class") == "name"]
    assert sorted(names) == [ops[1].id, "c"]


def evil():
    problem = ScheduleProblem((Operator(EVIL, ("TC",), 1.0), Operator("zero", ("TC",), 0.0)), (), {"TC": 1})
    return problem, given_schedule(problem, {EVIL: 0.0, "zero": 1.0}, {EVIL: ("TC0",), "zero": ("TC0",)}, {})


def test_names_are_escaped_everywhere(example):
    text = gantt_svg.draw_gantt_svg(gantt(*evil(), EVIL))
    root = ElementTree.fromstring(text.encode())
    shown = [node.text for node in root.iter(f"{SVG}text") if "script" in (node.text or "")]
    assert shown == ['<script>alert("1")</script> & \ufffd\ufffd'] * 2
    assert not list(root.iter(f"{SVG}script"))
    plain, odd = (
        Markup(gantt_files.draw_gantt_html(gantt(*example, "layer"))),
        Markup(gantt_files.draw_gantt_html(gantt(*evil(), EVIL))),
    )
    assert sorted(odd.names) == sorted(plain.names)


def test_html_is_one_page_that_fetches_nothing_and_hovers(example):
    text = gantt_files.draw_gantt_html(gantt(*example, "layer"))
    page = Markup(text)
    assert page.values("src", "href") == []
    assert page.names.count("title") == page.names.count("h1") == 1
    call = text[text.rindex("Plotly.newPlot") :]
    for fact in ("slack: 2 ms", "duration: 3 ms", "mode: core-parallel", "lower bound", "time (ms)"):
        assert fact in call
    assert "sendChartToCloud" not in call
    assert re.search(r'"modeBarButtons":\s*\[\["toImage"', call)


def test_the_same_schedule_gives_the_same_file(example):
    assert gantt_svg.draw_gantt_svg(gantt(*example, "layer")) == gantt_svg.draw_gantt_svg(
        gantt(*example, "layer")
    )
    assert gantt_files.draw_gantt_html(gantt(*example, "layer")) == gantt_files.draw_gantt_html(
        gantt(*example, "layer")
    )


@pytest.mark.parametrize("latency_s", [0.0, 1e-100, 1e100])
def test_extreme_times_and_no_operators_at_all_are_drawn(latency_s):
    problem = ScheduleProblem((Operator("o", ("TC",), latency_s),), (), {"TC": 1})
    nothing = ScheduleProblem((), (), {"TC": 1})
    for case, count in ((problem, 1), (nothing, 0)):
        chart = gantt(case, schedule(case, Method.EXACT, 1.0), "extreme")
        root = ElementTree.fromstring(gantt_svg.draw_gantt_svg(chart))
        assert len(list(root.iter(f"{SVG}g"))) == count
        assert "nan" not in gantt_svg.draw_gantt_svg(chart)
        assert "Plotly.newPlot" in gantt_files.draw_gantt_html(chart)


def test_fills_differ_in_lightness(example):
    def lightness(fill):
        return sum(w * int(fill[i : i + 2], 16) for w, i in ((0.3, 1), (0.59, 3), (0.11, 5)))

    kinds = gantt(*example, "layer").kinds
    grey = sorted(lightness(kind.fill) for kind in kinds)
    assert len(grey) == 3
    assert all(b - a > 25 for a, b in pairwise(grey))
