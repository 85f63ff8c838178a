"""Training runs of MaxText (JAX) on TPU slices.

MaxText counts 6 FLOPs per parameter of a product and token, and attention as if nothing were masked: so do
`model_flops`, to the digits of rows that give tokens per second beside FLOP/s. Time of an iteration is that count over
the published rate.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from phaze.hardware.architecture import to_table
from phaze.hardware.derived import peak_flops_per_s
from phaze.validation.cases import Judged
from phaze.validation.chips import chip_of
from phaze.validation.columns import Columns
from phaze.validation.maxtext_job import Job, built
from phaze.validation.published import dimensions_of
from phaze.validation.sets.products import NO_TEMPLATE, UNKNOWN_FORMAT
from phaze.validation.slices import least_slices
from phaze.validation.training import Runs

NO_NETWORK = "no network of this chip"
NO_MODEL = "no dimensions of this model"
NO_SIZES = "no sequence length, no number of chips, or nothing measured"

_USUAL_TOKENS = 32768
"""Of a chip, where a row does not say how many: about what most published runs have."""


def training(columns: Columns) -> Judged:
    """Iterations of MaxText's own tables."""
    runs, said = Runs(), _Said(columns)
    for row in range(columns.rows):
        found = said.job(row)
        if isinstance(found, Job):
            run = found.run(said.iteration_s(row, found))
            runs.drop(NO_NETWORK) if run is None else runs.keep(run)
        else:
            runs.drop(found)
    return runs.judge()


_RATES = ("tokens_per_s_per_chip", "tflops_per_chip", "mfu_pct")


class _Said:
    """What the rows of MaxText's tables say."""

    _NUMBERS = (
        *_RATES,
        *("n_chips", "slices", "seq_len", "per_device_batch", "ici_tensor_parallel"),
        *("hidden", "layers", "heads", "ffn"),
    )

    def __init__(self, columns: Columns) -> None:
        self.columns = columns
        self.numbers = {name: columns.numbers(name) for name in self._NUMBERS}

    def number(self, row: int, name: str, otherwise: int = 1) -> int:
        """A count; `otherwise` where the row does not say it."""
        value = float(self.numbers[name][row])
        return otherwise if np.isnan(value) else int(value)

    def batch(self, row: int, tokens: int) -> float:
        """Sequences per chip."""
        said = float(self.numbers["per_device_batch"][row])
        return said if said > 0 else max(_USUAL_TOKENS // tokens, 1)

    def is_measured(self, row: int) -> bool:
        """Whether a row gives a rate."""
        return any(self.numbers[name][row] > 0 for name in _RATES)

    def job(self, row: int) -> Job | str:
        """The run of a row, or why there is none."""
        chip, tokens = chip_of(self.columns["chip"][row]), self.number(row, "seq_len", 0)
        chips = self.number(row, "n_chips", 0)
        if chip is None or not (tokens and chips and self.is_measured(row)):
            return NO_TEMPLATE if chip is None else NO_SIZES
        dimensions = dimensions_of(self.columns["model"][row], tokens) or self.dimensions(row, tokens)
        if dimensions is None or self.columns["precision"][row] not in ("", "bf16"):
            return NO_MODEL if dimensions is None else UNKNOWN_FORMAT
        return Job(
            chip,
            built(dimensions, tokens),
            chips,
            self.number(row, "slices", least_slices(chip, chips)),
            self.batch(row, tokens),
            self.number(row, "ici_tensor_parallel"),
            self.columns["remat"][row],
        )

    def dimensions(self, row: int, tokens: int) -> dict[str, Any] | None:
        """Dimensions of a model that MaxText scales from its base; None where the row has none.

        Where a row says nothing of heads and feed-forward, they are the base's of 2023: heads of 256, one product
        into the feed-forward half; with them models have the parameters that their names say.
        """
        note = self.columns["arch_note"][row]
        if not self.number(row, "hidden", 0):
            return None
        gated, head = "gated" in note, re.search(r"head_dim (\d+)", note)
        return {
            **{name: self.number(row, name) for name in ("layers", "hidden", "heads")},
            "head_size": int(head[1]) if head else 256,
            "ffn_hidden": self.number(row, "ffn"),
            "vocabulary": 32000,
            "max_positions": tokens,
            "gated": gated,
            "activation": "silu" if gated else "relu",
            **_FORM,
        }

    def iteration_s(self, row: int, job: Job) -> float:
        """Measured time of an iteration: tokens over their rate, or FLOPs over theirs."""
        rate, tokens = self.numbers["tokens_per_s_per_chip"][row], job.workload.sequence_length or 1
        if not np.isnan(rate):
            return job.batch * tokens / float(rate)
        flop_per_s = self.numbers["tflops_per_chip"][row] * 1e12
        if np.isnan(flop_per_s):
            peak = peak_flops_per_s(to_table([job.chip]))[0]
            flop_per_s = self.numbers["mfu_pct"][row] / 100 * peak
        return job.batch * job.workload.chain(1, 1).model_flops / float(flop_per_s)


_FORM: Mapping[str, Any] = MappingProxyType(
    {
        "norm": "rms",
        "norm_place": "pre",
        "bias": False,
        "positions": "rope",
        "tied_embeddings": False,
        "dropout": 0.0,
        "attention_dropout": 0.0,
    }
)
