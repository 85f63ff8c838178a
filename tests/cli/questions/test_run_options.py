"""The searches, frontiers and questions of `dse run`, each once for real through the command line."""

from __future__ import annotations

import json

import pytest
from small_cases import DECODER

from phaze.explore.documents.result_document import ResultDocument

SPACE = """
schema_version: 1
name: few
axes:
  - {fields: [tensor_cores], values: [1, 2, 4]}
  - {fields: [tensor_core_rows], values: [32, 128]}
  - {fields: [vector_cores], values: [1, 4]}
"""
SHALLOW = DECODER.replace("layers: 4", "layers: 2")
QUESTION = ("run", "-w", "tiny.yaml", "--space", "few.yaml", "--global-batch", "2", "-q")
TASK = (*QUESTION, "--devices", "2")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("asked")
    (folder / "tiny.yaml").write_text(SHALLOW)
    (folder / "twin.yaml").write_text(SHALLOW.replace("name: tiny", "name: twin"))
    (folder / "few.yaml").write_text(SPACE)
    return folder


@pytest.fixture(autouse=True)
def where_the_files_are(folder, monkeypatch):
    monkeypatch.chdir(folder)


@pytest.fixture
def result(dse, tmp_path):
    """The document that a run prints, also as the tables show it."""

    def call(*options):
        folder = tmp_path / f"run{len(list(tmp_path.iterdir()))}"
        code, out, err = dse(*TASK, *options, "--out", folder, "--json")
        assert (code, err) == (0, "")
        return ResultDocument.model_validate_json(out)

    return call


@pytest.fixture
def shown(capfd):
    """The tables of a document in 80 columns."""
    from phaze.cli.questions.run import show

    def call(document, folder):
        show(document, folder, json=False, quiet=True)
        text = capfd.readouterr().out
        assert max(len(line) for line in text.splitlines()) <= 80
        return text

    return call


@pytest.mark.parametrize("name", ["phaze", "random", "tpe", "nsga2"])
def test_a_strategy_answers_with_what_it_found_and_its_distance(result, shown, folder, name):
    document = result("--strategy", name, "--evaluations", 3)
    report, certificate = document.strategy, document.certificate
    assert report.strategy == document.request["strategy"]["name"] == name
    assert 1 <= report.evaluations <= 3
    assert report.distance.proven
    assert certificate.objective_value == pytest.approx(report.best_value, rel=1e-9)
    assert report.best_value <= certificate.upper_bound * (1 + 1e-9)
    assert certificate.upper_bound == pytest.approx(report.distance.certified, rel=1e-9)
    text = shown(document, folder)
    assert text.startswith(f"--strategy {name} found {document.best.id}")
    assert "The best accelerator" not in text
    better = report.distance.certified / report.best_value - 1.0
    expected = f"{100 * better:.1f} % better" if better > 1e-9 else "no design in this space is better"
    assert expected in " ".join(text.split())
    assert "frontier complete yes" in " ".join(
        text.split()
    ) or "it holds what the strategy evaluated" in " ".join(text.split())
    assert "the certified search proves that" in " ".join(
        text.split()
    ) or "the certified optimum is" in " ".join(text.split())


def test_wham_tells_its_steps_and_its_pipeline(result, shown, folder):
    document = result("--strategy", "wham", "--designs", "per-stage", "--top-k", 2)
    told = document.wham
    assert (told.designs, told.top_k) == ("per-stage", 2)
    assert told.per_stage.value >= told.one.value * (1 - 1e-9)
    text = shown(document, folder)
    for title in ("WHAM on tiny", "Stages of microbatch", "A design per stage", "Its improvements"):
        assert title in text
    assert text.count("stage 1 ") == 1


def test_a_strategy_for_several_workloads(result, shown, folder):
    document = result("-w", "twin.yaml", "--strategy", "random", "--evaluations", 3)
    assert document.strategy.best_value <= document.certificate.upper_bound * (1 + 1e-9)
    told = shown(document, folder)
    assert told.index("One design for all") < told.index("Architecture")  # the answer and its regret first


