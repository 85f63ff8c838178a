"""More devices, samples or requests than anybody has: one sentence at once, or an answer in little memory."""

from __future__ import annotations

import json

import pytest
from small_cases import small_decoder

HUGE = ("1000000000", "9" * 19, "1" + "0" * 30, "1" + "0" * 400)
QUESTIONS = {
    "plan": ("-a", "a100"),
    "evaluate": ("-a", "a100"),
    "compare": ("-a", "a100", "-a", "h100"),
    "whatif": ("-a", "a100", "--vary", "hbm_stacks=5,6"),
    "run": ("--power", "400W", "--time-limit", "5s", "--no-cache", "-q"),
    "sweep": ("--trials", "2", "--no-cache", "-q"),
}


@pytest.fixture
def tiny(tmp_path):
    small_decoder(tmp_path)
    return tmp_path / "tiny.yaml"


def refused(outcome, *words):
    code, out, err = outcome
    assert (code, out) == (2, "")
    assert err.startswith("dse: there may be from 1 to ")
    assert err.count("\n") == 1
    assert len(err) < 200
    assert all(word in err for word in words)


@pytest.mark.parametrize("verb", QUESTIONS)
@pytest.mark.parametrize("option", ["--devices", "--global-batch"])
def test_numbers_beyond_reason_are_one_sentence(verb, option, dse, tiny, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    what = "devices" if option == "--devices" else "samples in an iteration"
    for number in HUGE:
        words = [verb, "-w", tiny, *QUESTIONS[verb], option, number]
        refused(dse(*words, *(["--devices", 8] if option != "--devices" else [])), what)


@pytest.mark.parametrize("name", ["devices", "global_batch"])
def test_values_that_are_varied_have_the_same_limits(name, dse, tiny):
    refused(dse("whatif", "-w", tiny, "-a", "a100", "--devices", 8, "--vary", f"{name}=8,{HUGE[2]}"))


def test_serving_has_them_too(dse):
    words = ["plan", "serving", "-a", "a100", "-w", "llama3-8b"]
    refused(dse(*words, "--devices", HUGE[2]), "devices")
    refused(dse(*words, "--rate", 1, "--simulate", HUGE[2]), "requests to simulate")


def test_a_pipeline_that_is_too_long_to_play_says_so(dse, tiny):
    words = ["-w", tiny, "-a", "a100", "--devices", 4, "--global-batch", 2**25]
    held = ["--microbatch", 1, "--pipeline-parallel", 4, "--data-parallel", 1]
    code, _, err = dse("plan", *words, *held)
    assert code == 2
    assert "microbatches times parts of a pipeline are at most 524,288" in err
    code, out, _ = dse("plan", *words, "--json")
    assert code == 0
    assert "at most 524,288 microbatches times parts of a pipeline" in json.loads(out)["certificate"]["scope"]
