"""Tables and pictures of the convergence benchmark."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, isfinite
from statistics import fmean, median

from convergence_runs import Row, Run, course, medians, ratio, runs, values
from plots import Curve, draw
from report import Report
from tables import duration, percent, table

SPOTLIGHT = ("gp", "tpe")
"""These stand for Spotlight, a Bayesian optimiser, as far as they ran."""
NEAR = (0.05, 0.01)
INTRODUCTION = """# Convergence

Searches without proof at equal budgets of evaluations, against the certified optimum of the same space and budgets.
An evaluation gives one architecture its best placement; architectures over a budget cost nothing. Seeded strategies
run once per workload and seed.

Distance: the share of the certified optimum that a search misses at its end. "Within 5 %": runs that came so near, and
the median evaluations and seconds to get there, over all runs (never: more than half did not). Architectures that
are evaluated together share their time, so seconds depend on how many a strategy asks for at once. Seconds are
processor time, costs of the model included, of a process that starts with nothing.
"""
CLAIMS = """The published headlines to hold this against: WHAM converges 31 times faster than Spotlight with 12 times
its throughput and is 12 % above the TPU; PHAZE is above TPU v4 and above Spotlight. In PHAZE's space `phaze-reference`
has the shape of TPU v4."""
STAND_IN = "Spotlight is a Bayesian optimiser; {} for it, on the same model, every architecture at its best."


def report(rows: Sequence[Row]) -> Report:
    """Per space: a table of strategies, one of ratios, one of workloads, and two pictures."""
    parts, pictures = [INTRODUCTION], {}
    for space in dict.fromkeys(row["space"] for row in rows):
        by_strategy = runs(rows, space)
        parts += [f"## Space `{space}`\n", _strategies(by_strategy), ""]
        for axis, name in enumerate(("evaluations", "seconds")):
            if by_strategy:
                pictures[f"convergence-{space}-{name}.svg"] = _picture(by_strategy, space, axis)
                parts.append(f"![Distance against {name}](convergence-{space}-{name}.svg)")
        parts += ["", _ratios(rows, space, by_strategy), "", _workloads(rows, space, by_strategy), ""]
    notes = dict.fromkeys(f"- {row['name']}: {row['note']}" for row in rows if _failed(row))
    return Report("convergence", "\n".join([*parts, *notes]).rstrip() + "\n", rows, pictures)


def _failed(row: Row) -> bool:
    return row["kind"] == "search" and "note" in row


def _strategies(by_strategy: dict[str, list[Run]]) -> str:
    headers = ["strategy", "runs", "evaluations", "median distance", "worst", "s per evaluation"]
    headers += [f"within {percent(share)}" for share in NEAR]
    lines = []
    for name, some in by_strategy.items():
        ends = [run.distance_at(inf, 0) for run in some]
        cost = sum(run.runtime_s for run in some) / max(1, sum(run.evaluations for run in some))
        evaluations = f"{median(run.evaluations for run in some):.0f}"
        line = [name, len(some), evaluations, percent(median(ends)), percent(max(ends)), duration(cost)]
        lines.append([*line, *(_near(some, share) for share in NEAR)])
    return table(headers, lines)


def _near(some: Sequence[Run], share: float) -> str:
    reached = [run.reaches(share) for run in some]
    evaluations, seconds = (median(column) for column in zip(*reached, strict=True))
    count = f"{sum(isfinite(r[0]) for r in reached)}/{len(some)}"
    return f"{count}: {evaluations:.0f}, {duration(seconds)}" if isfinite(evaluations) else f"{count}: never"


def _ratios(rows: Sequence[Row], space: str, by_strategy: dict[str, list[Run]]) -> str:
    """Throughput of every strategy over chips and Bayesian search, and how much sooner than that it is near."""
    chips = values(rows, space, "chip")
    bayes = [name for name in SPOTLIGHT if name in by_strategy]
    peers = chips | {name: medians(by_strategy[name]) for name in bayes}
    ours = values(rows, space, "certified") | {name: medians(some) for name, some in by_strategy.items()}
    headers = ["throughput over", *(f"{name} ({len(found)})" for name, found in peers.items())]
    lines = [[name, *(_times(ratio(found, peer)) for peer in peers.values())] for name, found in ours.items()]
    for peer in bayes:
        headers.append(f"within 5 % sooner than {peer}")
        for line in lines:
            line.append(_sooner(by_strategy.get(line[0], []), by_strategy[peer]))
    remark = "Geometric means over the workloads that run on both (how many run on a chip in the budget in brackets).\n"
    names = " and ".join(f"`{name}`" for name in bayes)
    claims = (
        (CLAIMS, STAND_IN.format(f"{names} stand{'' if len(bayes) > 1 else 's'}")) if bayes else (CLAIMS,)
    )
    return "\n".join((remark, table(headers, lines), "", *claims))


def _times(factor: float | None) -> str:
    return "" if factor is None else f"{factor:.2f}"


def _sooner(ours: Sequence[Run], theirs: Sequence[Run]) -> str:
    """Ratios of evaluations and of seconds, over the cases in which the runs of both come near on average."""
    mean = [_mean_reach(some) for some in (ours, theirs)]
    found = [ratio(*({c: m[c][axis] for c in m} for m in reversed(mean))) for axis in (0, 1)]
    both = len(set(mean[0]) & set(mean[1]))
    return "" if found[0] is None or found[1] is None else f"{found[0]:.1f}, {found[1]:.1f} in time ({both})"


def _mean_reach(some: Sequence[Run]) -> dict[tuple[str, str], tuple[float, float]]:
    """Mean evaluations and seconds to within 5 %, by case, of the cases in which every run gets there."""
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for run in some:
        found.setdefault(run.case, []).append(run.reaches(NEAR[0]))
    means = {case: tuple(fmean(c) for c in zip(*all_, strict=True)) for case, all_ in found.items()}
    return {case: (e, s) for case, (e, s) in means.items() if isfinite(e)}


def _workloads(rows: Sequence[Row], space: str, by_strategy: dict[str, list[Run]]) -> str:
    """Share of the certified optimum that every strategy (median over seeds) and every chip reaches."""
    certified = values(rows, space, "certified").get("certified", {})
    reached = {name: medians(some) for name, some in by_strategy.items()} | values(rows, space, "chip")
    lines = [
        [case[1], f"{optimum:.4g}", *(_share(found.get(case), optimum) for found in reached.values())]
        for case, optimum in certified.items()
    ]
    return table(["workload", "certified, samples/s", *reached], lines)


def _share(value: float | None, optimum: float) -> str:
    return "" if value is None else f"{100 * value / optimum:.1f} %"


def _picture(by_strategy: dict[str, list[Run]], space: str, axis: int) -> str:
    curves = [Curve(name, course(some, axis), power_law=False) for name, some in by_strategy.items()]
    title = f"Distance to the certified optimum, space {space}, median of all runs"
    return draw(curves, title, ("evaluations", "time (s)")[axis], "share of the optimum that is missing")
