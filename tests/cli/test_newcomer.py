"""What a newcomer types wrong, and the one sentence that puts it right."""

from __future__ import annotations

import json

import pytest


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        ("run gpt3", "write dse run --workload gpt3"),
        ("report nowhere", "no run at nowhere: nothing is there; dse runs lists what there is"),
        ("pareto nowhere", "no run at nowhere: nothing is there; dse runs lists what there is"),
        ("evaluate h100", "write dse evaluate --arch h100"),
        ("plan h100", "write dse plan --arch h100"),
        ("plan gpt3", "write dse plan --workload gpt3"),
        ("archs h100", "write dse archs show h100"),
        ("archs shw", "Did you mean 'show'?"),
        ("compare --arch h100,a100 -w bert-large", "name several one by one: h100 a100"),
        ("run -w bert-large --power 400w", "did you mean 400W?"),
        ("run -w bert-large --clock 1ghz", "did you mean 1GHz?"),
        ("whatif -a h100 -w bert-large --vary foo", "is not NAME=V1,V2,..."),
        ("whatif -a h100 -w bert-large --vary device=1,2", "did you mean devices"),
        ("whatif -a h100 -w bert-large --vary foo=1", "for instance devices=64,256"),
        ("evaluate -a h100 -w hf:meta/Llama", "download the model's config.json"),
        ("networks cost foo", "there are: default"),
        ("run -w gpt3,bert-large", "one by one: --workload gpt3 --workload bert-large"),
        ("run -w bert-large --weight bert-large=2", "--weight is for several workloads"),
        ("run -w bert-large --combine worst", "--combine is for several workloads"),
        ("run -w bert-large --resume", "give --out, the folder"),
        ("run -w bert-large --area 800mm", "is not an area"),
    ],
)
def test_a_wrong_word_ends_in_what_would_be_right(dse, typed, told):
    code, out, err = dse(*typed.split())
    assert (code, out) == (2, "")
    assert told in " ".join(err.split())
    assert err.count("\n") == 1


@pytest.mark.parametrize("verbs", [[], ["solve"], ["cache"]])
def test_a_command_that_does_nothing_alone_shows_its_page(dse, verbs):
    code, out, err = dse(*verbs)
    assert (code, err) == (0, "")
    assert out == dse(*verbs, "--help")[1]
    assert "\x1b" not in out


def test_the_export_of_a_run_writes_its_products_unasked(dse, tmp_path):
    """Of a run the workload is known; of a chip alone it is said that there is none."""
    run, out = tmp_path / "run", tmp_path / "sim"
    assert dse("evaluate", "-a", "tpuv4", "-w", "bert-base", "--devices", "1", "--out", run)[0] == 0
    code, _, err = dse("archs", "export", "tpuv4", "--for", "scale-sim", "--out", tmp_path / "chip")
    assert (code, "no products: --workload" in err) == (0, True)
    assert dse("archs", "export", run, "--for", "scale-sim", "--out", out)[0] == 0
    assert len([*out.iterdir()]) > len([*(tmp_path / "chip").iterdir()])


def test_chips_are_listed_with_their_figures(dse):
    code, out, _ = dse("archs")
    (row,) = (line for line in out.splitlines() if line.startswith("h100 "))
    assert code == 0
    assert row.split()[1:] == [
        "N4",
        "700",
        "W",
        "814",
        "mm2",
        "989",
        "TFLOP/s",
        "3.35",
        "TB/s",
        "80.0",
        "GiB",
    ]
    assert max(map(len, out.splitlines())) <= 80


TOML = """devices = 2
global-batch = 8
[plan]
arch = "h100"
workload = "bert-base"
plans = "phaze"
[plan.serving]
prompt = 64
"""


@pytest.mark.parametrize(("name", "head"), [("phaze.toml", ""), ("pyproject.toml", "tool.phaze")])
def test_a_project_has_defaults_and_what_is_typed_comes_first(dse, tmp_path, monkeypatch, name, head):
    monkeypatch.chdir(tmp_path)
    under = f"[{head}]\n" + TOML.replace("[plan", f"[{head}.plan") if head else TOML
    (tmp_path / name).write_text(under)
    code, out, err = dse("plan", "--json")
    assert (code, name in err) == (0, True)
    request = json.loads(out)["request"]
    assert (request["workloads"], request["devices"], request["global_batch"]) == (["bert-base"], 2, 8)
    typed = json.loads(dse("plan", "--devices", "1", "-q", "--json")[1])["request"]
    assert (typed["devices"], typed["plans"]) == (1, "phaze")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("devises = 8", "no verb has an option 'devises' (did you mean devices"),
        ("[run]\npowr = '4W'", "run has no option 'powr' (did you mean power"),
        ("[rum]\npower = '4W'", "no verb is called 'rum' (did you mean run"),
        ("[run", "cannot be read as TOML"),
    ],
)
def test_a_wrong_default_is_one_sentence(dse, tmp_path, monkeypatch, content, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "phaze.toml").write_text(content)
    code, out, err = dse("archs")
    assert (code, out, words in err) == (2, "", True)


def test_the_settings_of_another_tool_are_no_concern(dse, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text("[project")
    assert dse("frameworks")[0] == 0


def test_new_chips_and_networks_start_from_built_in_ones_and_are_taken(dse, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert dse("archs", "new", "mychip", "--like", "a100")[0] == 0
    assert dse("networks", "new", "mynet", "--like", "hgx-a100")[0] == 0
    task = ("evaluate", "-w", "bert-base", "--devices", "1", "--json")
    mine, like = (
        json.loads(dse(*task, "--arch", chip, "--network", net)[1])["best"]["workloads"]["bert-base"]
        for chip, net in (("mychip.yaml", "mynet.yaml"), ("a100", "hgx-a100"))
    )
    assert mine == like  # nothing is changed yet
    code, _, err = dse("archs", "new", "mychip")
    assert (code, "exists; give another name" in err) == (2, True)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--devices", "many"), "--devices must be a whole number"),
        (("--devices", "0"), "--devices must be at least 1"),
        (("--tdp-margin", "x"), "--tdp-margin must be a number"),
    ],
)
def test_a_wrong_number_is_told_in_plain_words(words, told, dse):
    code, out, err = dse("run", "-w", "gpt3", *words)
    assert (code, out) == (2, "")
    assert err.strip() == f"dse: {told} (see dse run --help)"
