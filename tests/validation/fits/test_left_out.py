"""Fits without some rows: what is left out decides nothing, and what is fitted is told by frameworks themselves."""

from dataclasses import replace

import numpy as np
import pytest

from phaze.cost.fidelity import Fidelity
from phaze.cost.kernels.expert_exchanges import ExchangeLaw
from phaze.cost.kernels.expert_layers import FUSED, expert_layer
from phaze.cost.kernels.fitted_constants import Constants
from phaze.cost.kernels.kernel_laws import kernels_s
from phaze.hardware.architecture import load_architecture, to_table
from phaze.hardware.cluster_network import load_network
from phaze.parallel.cluster import Cluster
from phaze.parallel.framework import Framework, list_frameworks, load_framework
from phaze.parallel.parallel_plan import ParallelPlan
from phaze.validation.data_set_registry import DATA_SETS, DataSet, Metric
from phaze.validation.fits.frameworks_left_out import Constant, FittedRuns, elsewhere, fitted_to
from phaze.validation.fits.kernels_left_out import _Fits, refitted
from phaze.validation.fits.least_absolute import percent, refit, worst
from phaze.validation.fits.measured_parts import MeasuredKernels, MeasuredRouting, parts_of
from phaze.validation.measured.measured_cases import Judged, Row
from phaze.validation.measured.measured_systems import system_of
from phaze.validation.measured.published_models import gpt
from phaze.validation.measured.published_runs import PublishedRun, best_iteration, estimator
from phaze.validation.measured.single_operators import product
from phaze.validation.model_validation import Compared, _figures
from phaze.validation.sets.kernels.exchange_measurements import RoutedExchange

TITLE = "e2e_torchtitan time"


def test_a_refit_finds_the_change_that_explains_most_rows():
    rng = np.random.default_rng(1)
    slopes, change = rng.normal(size=(60, 2)), np.array([0.3, -0.2])
    errors = -slopes @ change
    errors[::10] += 2.0  # rows that no constant explains
    assert refit(errors, slopes) == pytest.approx(change, abs=0.03)


def test_constants_that_no_row_tells_stay():
    assert refit(np.full(5, 0.4), np.zeros((5, 1))) == pytest.approx([0.0])


def test_frameworks_name_their_own_fields_and_known_comparisons():
    known = {f"{one.name} {one.metric}" for one in DATA_SETS}
    for framework in map(load_framework, list_frameworks()):
        for one in framework.fitted:
            assert one.to in known, framework.name
            assert all(type(getattr(framework, name)) is float for name in one.constants), framework.name


def test_a_framework_nobody_ran_takes_what_others_were_fitted_to():
    others = [load_framework(name) for name in list_frameworks()]
    fitted = [f.stretch for f in others if any("stretch" in o.constants and o.to != TITLE for o in f.fitted)]
    assert min(fitted) < elsewhere("stretch", TITLE) < max(fitted)
    assert elsewhere("exchange_launches", "e2e_nanotron_ultrascale time") == 0.0  # nothing else has some


def runs(framework, *chips):
    """Runs that take what the framework with a stretch of 1.3 says, on each of some chips."""
    cluster, plan = Cluster(8, 32, load_network("hgx-h100")), ParallelPlan(4, data_parallel=8)
    workload = gpt(4, 1024, 16, 50304, 1024, framework.attention, framework.fusion, "bf16")
    for chip in map(load_architecture, chips):
        true = PublishedRun(chip, workload, cluster, framework.model_copy(update={"stretch": 1.3}), plan, 1.0)
        seconds = best_iteration(true, estimator(true, Fidelity.CALIBRATED)).iteration_s
        yield replace(true, framework=framework, measured=seconds)


def test_a_constant_is_fitted_again_without_a_device():
    framework = load_framework("torchtitan-2024").model_copy(update={"stretch": 1.2})
    fitted = FittedRuns(TITLE, list(runs(framework, "h100", "h200", "h100-96gb")))
    stretch = Constant("stretch", 1.2, frozenset({"torchtitan-2024"}))
    assert stretch in fitted.constants
    shipped, left = percent(fitted.errors({})), fitted.left_out()
    assert left["device"].error_pct < shipped / 3
    assert left["run"].error_pct == pytest.approx(left["device"].error_pct, rel=0.5)
    assert "torchtitan-2024" in left["framework"].most
    assert "stretch 1.2 -> " in left["framework"].most
    exact = fitted.errors({stretch: 1.3})
    assert percent(exact) == pytest.approx(0.0, abs=1e-6)


def test_a_framework_without_fitted_constants_has_nothing_to_leave_out():
    plain = Framework(name="plain", source="")
    assert fitted_to(plain, TITLE) == ()
    assert FittedRuns(TITLE, list(runs(plain, "h100"))).left_out() == {}


