"""`dse plan --noise-scale --batch-range`, as it is typed."""

from __future__ import annotations

import json

import pytest

import phaze

SMALL = ("--arch", "h100", "--workload", "gpt3-xl", "--devices", "8")
FEW = ("--microbatch", "4", "--schedule", "1f1b", "--chunks", "1", "--zero", "1")


def test_the_batch_is_chosen(dse):
    code, out, _ = dse("plan", *SMALL, *FEW, "--noise-scale", "2048000tokens", "--batch-range", "32:300")
    assert code == 0
    for words in ("Progress", "statistical efficiency of the batch", "1,000 samples", ", batch 64"):
        assert words in " ".join(out.split())


def test_the_document_tells_its_batch(dse):
    line = ("plan", *SMALL, *FEW, "--noise-scale", "1000", "--batch-range", "32:300", "--json")
    document = json.loads(dse(*line)[1])
    assert document["request"]["batches"] == [32, 64, 128, 256]
    assert document["request"]["noise_scale_samples"] == 1000
    told = document["best"]["convergence"]
    assert document["request"]["global_batch"] == told["global_batch"]
    assert told["efficiency"] == pytest.approx(1000 / (1000 + told["global_batch"]))
    assert "global batches 32, 64, 128, 256" in document["certificate"]["scope"]


def test_larger_clusters_are_not_worth_what_they_run(dse):
    line = ("whatif", *SMALL, *FEW, "--noise-scale", "500", "--batch-range", "32:1024")
    code, out, _ = dse(*line, "--vary", "devices=8,32", "--json")
    assert code == 0
    few, many = (point["plan"]["best"] for point in json.loads(out)["points"])
    faster = many["throughput_samples_per_s"] / few["throughput_samples_per_s"]
    further = many["convergence"]["goodput_samples_per_s"] / few["convergence"]["goodput_samples_per_s"]
    assert 1 < further < faster
    assert "goodput" in dse(*line, "--vary", "noise_scale=500,5000")[1]


def test_in_python():
    found = phaze.plan(
        "h100", "gpt3-xl", devices=8, microbatch=4, chunks=1, schedule="1f1b", zero=1, noise_scale=1000,
        batch_range="32:128",
    )  # fmt: skip
    assert found.best.convergence.noise_scale_samples == 1000


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (("--noise-scale", "own"), "gpt3-xl gives no gradient noise scale"),
        (("--batch-range", "64:128"), "--batch-range needs --noise-scale"),
        (("--noise-scale", "5", "--batch-range", "64"), "is not LOW:HIGH"),
        (("--noise-scale", "5", "--batch-range", "128:64"), "is not LOW:HIGH"),
        (("--noise-scale", "five"), "neither own nor a number"),
        (("--noise-scale", "0"), "more than 0"),
        (("--noise-scale", "inf"), "at most 1e+12"),
        (("--noise-scale", "5", "--batch-range", "1:99999999999"), "samples in an iteration"),
    ],
)
def test_what_makes_no_sense(dse, more, told):
    found, out, err = dse("plan", *SMALL, *more)
    assert (found, out) == (2, "")
    assert told in err
    assert err.count("\n") == 1


def test_images_have_no_tokens(dse):
    code, _, err = dse(
        "plan", "--arch", "h100", "--workload", "resnet50", "--devices", "8", "--noise-scale", "5tokens"
    )
    assert code == 2
    assert "have no tokens" in err
