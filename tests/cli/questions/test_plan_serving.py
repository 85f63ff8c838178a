"""`dse plan serving`: what it prints, and what it refuses."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
import typer

from phaze.cli.main import app

PAGE = (Path(__file__).parents[3] / "docs" / "how-to" / "serving.md").read_text(encoding="utf-8")

SERVED = """
schema_version: 1
name: served
family: decoder
source: {all: made up for tests}
dimensions:
  {layers: 4, hidden: 512, heads: 8, kv_heads: 2, vocabulary: 8000, max_positions: 1024, positions: rope, bias: false}
sequence_length: 256
global_batch: 8
"""


@pytest.fixture
def plan(dse, tmp_path):
    path = tmp_path / "served.yaml"
    path.write_text(SERVED)

    def call(*options):
        return dse(
            "plan",
            "serving",
            "-a",
            "h100",
            "-w",
            path,
            "--prompt",
            256,
            "--output-tokens",
            32,
            "--devices",
            2,
            *options,
        )

    return call


def test_money_and_carbon_of_a_million_tokens_are_their_parts(plan):
    def cost(*options):
        code, out, err = plan("--json", "--chunk", 64, "--no-disaggregate", *options)
        assert (code, err) == (0, "")
        return json.loads(out)

    told = cost()
    found, best = told["cost"], told["best"]
    assert found["cost_per_million_tokens_usd"] == pytest.approx(sum(found["cost_parts_usd"].values()))
    assert found["carbon_per_million_tokens_kg"] == pytest.approx(sum(found["carbon_parts_kg"].values()))
    assert found["energy_parts_j"]["accelerators"] == pytest.approx(1e6 * best["energy_per_token_j"])
    assert found["energy_per_million_tokens_j"] > found["energy_parts_j"]["accelerators"]
    rented = cost("--rent", 3.6)["cost"]
    hours = 1e6 / best["tokens_per_s"] / 3600 * best["devices"]
    assert rented["cost_parts_usd"] == pytest.approx({"rent": 3.6 * hours})
    clean = cost("--carbon-intensity", "iceland")
    assert clean["cost"]["carbon_per_million_tokens_kg"] < found["carbon_per_million_tokens_kg"]
    assert clean["request"]["economics"] == {"carbon_intensity_kg_per_kwh": 0.0073}
    _, shown, _ = plan("--chunk", 64, "--no-disaggregate")
    assert "cost per million output tokens" in shown


def test_the_document_holds_everything(plan):
    code, out, err = plan("--json", "--rate", 200, "--simulate", 50, "--max-tpot", "10ms")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert found["schema"] == "dse-serving/2"
    assert found["request"]["max_tpot_s"] == 0.01
    assert found["request"]["max_ttft_s"] is None
    best = found["best"]
    assert best["requests_per_s"] == 200
    assert best["tokens_per_s"] == 200 * 32
    assert best["devices"] == sum(pool["devices"] for pool in best["pools"])
    assert best["tokens_per_s_per_device"] == best["tokens_per_s"] / best["devices"]
    assert set(found["simulation"]["ttft"]) == {"mean_s", "p50_s", "p90_s", "p99_s"}
    assert set(found["manifest"]["inputs_sha256"]) == {"workload", "network", "arch"}


def test_the_tables_fit_the_page(plan):
    code, out, _ = plan("--disaggregate", "--max-ttft", "1s")
    assert code == 0
    assert max(map(len, out.splitlines())) <= 80
    for words in ("Serving", "disaggregated", "256 tokens in, 32 out", "limited by", "1.00 s", "decode"):
        assert words in out


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (("--simulate", 5), 2, "--simulate needs --rate"),
        (("--max-ttft", "fast"), 2, "--max-ttft 'fast'"),
        (("--kv-cache", "heap"), 2, "--kv-cache 'heap'"),
        (("--prompt", 5000), 2, "1024 positions"),
        (("--chunk", 64, "--disaggregate"), 2, "cannot be combined with"),
        (("--max-tpot", "1ns"), 3, "time per output token: given 1 ns, smallest feasible"),
    ],
)
def test_one_sentence_and_an_exit_code(plan, options, code, words):
    found, out, err = plan(*options)
    assert (found, out) == (code, "")
    assert words in err


TRACE = "arrival_s,input_tokens,output_tokens,prefix_hashes\n" + "".join(
    f"{i / 50:g},{64 + i % 7 * 16},{2 + i % 30},u{i % 4}\n" for i in range(120)
)


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text(TRACE)
    return path


@pytest.fixture
def plan_trace(dse, tmp_path, trace):
    (tmp_path / "served.yaml").write_text(SERVED)
    asked = ("-a", "h100", "-w", tmp_path / "served.yaml", "--devices", 2, "--trace", trace)

    def call(*options):
        return dse("plan", "serving", *asked, *options)

    return call


def test_a_trace_is_planned_for_and_replayed(plan_trace):
    cache = ("--prefix-block", 64, "--prefix-cache", "1GiB")
    code, out, err = plan_trace(*cache, "--simulate", 100, "--no-disaggregate", "--json")
    assert (code, err) == (0, "")
    told = json.loads(out)
    assert told["request"]["recorded_requests"] == 120
    assert told["request"]["rate_per_s"] == pytest.approx(50)
    assert told["best"]["requests_per_s"] == pytest.approx(50)
    whole = sum(64 + i % 7 * 16 for i in range(120))
    known = sum(min(64, 63 + i % 7 * 16) for i in range(4, 120))
    assert told["best"]["cached_share"] == pytest.approx(known / whole)
    assert told["simulation"]["tpot"]["mean_s"] == pytest.approx(told["best"]["tpot_s"], rel=0.15)
    assert "trace" in told["manifest"]["inputs_sha256"]
    code, out, _ = plan_trace(*cache, "--rate", 100, "--no-disaggregate")
    assert code == 0
    shown = " ".join(out.split())
    assert "120 recorded, 112 tokens in, 16 out on average" in shown
    assert "found in the prefix cache" in shown


def test_guesses_and_known_prefixes(plan):
    known = ("--prefix-hits", 0.5, "--host-hits", 0.25, "--rate", 20, "--no-disaggregate")
    code, out, err = plan("--draft", "ngram", "--acceptance", 0.6, *known, "--json")
    assert (code, err) == (0, "")
    told = json.loads(out)
    assert told["best"]["cached_share"] == 0.75
    assert told["best"]["loaded_share"] == 0.25
    assert 1 < told["best"]["tokens_per_pass"] < 5
    (start,) = (one["command"] for one in told["starts"])
    assert "--enable-prefix-caching --speculative-config" in start
    assert '"num_speculative_tokens": 4' in start


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--prefix-hits", 1.5), "shares of a prompt: of 0 to 1 together"),
        (("--prefix-cache", "1GiB"), "needs prompts that begin alike"),
        (("--host-cache", "1GiB"), "is for a trace with prefix_hashes"),
        (("--prefix-hits", 0.5, "--prefix-cache", "90GiB"), "leaves nothing of the 72 GiB"),
        (("--draft", "ngram"), "either --acceptance"),
        (("--draft", "ngram", "--acceptance", 0.5, "--acceptance-length", 2), "either --acceptance"),
        (("--draft", "ngram", "--acceptance", -1), "must be a chance of 0 to 1"),
        (("--draft", "ngram", "--acceptance-length", 9), "makes 1 to 5"),
        (("--draft", "nothing", "--acceptance", 0.5), "nothing"),
        (("--acceptance", 0.5), "--acceptance needs --draft"),
        (("--context-parallel", 2), "--context-parallel 2 saves no cache of"),
        (("--redundant-experts", 4), "--redundant-experts needs --expert-skew"),
        (("--expert-skew", -1), "the skew of experts is -1; it must be above 0"),
        (("--expert-skew", 0.6), "has no experts whose load could be uneven"),
    ],
)
def test_loads_that_make_no_sense(plan, options, said):
    code, out, err = plan(*options)
    assert (code, out) == (2, "")
    assert said in " ".join(err.split())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--prompt", 100), "--prompt is not for a trace"),
        (("--prefix-hits", 0.5, "--prefix-cache", "1GiB", "--prefix-block", 64), "leave out the shares"),
        (("--host-cache", "2TB", "--prefix-block", 64), "of host memory that each h100 has"),
        (("--prefix-block", 8), "1 prefix_hashes"),
        ((), "a context of 2007, beyond the model's 1024 positions"),
    ],
)
def test_traces_that_make_no_sense(plan_trace, trace, options, said):
    if said.startswith("1 prefix"):
        trace.write_text(TRACE.replace(",u1\n", ",u1 a b c d e f g h i j\n"))
        said = "line 3: 11 prefix_hashes of 8 tokens each are more than its 80 input tokens"
    if "positions" in said:
        trace.write_text("input_tokens,output_tokens\n2000,9\n4,4\n")
    code, out, err = plan_trace(*options)
    assert (code, out) == (2, "")
    assert said in " ".join(err.split())


def test_the_commands_of_the_page_are_understood():
    block = "".join(re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL))
    verb = typer.main.get_command(app).commands["plan"].commands["serving"]
    asked = [
        verb.make_context("serving", shlex.split(line)[3:]).params
        for line in block.splitlines()
        if "plan serving" in line
    ]
    assert [a["rate"] for a in asked] == [None, 6, None, None, 20]
    assert asked[2]["disaggregate"]
    assert [a["decode_power"] for a in asked][3:] == ["350W", None]
    assert [a["decode_arch"] for a in asked][3:] == [None, "h200"]


def test_pools_of_two_kinds_of_chip(dse, tmp_path):
    (tmp_path / "served.yaml").write_text(SERVED)
    asked = *("plan", "serving", "-a", "h100", "--devices", 2), *("--prompt", 256, "--output-tokens", 32)
    asked = *asked, "-w", tmp_path / "served.yaml"
    code, out, _ = dse(*asked, "--decode-arch", "l40s", "--decode-power", "250W", "--json")
    told = json.loads(out)
    assert code == 0
    assert told["request"]["decode_architecture"] == "l40s"
    assert (told["request"]["decode_power_w"], told["request"]["prefill_power_w"]) == (250, None)
    assert [pool["chip"] for pool in told["best"]["pools"]] == ["h100", "l40s"]
    assert told["best"]["pools"][1]["drawn_w"] <= 250
    code, out, err = dse(*asked, "--decode-power", "250W", "--no-disaggregate")
    assert (code, out) == (2, "")
    assert "separate pools" in err
    code, out, err = dse(*asked, "--decode-power", "10W")
    assert (code, out) == (3, "")
    assert "cap on power" in err


def test_the_python_of_the_page_runs():
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    names = {}
    exec(code, names)
    assert names["plan"].tpot_s <= 0.03


def test_products_of_four_bits_need_arrays_for_them(plan):
    """A H100 has none: engines run such a model with its weights alone in few bits."""
    code, _, err = plan("--recipe", "nvfp4")
    assert code == 2
    assert "faster on fp4" in err
    assert "--recipe nvfp4-weights keeps the weights alone so" in " ".join(err.split())
    alone, wide = (
        json.loads(plan("--json", "--no-disaggregate", "--chunk", 64, *asked)[1])["best"]
        for asked in (("--recipe", "nvfp4-weights"), ())
    )
    assert alone["pools"][0]["weight_bytes"] < wide["pools"][0]["weight_bytes"]
