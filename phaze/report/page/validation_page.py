"""The validation page: a table of errors on every rung, peers beside them, and a picture per comparison."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from phaze.cost.fidelity import Fidelity
from phaze.report.charts.svg_charts import draw_scatter
from phaze.report.terminal.check_tables import left_out
from phaze.runs.atomic_files import make_folder, write_atomically
from phaze.validation.model_validation import Compared
from phaze.validation.pooled_errors import pooled, written
from phaze.validation.stated_errors import FILE, KINDS, Stated, StatedError
from phaze.validation.validation_document import Comparison

PAGE = "validation.md"
PICTURES = "validation"
_SHOWN = (Fidelity.ANALYTIC, Fidelity.CALIBRATED)
_UNITS = {"area": "mm2", "power": "W", "memory": "byte or share", "energy": "J", "clock": "Hz"}
_TITLE = """# The model against measured hardware
"""
_HEAD = """
## Every data set

Mean absolute errors in per cent, over the rows of a data set whose chip is represented here: *rows* tells how many of
the file's these are, and why the others are not stands below. *Median*, *p90* (nine of ten are closer), *bias* (mean
error with its sign) and *rank* correlation are those of the best rung, whose predictions are drawn below; dashed lines
are 20 % off.

*Left out*: errors on rows that no constant was fitted to. Constants are fitted again without each *device* in turn
(from the other devices of its family where there are any, else from all families), without each *source* (data set),
and without each *run* (or twelfth of the runs). *Framework*: constants are those fitted to other frameworks, or none,
which is what your own framework meets. These fits take at most 120 rows of a set and device
([how](decisions/0050-left-out-of-the-fit.md)). *Peers*: published models on the same set, on its published and on its
held-out half.

The rows of `e2e_vtrain_single_node` are composed of some 24 times of blocks and a table of all-reduces, not timed one
by one ([why](decisions/0023-megatron-deepspeed.md)): their error is the distance to that composition, not to hardware.

| data set | rows | roofline | analytic | calibrated | median | p90 | bias | rank | left out | peers |
|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|---|
"""


def write_page(folder: Path, compared: Sequence[Compared]) -> Path:
    """Write the page and its pictures into a folder; returns the page's path."""
    rows, pictures = [], []
    make_folder(folder / PICTURES)
    for one in compared:
        best = _best(one)
        if best is None:
            continue
        rows.append(_row(one, best))
        if best.f1 is not None:
            continue
        name = f"{one.title.replace(' ', '-')}.svg"
        unit = _UNITS.get(best.metric.value, "cycles" if best.name.startswith("systolic") else "s")
        drawing = draw_scatter(
            one.judged.measured, one.judged.predicted[best.rung], f"{one.title}, {best.rung.value}", unit
        )
        write_atomically(folder / PICTURES / name, drawing)
        pictures.append(f"![{one.title}]({PICTURES}/{name})")
    excluded = _excluded(compared)
    stated = pooled(compared)
    write_atomically(folder / FILE, written(stated))
    text = (
        _TITLE
        + taken_home(stated, compared)
        + _HEAD
        + "\n".join(rows)
        + "\n\n"
        + further_off(compared)
        + excluded
        + "\n\n"
        + "\n".join(pictures)
        + "\n"
    )
    write_atomically(folder / PAGE, text)
    return folder / PAGE


def taken_home(stated: Stated, compared: Sequence[Compared]) -> str:
    """What a reader takes home, as Markdown: a line for each kind of figure, and where the model is worst."""
    lines = [_taken(name, by_rung) for name, by_rung in stated.items()]
    if not lines:
        return ""
    return f"\n{_INTRODUCED}\n" + "\n".join(lines) + f"\n\n{_framed(compared)}{_ADVICE}\n"


_INTRODUCED = (
    "How far the model is from what others measured and published, and what we measured (`gpu_`).\n"
    "Half of all cases are closer than the first figure, nine of ten closer than the second:\n\n"
    "| what is predicted | half within | nine of ten within | cases | fitted to the family of the chip |\n"
    "|---|--:|--:|--:|---|"
)


def _taken(name: str, by_rung: Mapping[Fidelity, StatedError]) -> str:
    kind, first = KINDS[name], next(iter(by_rung.values()))
    fitted = by_rung.get(Fidelity.CALIBRATED)
    beside = (
        "-"
        if fitted is None
        else f"{fitted.median_pct:.1f} and {fitted.p90_pct:.1f} %, {fitted.rows:,} cases"
    )
    cases = f"{first.rows:,} {kind.counted}"
    return f"| {kind.words} | {first.median_pct:.1f} % | {first.p90_pct:.1f} % | {cases} | {beside} |"


def _framed(compared: Sequence[Compared]) -> str:
    """Under software that no constant was fitted to."""
    found = [c.unseen_pct["framework"] for c in map(_best, compared) if c and "framework" in c.unseen_pct]
    if not found:
        return ""
    return (
        f"Under a framework that no constant was fitted to, the mean error of a set of runs is {min(found):.0f} to "
        f"{max(found):.0f} %.\n"
    )