def test_a_frontier_on_other_axes(result, shown, folder):
    document = result("--objective", "area", "--axes", "throughput, cost_per_chip ,memory")
    assert document.request["axes"] == ["area", "throughput", "cost_per_chip", "memory"]
    assert document.certificate.optimal
    assert 1 / document.certificate.objective_value == pytest.approx(document.best.area_mm2)
    text = shown(document, folder)
    assert "by least area" in " ".join(text.split())
    assert "Frontier on area, throughput, cost per chip, memory" in " ".join(text.split())
    assert "USD" in text


@pytest.mark.parametrize(
    ("objective", "unit"),
    [
        ("energy_per_sample", " J"),
        ("memory", "iB"),
        ("cost_per_chip", " USD"),
        ("carbon_per_million_tokens", " kg CO2e"),
    ],
)
def test_a_minimised_objective_is_shown_in_its_unit(result, shown, folder, objective, unit):
    document = result("--objective", objective)
    assert document.certificate.optimal
    (line,) = [row for row in shown(document, folder).splitlines() if row.startswith("objective ")]
    assert line.rstrip().endswith(unit)


def test_money_is_that_of_the_figures_that_are_given(result, shown, folder):
    (folder / "own.yaml").write_text("volume_chips: 1e6\nseller_gross_margin: 0.5\n")
    given = ("--economics", "own.yaml", "--volume", 2e6, "--carbon-intensity", "france", "--samples", 1000)
    document = result("--objective", "cost_per_sample", *given)
    assert document.request["economics"] == {
        "volume_chips": 2e6,
        "seller_gross_margin": 0.5,
        "carbon_intensity_kg_per_kwh": 0.057,
    }
    cost, run = document.best.workloads["tiny"].cost, document.training_run
    making = sum(cost.cost_parts_usd[part] for part in ("dies", "memory", "packaging", "bonding", "module"))
    assert cost.cost_parts_usd["margin"] == pytest.approx(making + cost.cost_parts_usd["design"])
    assert 1 / document.certificate.objective_value == pytest.approx(cost.cost_per_sample_usd)
    assert run.total_usd == pytest.approx(1000 * cost.cost_per_sample_usd)
    assert run.chips_usd == pytest.approx(1000 * making)
    text = " ".join(shown(document, folder).split())
    for words in ("by least cost per sample", "cost per million tokens", "margin of their seller"):
        assert words in text


def test_the_robust_answer_is_beside_the_certified_one(result, shown, folder):
    document = result("--power", "230W", "--robust")
    robustness = document.robustness
    assert robustness.winner == document.best.id
    assert robustness.designs[0].tdp_w <= 230
    assert "Constants that were varied together" in shown(document, folder)


def test_fixed_fields_density_and_clock(result):
    free = result("--fix", "tensor_cores=4", "--fix", "vector_cores=1")
    assert free.best.architecture["tensor_cores"] == 4
    assert free.best.architecture["vector_cores"] == 1
    density = free.best.tdp_w / free.best.area_mm2
    held = result("--fix", "tensor_cores=4", "--dvfs", "--power-density", f"{density * 0.9}W/mm2")
    assert held.best.tdp_w / held.best.area_mm2 <= density * 0.9 * (1 + 1e-9)
    assert held.best.architecture["clock_hz"] < free.best.architecture["clock_hz"]


def test_a_sweep_holds_fields_and_lowers_clocks(dse, tmp_path):
    words = ("sweep", "-w", "tiny.yaml", "--space", "few.yaml", "--devices", "2", "-q", "--trials", "6")
    limits = ("--fix", "tensor_cores=4", "--power", "150W", "--dvfs", "--power-density", "0.6W/mm2")
    code, out, err = dse(*words, *limits, "--json", "--out", tmp_path / "swept")
    assert (code, err) == (0, "")
    designs = json.loads(out)["frontier"]
    assert {d["architecture"]["tensor_cores"] for d in designs} == {4}
    assert all(d["tdp_w"] <= 150 and d["tdp_w"] / d["area_mm2"] <= 0.6 for d in designs)


