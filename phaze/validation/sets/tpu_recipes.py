"""Training runs of Google's recipes for TPUs, by the log line that each of them shows."""

from __future__ import annotations

from phaze.validation.cases import Judged
from phaze.validation.chips import chip_of
from phaze.validation.columns import Columns
from phaze.validation.maxtext_job import Job, built
from phaze.validation.published import dimensions_of
from phaze.validation.sets.maxtext import NO_MODEL, NO_NETWORK, NO_SIZES
from phaze.validation.sets.products import NO_TEMPLATE, UNKNOWN_FORMAT
from phaze.validation.slices import least_slices
from phaze.validation.training import Runs

PARTED = "less than one sequence per chip: layout not given"


def training(columns: Columns) -> Judged:
    """Iterations of models whose dimensions the library has, in 16 bits."""
    runs = Runs()
    chips, length, step = (columns.numbers(name) for name in ("n_chips", "seq_len", "step_s"))
    batches, at_once = columns.numbers("global_batch"), columns.numbers("tokens_per_step")
    for row, (name, model, precision) in enumerate(
        zip(columns["chip"], columns["model"], columns["precision"], strict=True)
    ):
        samples = batches[row] if batches[row] > 0 else at_once[row] / length[row]
        if not (chips[row] > 0 and samples > 0 and step[row] > 0):
            runs.drop(NO_SIZES)
            continue
        chip, tokens, count = chip_of(name), int(length[row]), int(chips[row])
        dimensions = dimensions_of(model, tokens)
        if chip is None or dimensions is None:
            runs.drop(NO_TEMPLATE if chip is None else NO_MODEL)
        elif precision != "bf16" or samples < count:
            runs.drop(PARTED if precision == "bf16" else UNKNOWN_FORMAT)
        else:
            job = Job(
                chip,
                built(dimensions, tokens),
                count,
                slices=least_slices(chip, count),
                batch=round(samples / count),
                tensor=1,
                policy="",
            )
            run = job.run(float(step[row]))
            runs.drop(NO_NETWORK) if run is None else runs.keep(run)
    return runs.judge()
