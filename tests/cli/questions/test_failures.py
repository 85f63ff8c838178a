"""`dse plan --failures` and `dse whatif failures`, as they are typed."""

from __future__ import annotations

import json

import pytest

import phaze

SMALL = ("--arch", "h100", "--workload", "gpt3-xl", "--devices", "32", "--global-batch", "64")
FEW = ("--microbatch", "4", "--schedule", "1f1b", "--chunks", "1", "--zero", "1")


def test_a_plan_under_failures(dse):
    code, out, _ = dse("plan", *SMALL, *FEW, "--failures", "llama3-2024")
    assert code == 0
    for words in ("Under failures", "checkpoint after", "spares for 99 %", "less by"):
        assert words in out
    assert "slower by" not in out  # the plans stand in the order of their goodput


def test_domains_of_several_sizes(dse):
    code, out, _ = dse(
        "whatif", "failures", *SMALL, *FEW, "--tensor-parallel", "8", "--domain", "8,16,32", "--json"
    )
    assert code == 0
    document = json.loads(out)
    assert (document["varied"], [p["value"] for p in document["points"]]) == ("domain", ["8", "16", "32"])
    figures = [point["plan"]["best"]["goodput"] for point in document["points"]]
    assert [one["domain_devices"] for one in figures] == [8, 16, 32]
    assert figures[0]["whole_domains"] > figures[1]["whole_domains"] > figures[2]["whole_domains"]
    assert document["points"][0]["plan"]["request"]["failures"] == "llama3-2024"
    assert "domain 16" in dse("whatif", "failures", *SMALL, *FEW, "--domain", "8,16")[1]


def test_goodput_as_something_else_varies(dse):
    line = ("whatif", *SMALL, *FEW, "--failures", "llama3-2024", "--vary", "on_failure=drop,ntp", "--json")
    code, out, _ = dse(*line)
    assert code == 0
    drop, ntp = (
        point["plan"]["best"]["goodput"]["goodput_samples_per_s"] for point in json.loads(out)["points"]
    )
    assert ntp >= drop


def test_in_python():
    found = phaze.whatif_failures(
        "h100", "gpt3-xl", devices=8, global_batch=64, microbatch=4, chunks=1, domain=[4, 8], on_failure="ntp"
    )
    assert list(found.to_dataframe()["domain_devices"]) == [4, 8]
    assert "domain 4" in repr(found)


@pytest.mark.parametrize(
    ("line", "code", "told"),
    [
        (("plan", *SMALL, "--failures", "llama2"), 2, "no failure is named 'llama2'"),
        (("plan", *SMALL, "--on-failure", "ntp"), 2, "needs --failures"),
        (("plan", *SMALL, "--failures", "llama3-2024", "--on-failure", "hope"), 2, "--on-failure"),
        (("whatif", "failures", *SMALL, "--domain", "8,many"), 2, "'many' is not a number of devices"),
        (("whatif", "failures", *SMALL, "--network", "tpu-v4-pod"), 2, "torus"),
        (("whatif", *SMALL), 2, "--vary"),
    ],
)
def test_what_makes_no_sense(dse, line, code, told):
    found, out, err = dse(*line)
    assert (found, out) == (code, "")
    assert told in err
    assert err.count("\n") == 1


def test_a_cluster_that_gets_nothing_done(dse, tmp_path):
    path = tmp_path / "hopeless.yaml"
    path.write_text(
        "schema_version: 1\nname: hopeless\nhost_devices: 8\n"
        "components: [{fails: device, mtbf: 2s, repair: 1s, source: made up}]\n"
        "restart: {time: 1h, source: made up}\ncheckpoint: {time: 1s, source: made up}\n"
    )
    code, out, err = dse("plan", *SMALL, *FEW, "--failures", str(path))
    assert (code, out) == (3, "")
    assert "nothing gets done" in err