def test_a_power_may_be_one_that_boards_sustain(result, shown, folder):
    limit = result().best.workloads["tiny"].drawn_w * 0.8
    document = result("--power", f"{limit}W", "--power-means", "sustained")
    best = document.best
    assert best.workloads["tiny"].drawn_w <= limit * (1 + 1e-9) < best.tdp_w
    assert document.request["power_means"] == document.manifest.asked.options["power_means"] == "sustained"
    assert "clock_hz" in best.architecture
    text = " ".join(shown(document, folder).split())
    assert "--power limits what is drawn on this workload" in text
    assert "W drawn, " in text
    assert "W at full load; " in text
    assert "TDP" in text
    assert "power drawn" in text


def test_a_sweep_keeps_what_boards_draw(dse, tmp_path):
    words = ("sweep", "-w", "tiny.yaml", "--space", "few.yaml", "--devices", "2", "-q", "--trials", "8")
    options = (
        "--objectives",
        "throughput,energy_per_sample",
        "--power",
        "110W",
        "--power-means",
        "sustained",
    )
    code, out, err = dse(*words, *options, "--json", "--out", tmp_path / "swept")
    assert (code, err) == (0, "")
    told = json.loads(out)
    found = [d["workloads"]["tiny"] for d in told["frontier"]]
    drawn = [d["energy_per_iteration_j"] / d["iteration_time_s"] / 2 for d in found]
    assert drawn
    assert max(drawn) <= 110
    assert told["request"]["power_means"] == "sustained"
    code, _, err = dse(*words, *options[:3], "5W", *options[4:], "--out", tmp_path / "none")
    assert code == 3
    assert "draw more than 5 W" in err


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ("--power-means sustained", "says what --power limits: give one"),
        ("--power 90W --power-means peak", "choose one of tdp, sustained"),
        ("--power 90W --power-means sustained --dvfs", "leave out --dvfs"),
        ("--power 90W --power-means sustained --robust", "a search without --robust"),
        ("--power 90W --power-means sustained -w twin.yaml", "one --workload"),
        ("--strategy tap", "choose from certified, phaze, wham, random, tpe, gp, nsga2, cmaes"),
        ("--strategy random --cluster-power 1kW", "leave out --devices"),
        ("--cluster-cost 9e3", "--cluster-cost leaves the number of devices free"),
        ("--evaluations 5", "--evaluations is for a search without proof"),
        ("--designs per-stage", "--designs needs --strategy wham"),
        ("--space system --objective tdp", "space system searches networks, too, which is for --objective"),
        ("--space system --cluster-power 1kW", "leave out --devices"),
        ("--space system --dvfs --power 400W", "leave out --dvfs"),
        ("--space system --strategy random", "the certified search: leave out --strategy"),
        ("--space system --network tpu-v4-pod", "tpu-v4-pod has no domains of any size"),
        ("--designs 2 --objective tdp", "--designs 2 is for --objective throughput alone"),
        ("--designs 2 --strategy wham", "--designs 2 is for the certified search"),
        ("--designs 2 -w twin.yaml", "--designs 2 is for one --workload"),
        ("--strategy random --top-k 3", "--top-k needs --strategy wham"),
        ("--designs 3", "--designs '3' is not known"),
        ("--strategy wham --designs two", "--designs 'two' is not known"),
        ("--strategy wham --objective tdp", "--strategy wham maximises"),
        ("--strategy wham --designs per-stage -w twin.yaml", "per-stage is for one --workload"),
        ("--strategy random --objective area", "--objective area is for the certified search"),
        ("--objective memory -w twin.yaml", "--objective memory is for one --workload"),
        ("--axes watts", "unknown metric 'watts'; choose from throughput"),
        ("--axes score", "--axes score is for several workloads"),
        ("--axes area -w twin.yaml", "--axes is for one --workload"),
        ("--axes area --strategy tpe", "--axes is for the certified search"),
        ("--robust -w twin.yaml", "--robust is for one --workload"),
        ("--robust --strategy tpe", "leave out --strategy"),
        ("--robust --objective area", "not --objective area"),
        ("--robust --max-latency 1s", "--robust knows no floor"),
        ("--fix tensor_cores=3", "it offers 1, 2, 4"),
        ("--fix tensor_cores", "is not FIELD=VALUE"),
        ("--power-density 5", "--power-density"),
    ],
)
def test_what_makes_no_sense_is_one_sentence(dse, tmp_path, options, sentence):
    code, out, err = dse(*TASK, *options.split(), "--out", tmp_path / "run")
    assert (code, out) == (2, "")
    assert sentence in err
    assert err.count("\n") == 1
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("option", ["--strategy random", "--axes area", "--robust", "--objective area"])
def test_a_cluster_goes_with_none_of_them(dse, option):
    code, _, err = dse(*QUESTION, "--cluster-power", "1kW", *option.split())
    assert code == 2
    assert "--cluster-power" in err
    code, _, err = dse(*QUESTION, "--cluster-cost", "9e4", *option.split())
    assert code == 2
    assert "--cluster-cost" in err


