"""Training on Gaudi by the tests of optimum-habana: cases whose batch and lengths its test sources tell.

Batch, lengths and sharding: tests/configs/examples of the repository; sequences of run_clm.py are blocks of 1,024
tokens, those of run_mlm.py 512, where nothing else is asked for.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from phaze.parallel.cluster import Cluster, Recompute
from phaze.parallel.framework import Framework, load_framework
from phaze.parallel.parallel_plan import ParallelPlan, Zero
from phaze.validation.measured.measured_cases import Judged
from phaze.validation.measured.measured_systems import chip_of, network_of
from phaze.validation.measured.measurement_columns import Columns
from phaze.validation.measured.published_models import decoder, dimensions_of, gpt
from phaze.validation.measured.published_runs import PublishedRun, PublishedRuns
from phaze.validation.sets.kernels.gemm_measurements import NO_TEMPLATE
from phaze.workload.workload import Workload
from phaze.workload.workload_library import builtin_spec
from phaze.workload.workload_loader import LoadOptions, workload_of

INFERENCE = "inference, or not a language model"
TOTAL = "time of a whole job, its compilation included"
NOT_TOLD = "adapters, prompts or a head that the families lack"
TWICE = "two values under one name"
_METRIC = "train_samples_per_second"
_CARDS: Mapping[str, int] = MappingProxyType({"single_card": 1, "multi_card": 8, "deepspeed": 8})


@dataclass(frozen=True)
class _Case:
    """A model, tokens of its sequences, sequences of each card, and what divides and recomputes."""

    model: str
    tokens: int
    batch: int
    recompute: Recompute = Recompute.NONE
    zero: Zero = Zero.NONE


_ZERO2 = Zero.GRADIENTS
_CASES: Mapping[str, _Case] = MappingProxyType(
    {
        "mlm_roberta-large_multi_card": _Case("bert-large", 512, 16),
        "clm_gpt2-xl_deepspeed": _Case("gpt2-xl", 1024, 16, Recompute.FULL, _ZERO2),
        "clm_CodeLlama-13b-Instruct-hf_deepspeed": _Case(
            "LLAMA 2 13B", 1024, 48, Recompute.FULL, Zero.OPTIMIZER
        ),
        "clm_gpt-neox-20b_deepspeed": _Case("gpt-neox-20b", 1024, 2, Recompute.FULL, _ZERO2),
        "clm_gemma-2b-it_single_card": _Case("gemma-2b", 1024, 4),
        "clm_gemma-2b-it_multi_card": _Case("gemma-2b", 1024, 4),
        "clm_gemma-2b-it_deepspeed": _Case("gemma-2b", 1024, 4, zero=_ZERO2),
    }
)
"""Cases of Gaudi 2, by the end of their test's name."""

_TRAINS = re.compile(r"test_run_(clm|mlm|qa|glue|lora_\w+|prompt_tuning\w*)_")


def training(columns: Columns) -> Judged:
    """Seconds per iteration: sequences of all cards over the measured sequences per second."""
    runs = PublishedRuns()
    names = list(zip(columns["test"], columns["device"], columns["metric"], strict=True))
    several = Counter(names)
    for row, (name, value) in enumerate(zip(names, columns.numbers("value").tolist(), strict=True)):
        test, device, metric = name
        case = _CASES.get(test.removeprefix("test_run_"))
        if not _TRAINS.match(test):
            runs.drop(INFERENCE)
        elif metric != _METRIC:
            runs.drop(TOTAL)
        elif (chip := chip_of(device)) is None:
            runs.drop(NO_TEMPLATE)
        elif case is None or columns["suite"][row] != "examples":
            runs.drop(NOT_TOLD)
        elif several[name] > 1:
            runs.drop(TWICE)
        else:
            cards = next(n for kind, n in _CARDS.items() if test.endswith(kind))
            framework = load_framework("optimum-habana-2024")
            plan = ParallelPlan(case.batch, data_parallel=cards, recompute=case.recompute, zero=case.zero)
            cluster = Cluster(cards, cards * case.batch, network_of("hls2-gaudi2"))
            seconds = cards * case.batch / value
            runs.keep(PublishedRun(chip, _workload(case, framework), cluster, framework, plan, seconds))
    return runs.judge()


def _workload(case: _Case, framework: Framework) -> Workload:
    """The model of a case in 16 bits, with sequences of its length."""
    if case.model == "gpt-neox-20b":  # Black et al., arXiv 2204.06745, Table 1
        return gpt(
            44, 6144, 64, 50432, case.tokens, framework.attention, framework.fusion, "bf16", 0.0, tied=False
        )
    if (dimensions := dimensions_of(case.model, case.tokens)) is not None:
        return decoder(dimensions, case.tokens, framework.attention, framework.fusion)
    content = {
        **builtin_spec(case.model).model_dump(mode="json", exclude_none=True),
        "sequence_length": case.tokens,
        "precision": "bf16",
    }
    return workload_of(
        content, case.model, LoadOptions(attention=framework.attention, fusion=frozenset(framework.fusion))
    )