FURTHER = 1.3
"""Times its error on fitted rows from which an error on left-out ones is explained."""


def further_off(compared: Sequence[Compared]) -> str:
    """Comparisons more than `FURTHER` times as far off on rows that were left out of the fit, and what adds most."""
    judged = [one for one in map(_best, compared) if one and one.unseen_pct and one.mape_pct]
    lines = {one.title: list(_further(one)) for one in judged}
    sets = sum(map(bool, lines.values()))
    if not sets:
        return ""
    told = _FURTHER_OFF.format(sets=sets, judged=len(judged), times=FURTHER)
    rows = "\n".join(line for some in lines.values() for line in some)
    return f"{told}{rows}\n\n{_CAUSES}{_causes(judged)}\n\n"


def _causes(judged: Iterable[Comparison]) -> str:
    """Rows of a table: what stands in for a fit, in how many comparisons, and what it adds to their mean error."""
    added = defaultdict[str, list[float]](list)
    for one in judged:
        for kind, fitted, left in _grown(one):
            added[_cause(kind, one.unseen_most[kind])].append(left - fitted)
    largest = sorted(added.items(), key=lambda item: -sum(item[1]))
    return "\n".join(f"| {cause} | {len(more)} | {sum(more) / len(more):.1f} |" for cause, more in largest)


def _cause(kind: str, most: str) -> str:
    """What stands in for the constants that were fitted, where these rows are left out."""
    if kind == "framework":
        return "constants of other frameworks, or none"
    if "other families" in most:
        return f"other families, for want of another {kind} of the same"
    return f"other {'chips' if kind == 'device' else 'sets'} of the same family"


def _grown(one: Comparison) -> Iterator[tuple[str, float, float]]:
    """What is left out, the error where it is fitted, and the one where it is not."""
    fitted = one.mape_pct or 0.0
    for kind, left in one.unseen_pct.items():
        if left > FURTHER * fitted > 0:
            yield kind, fitted, left


def _further(one: Comparison) -> Iterator[str]:
    for kind, fitted, left in _grown(one):
        cells = (
            one.title,
            f"{fitted:.1f}",
            f"{kind} {left:.1f}",
            f"{left / fitted:.1f}",
            one.unseen_most[kind],
        )
        yield f"| {' | '.join(cells)} |"


_FURTHER_OFF = """## Further off without a fit

Of {judged} comparisons that constants were fitted to, {sets} are more than {times} times as far off where these rows
are left out. Whose rows grow most then, from which mean error to which, and what their constants were fitted to
instead; for a framework, its constants and what stands in for them (the default where no other framework has one):

| data set | fitted | left out | times | most of it |
|---|--:|--:|--:|---|
"""


_CAUSES = """What stands in for a fit there, by how much it adds to mean errors in all:

| instead | comparisons | adds, points |
|---|--:|--:|
"""


_ADVICE = (
    "A difference of a few per cent between two designs is within these errors; `dse run --robust` says how often the\n"
    "winner still wins when the constants of the model vary. Reports of runs show error bars beside the answer."
)


def _best(one: Compared) -> Comparison | None:
    """The comparison of the highest rung that says something."""
    for rung in (Fidelity.CALIBRATED, Fidelity.ANALYTIC):
        if (found := one.comparisons[rung]).rows:
            return found
    return None


def _row(one: Compared, best: Comparison) -> str:
    by_rung: Mapping[Fidelity, Comparison] = one.comparisons
    errors = [by_rung[Fidelity.ANALYTIC].roofline_mape_pct, *(by_rung[r].mape_pct for r in _SHOWN)]
    others = [best.median_ape_pct, best.p90_ape_pct, best.bias_pct]
    rank = "-" if best.rank_correlation is None else f"{best.rank_correlation:.3f}"
    peers = "; ".join(f"{p.peer} ({p.kind.value}) {_halves((p.published, p.held_out))}" for p in best.peers)
    cells = [
        one.title,
        f"{best.rows} of {best.rows + best.excluded}",
        *map(_percent, (*errors, *others)),
        rank if best.f1 is None else f"F1 {best.f1:.3f}",
        left_out(best),
    ]
    return f"| {' | '.join(cells)} | {peers} |"


def _halves(errors: tuple[float | None, float | None]) -> str:
    return " / ".join(_percent(e) for e in errors)


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _excluded(compared: Iterable[Compared]) -> str:
    lines, kept = [], [(one.title, one.comparisons[Fidelity.ANALYTIC]) for one in compared]
    for title, figures in kept:
        lines += [f"- {title}: {count} rows, {reason}" for reason, count in figures.excluded_reasons.items()]
    lines += [f"- {title}: {c.assumed} rows kept, their plan assumed" for title, c in kept if c.assumed]
    return "Rows left out:\n\n" + "\n".join(lines)