@pytest.fixture(scope="module")
def per_stage(folder):
    """A space whose stages may differ, by the name of its file."""
    (folder / "stages.yaml").write_text(SPACE + "stages: heterogeneous\n")
    return "stages.yaml"


def test_a_space_whose_stages_may_differ_gets_a_design_for_each(dse, tmp_path, per_stage):
    words = ("run", "-w", "tiny.yaml", "--space", per_stage, "--global-batch", "2", "--devices", "2", "-q")
    run = tmp_path / "run"
    code, out, err = dse(*words, "--fix", "vector_cores=1", "--json", "--out", run)
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert found["request"]["strategy"]["name"] == "wham"
    assert found["wham"]["designs"] == "per-stage"
    assert found["wham"]["per_stage"]["throughput_samples_per_s"] > 0
    assert dse("explain", run, "-q")[0] == 0


@pytest.mark.parametrize(
    ("verb", "options", "sentence"),
    [
        ("run", "--strategy random", "which --strategy wham searches, not random"),
        ("run", "--axes area", "set stages: alike for other questions"),
        ("run", "-w twin.yaml", "for one --workload"),
        ("run", "--objective tdp", "--strategy wham maximises throughput or throughput_per_tdp, not tdp"),
        ("sweep", "", "which dse run searches"),
    ],
)
def test_what_cannot_let_stages_differ_says_so(dse, tmp_path, per_stage, verb, options, sentence):
    words = (verb, "-w", "tiny.yaml", "--space", per_stage, "--devices", "2", "-q")
    code, out, err = dse(*words, *options.split(), "--out", tmp_path / "run")
    assert (code, out) == (2, "")
    assert sentence in err
    assert err.count("\n") == 1


def test_a_cluster_within_an_amount_of_money(dse, tmp_path):
    run = tmp_path / "run"
    fixed = ("--fix", "vector_cores=1")
    code, out, err = dse(*QUESTION, *fixed, "--cluster-cost", "5e3", "-q", "--json", "--out", run)
    assert (code, err) == (0, "")
    cluster = json.loads(out)["cluster"]
    assert cluster["cost_usd"] <= cluster["cost_budget_usd"] == 5000
    assert cluster["power_budget_w"] is None
    assert [c["price_per_device_usd"] * c["devices"] for c in cluster["choices"]] == pytest.approx(
        [5000] * len(cluster["choices"])
    )
    assert dse("certify", run, "--samples", 2, "-q")[0] == 0


def test_a_missing_package_is_named_with_its_pip_line(dse, monkeypatch):
    monkeypatch.setattr("phaze.explore.sampling.sampled_study.find_spec", lambda package: None)
    for name in ("gp", "cmaes"):
        code, _, err = dse(*TASK, "--strategy", name)
        assert code == 2
        assert f"pip install '.[{name}]' in a clone of phaze" in err


def test_runs_are_checked_and_explained_again(dse, tmp_path):
    run = tmp_path / "random"
    assert (
        dse(*TASK, "--strategy", "random", "--evaluations", 4, "--fix", "vector_cores=1", "--out", run)[0]
        == 0
    )
    code, out, _ = dse("certify", run, "--samples", 3, "-q", "--json")
    assert code == 0, [c for c in json.loads(out)["checks"] if not c["passed"]]
    assert json.loads(out)["passed"]
    code, out, _ = dse("explain", run, "-q", "--json")
    assert code == 0
    assert {n["axis"] for n in json.loads(out)["neighbours"]} <= {"tensor_cores", "tensor_core_rows"}
