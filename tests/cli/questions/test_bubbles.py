"""`dse whatif bubbles`, as it is typed."""

from __future__ import annotations

import json

import pytest

import phaze

SMALL = ("--arch", "h100", "--workload", "gpt3-xl", "--devices", "32", "--global-batch", "32")
FEW = ("--microbatch", "1", "--schedule", "gpipe", "--pipeline-parallel", "8", "--chunks", "1", "--zero", "1")


def test_bubbles_by_stage(dse):
    code, out, _ = dse("whatif", "bubbles", *SMALL, *FEW)
    assert code == 0
    for words in ("Bubbles of an iteration", "forward-backward", "Devices wait", "fills and drains"):
        assert words in " ".join(out.split())


def test_bubbles_that_are_filled(dse):
    line = ("whatif", "bubbles", *SMALL, *FEW, "--fill", "bert-base,resnet50", "--switch", "100us")
    code, out, _ = dse(*line, "--json")
    assert code == 0
    document = json.loads(out)
    assert (document["varied"], [p["value"] for p in document["points"]]) == (
        "fill",
        ["bert-base", "resnet50"],
    )
    for point in document["points"]:
        best = point["plan"]["best"]
        told = best["bubbles"]
        assert len(told["stages"]) == 8
        assert told["fill"]["utilisation"] > best["mfu"]
        assert 0 < told["fill"]["device_equivalents"] < 32 * told["share"]
    assert "devices' worth" in " ".join(dse(*line)[1].split())


def test_a_plan_without_a_pipeline(dse):
    out = dse("whatif", "bubbles", *SMALL, "--pipeline-parallel", "1", "--microbatch", "1", "--zero", "1")[1]
    assert "no bubbles to fill" in out


def test_in_python():
    found = phaze.whatif_bubbles(
        "h100", "gpt3-xl", devices=8, global_batch=8, pipeline_parallel=4, schedule="1f1b", microbatch=1, chunks=1,
        fill=["bert-base"],
    )  # fmt: skip
    assert list(found.to_dataframe()["workload"]) == ["bert-base"]
    assert "Bubbles of an iteration" in repr(found)


@pytest.mark.parametrize(
    ("more", "code", "told"),
    [
        (("--fill", "bert-huge"), 2, "bert-huge"),
        (("--switch", "3W"), 2, "--switch"),
        (("--switch=-1s",), 2, "--switch"),
        (("--arch", "t4", "--devices", "1"), 3, "GiB"),
    ],
)
def test_what_makes_no_sense(dse, more, code, told):
    found, out, err = dse("whatif", "bubbles", *SMALL, *more)
    assert (found, out) == (code, "")
    assert told in err
    assert code == 3 or err.count("\n") == 1
