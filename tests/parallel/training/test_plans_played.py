"""What the trace of a plan shows sums to the plan's figures: passes, layers, exchanges, operators; random plans."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from phaze.solvers.scheduling import check_schedule
from random_plans import plans

from phaze.parallel.pipelines.action_order import ActionKind
from phaze.parallel.timeline.plan_operators import PlanOperators
from phaze.parallel.timeline.plan_pieces import PieceKind, PlanPieces
from phaze.parallel.timeline.plan_runs import GATHER, HOST, OPTIMIZER, REDUCTION, runs
from phaze.parallel.timeline.replayed_plan import ReplayedPlan
from phaze.parallel.training.device_breakdown import busiest
from phaze.report.figures.iteration_timeline import plan_windows
from phaze.report.trace.chrome_trace import LAYERS, written
from phaze.report.trace.iteration_svg import draw_iteration, iteration_picture
from phaze.report.trace.iteration_trace import plan_trace
from phaze.workload.parallel_degrees import Parallel

SEEDS = range(8)
EACH = 5


def played(costs, strategy):
    return ReplayedPlan.of(costs, strategy, costs.iteration(strategy))


def some(seed, chips=("a100", "tpuv4")):
    return [played(*plan) for plan in plans(seed, EACH, chips)]


@pytest.mark.parametrize("seed", SEEDS)
def test_the_pieces_of_a_pass_take_as_long_as_it(seed):
    for plan in some(seed):
        pieces = PlanPieces(plan)
        for run in runs(plan):
            taken = sum(pieces.duration_s(one.kind, one.chunk) for one in run.actions)
            assert taken == pytest.approx(run.end_s - run.start_s, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_shown_of_the_busiest_device_sums_to_the_breakdown(seed):
    for plan in some(seed):
        told, time = shown_s(plan), plan.iteration.time
        scale = plan.iteration.iteration_s
        expected = {
            "computation": time.product_s + time.vector_s,
            "recompute": time.recompute_s,
            **{str(p): getattr(time, f"{p}_s") for p in Parallel},
            "transfer": time.transfer_s,
            "gather": time.gather_s,
            "reduction": time.reduction_s,
            "offload": time.offload_s,
            "optimizer": time.optimizer_s,
            "host": time.host_s,
        }
        for cause, seconds in expected.items():
            assert told[cause] == pytest.approx(seconds, rel=1e-6, abs=1e-9 * scale), (cause, plan.strategy)


def shown_s(plan):
    """Seconds on the device that has most to do, by cause, from slices alone."""
    device = busiest(plan.costs.stage_times(plan.strategy), plan.costs.placed(plan.strategy))
    names = {
        PieceKind.GATHER: "gather",
        GATHER: "gather",
        PieceKind.REDUCTION: "reduction",
        REDUCTION: "reduction",
        OPTIMIZER: "optimizer",
        PieceKind.OFFLOAD: "offload",
        PieceKind.HOST: "host",
        HOST: "host",
    }
    spent = Counter()
    for one in plan_trace(plan, "", "").slices:
        seconds = one.end_s - one.start_s
        if one.stage != device:
            continue
        if one.thread == LAYERS:
            exposed = one.args.get("exposed_s", {})
            if one.category == PieceKind.RECOMPUTE:
                spent["recompute"] += seconds
            else:
                spent.update(exposed)
                spent["computation"] += seconds - sum(exposed.values())
        elif one.category == "transfer":
            spent["transfer"] += seconds
        elif one.name in names and one.category not in ("exposed", "hidden"):
            spent[names[one.name]] += seconds
    return spent


@pytest.mark.parametrize("seed", SEEDS)
def test_operators_and_collectives_of_the_first_microbatch_lie_in_their_layer(seed):
    for plan in some(seed):
        layers, shares = {}, defaultdict(float)
        found = list(plan_trace(plan, "", "").slices)
        for one in found:
            if one.thread == LAYERS and one.args["microbatch"] == 1:
                key = (one.stage, one.args["part"], one.args["pass"], one.name)
                layers.setdefault(key, []).append(one)
        for one in found:
            if one.category in ("operator", "exposed", "hidden"):
                spans = layers[one.stage, one.args["part"], one.args["pass"], one.args["layer"]]
                tiny = 1e-9 * plan.iteration.iteration_s
                inside = [
                    i
                    for i, span in enumerate(spans)
                    if span.start_s - tiny <= one.start_s and one.end_s <= span.end_s + tiny
                ]
                assert inside, one
                if one.category == "exposed":
                    shares[one.stage, one.args["part"], one.args["pass"], one.name] += one.end_s - one.start_s
        collectives = sum(
            sum(span.args.get("exposed_s", {}).values()) for spans in layers.values() for span in spans
        )
        assert sum(shares.values()) == pytest.approx(collectives, rel=1e-6, abs=1e-12)


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_overlaps_on_a_thread_and_the_last_slice_ends_the_iteration(seed):
    for plan in some(seed):
        lanes = defaultdict(list)
        for one in plan_trace(plan, "", "").slices:
            lanes[one.stage, one.thread].append((one.start_s, one.end_s))
        tiny = 1e-9 * plan.iteration.iteration_s
        for lane, spans in lanes.items():
            for before, after in pairwise(sorted(spans)):
                assert after[0] >= before[1] - tiny, (lane, plan.strategy)
        end_s = max(end for spans in lanes.values() for _, end in spans)
        assert end_s == pytest.approx(plan.iteration.iteration_s, rel=1e-9)


def test_schedules_are_those_behind_the_layer_times():
    """Where software stretches nothing and a proof was found, the schedule takes as long as the layer."""
    checked = 0
    for seed in SEEDS:
        for plan in some(seed, ("tpuv4",)):
            said, operators = plan.costs.framework, PlanOperators(PlanPieces(plan))
            for one in operators.schedules():
                check_schedule(one.problem, one.result)
                plain = said.stretch == said.expert_room == 1 and not (
                    said.interference or said.expert_passes or said.score_passes
                )
                if plain and one.side in ("forward", "backward"):
                    lasting = max(one.result.makespan_s, one.floor_s)
                    assert one.duration_s == pytest.approx(lasting, rel=1e-6)
                    checked += 1
    assert checked > 50


@pytest.mark.parametrize("seed", SEEDS[:3])
def test_documents_can_be_written(seed):
    for plan in some(seed):
        assert written(plan_trace(plan, "<a>", "small")).startswith("{")
        root = ElementTree.fromstring(draw_iteration(iteration_picture(plan), "<a>"))
        svg = "{http://www.w3.org/2000/svg}"
        looks = Counter(
            rect.get("class") for rect in root.iter(f"{svg}rect") if rect.find(f"{svg}title") is not None
        )
        windows, line = plan_windows(plan), plan.timeline
        shown = sum(
            int(((order.kind == ActionKind.FORWARD) & (starts < w.end_s) & (ends > w.start_s)).sum())
            for order, starts, ends in zip(line.orders, line.starts_s, line.ends_s, strict=True)
            for w in windows
        )
        assert looks["c2"] == shown > 0