def kernels(chip, factor):
    chip = load_architecture(chip)
    works = [product(1, m, 4096, 4096) for m in (256, 1024, 4096, 8192)]
    seconds = kernels_s(works, to_table([chip]), Fidelity.CALIBRATED)[0]
    return MeasuredKernels.of("x", [Row(chip, (w,), factor * s) for w, s in zip(works, seconds, strict=True)])


def test_a_law_follows_its_donors_alone():
    one = kernels("h200", 1.4)
    (file,) = one.files
    start = one.law(file, "hopper")
    assert np.abs(one.errors({})).mean() == pytest.approx(np.log(1.4))
    new = refitted(file, start, [one])
    assert np.abs(one.errors({file: new})).mean() < np.log(1.4) / 4


def experts(tokens):
    up, down = (product(8, tokens // 4, k, n).gemms[0] for k, n in ((1024, 4096), (2048, 1024)))
    return expert_layer(FUSED, 2 * tokens, 2.0 * tokens, up, down)


def expert_layers(chip, factor):
    """Layers of experts, which need the law of their grouped products beside that of products."""
    chip, works = load_architecture(chip), [experts(tokens) for tokens in (256, 1024, 4096)]
    seconds = kernels_s(works, to_table([chip]), Fidelity.CALIBRATED)[0]
    return MeasuredKernels.of("y", [Row(chip, (w,), factor * s) for w, s in zip(works, seconds, strict=True)])


def test_a_law_that_no_row_needs_alone_is_fitted_beside_others():
    parts = [
        expert_layers("h200", 1.3),
        expert_layers("gb200", 1.3),
        kernels("h200", 1.0),
        kernels("gb200", 1.0),
    ]
    (grouped,) = parts[0].files - parts[2].files
    assert parts[0].alone(grouped) is None
    assert len(parts[0].needing(grouped).rows) == 3
    found = _Fits(parts).left_out(parts[:2], "device")
    assert found is not None
    assert found.error_pct < percent(parts[0].errors({}))


def test_what_adds_most_is_whose_rows_grow_most_together():
    fitted, left = np.log([1.1, 1.1, 1.1, 1.0]), np.log([1.2, 1.2, 1.2, 1.25])
    assert worst(["a", "a", "a", "b"], fitted, left) == "a (3 of 4 rows): 10.0 -> 20.0 %"
    assert worst(["a", "b", "b", "b"], fitted, left) == "b (3 of 4 rows): 6.7 -> 21.7 %"


def judged_in(metric):
    """A comparison of the kernels' rows by some metric."""
    judged = Judged(np.ones(4), {Fidelity.ANALYTIC: np.ones(4)}, {}, kernels("h200", 1.0).rows)
    figures = _figures(DataSet("x", metric, lambda _: judged), judged, Fidelity.ANALYTIC)
    return Compared(judged, {Fidelity.ANALYTIC: figures})


def test_only_what_is_judged_in_seconds_tells_of_seconds():
    (part,) = parts_of(judged_in(Metric.LATENCY))
    assert part.rows == kernels("h200", 1.0).rows
    assert not list(parts_of(judged_in(Metric.POWER_SHORT)))


def test_a_source_is_left_out_with_all_its_metrics():
    one = kernels("h200", 1.3)
    same, other = replace(one, title="x latency_backward"), replace(one, title="y")
    assert _Fits([one, same]).left_out([one], "source") is None
    found = _Fits([one, same, other]).left_out([one], "source")
    assert found is not None
    assert "by other sets of hopper" in found.most
    assert found.error_pct < percent(one.errors({}))


def routed(name, *tokens):
    """Exchanges by DeepEP on a system, in exactly the time that its law says with half of the links' efficiency."""
    file, system = "deepep_low_latency.yaml", system_of(name)
    law = Constants(system.family).law(ExchangeLaw, file)
    true = Constants(system.family, {file: {"efficiency": law.efficiency / 2}})
    for number in tokens:
        sizes = {
            "num_tokens": number,
            "hidden_size": 7168.0,
            "topk": 8.0,
            "node_num": 1.0,
            "dispatch_sms": 0.0,
            "combine_sms": 0.0,
        }
        one = RoutedExchange(system, name, "wideep_deepep_ll", "ll", "", sizes, 1.0)
        yield replace(one, measured_s=one.seconds(true))


def test_constants_of_exchanges_are_fitted_again_without_a_system():
    sizes = (64.0, 128.0, 512.0, 1024.0, 4096.0)
    parts = [
        MeasuredRouting.of("kernels_alltoall latency", list(routed(name, *sizes)))
        for name in ("gb200", "gb300")
    ]
    shipped = percent(np.concatenate([part.errors({}) for part in parts]))
    left = _Fits(parts).left_out(parts, "device")
    assert shipped > 20
    assert left is not None
    assert left.error_pct < shipped / 4
    assert _Fits(parts[:1]).left_out(parts[:1], "device") is None  # nothing else to be fitted to
