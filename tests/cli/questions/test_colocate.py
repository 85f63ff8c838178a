"""`dse whatif colocate`, as it is typed."""

from __future__ import annotations

import json

import pytest

import phaze
from phaze.workload.workload_library import find_workload

SMALL = ("--arch", "h100", "--workload", "bert-base", "--global-batch", "16", "--microbatch", "16")


def told(dse, *arguments):
    code, out, err = dse("whatif", "colocate", *SMALL, *arguments, "--json")
    assert code == 0, err
    return json.loads(out)


def test_jobs_beside_a_training(dse):
    document = told(dse, "--beside", "resnet50,bert-base")
    assert document["varied"] == "beside"
    assert [point["value"] for point in document["points"]] == ["resnet50", "bert-base"]
    for point in document["points"]:
        best = point["plan"]["best"]
        found = best["colocation"]
        assert 1 - 1e-6 <= found["devices_worth_by_cores"] <= found["devices_worth_together"] <= 2
        assert found["plan_slowdown_together"] >= 1 - 1e-9
        assert found["other_slowdown_by_cores"] > found["other_slowdown_together"]
        assert found["memory_bytes"] > best["memory_bytes"]


def test_decoding_contends_for_memory_and_products_for_arrays(dse):
    (decode,) = told(dse, "--beside", "gpt2-xl", "--beside-mode", "decode", "--beside-batch", "8")["points"]
    (prefill,) = told(dse, "--beside", "gpt2-xl", "--beside-batch", "8")["points"]
    assert decode["plan"]["best"]["colocation"]["contended"] == "HBM"
    assert prefill["plan"]["best"]["colocation"]["contended"] == "tensor cores"


def test_the_table_says_what_lies_between(dse):
    out = " ".join(dse("whatif", "colocate", *SMALL, "--beside", "resnet50")[1].split())
    assert "side by" in out
    assert "in turns" in out
    assert "Real software is between" in out


def test_a_kept_answer_is_asked_again(dse, tmp_path):
    assert (
        dse("whatif", "colocate", *SMALL, "--beside", "resnet50", "--out", str(tmp_path / "kept"), "-q")[0]
        == 0
    )
    code, out, err = dse("replay", str(tmp_path / "kept"), "-q")
    assert (code, out.strip()) == (0, "Same question, the same answer."), err


def test_in_python():
    found = phaze.whatif_colocate("h100", "bert-base", global_batch=16, microbatch=16, beside="resnet50")
    assert list(found.to_dataframe()["workload"]) == ["resnet50"]


@pytest.mark.parametrize(
    ("more", "code", "words"),
    [
        (("--beside", "bert-huge"), 2, "bert-huge"),
        (("--beside", ","), 2, "names no workload"),
        (("--beside", "resnet50", "--beside-mode", "decode"), 2, "no key-value cache"),
        (("--beside", "resnet50", "--beside-mode", "serve"), 2, "--beside-mode"),
        (("--beside", "resnet50", "--devices", "2"), 2, "give --devices 1"),
    ],
)
def test_bad_input_is_one_sentence(dse, more, code, words):
    found, out, err = dse("whatif", "colocate", *SMALL, *more)
    assert found == code
    assert words in err
    assert err.count("\n") == 1
    assert out == ""


def test_what_memory_does_not_hold_is_told(dse):
    (point,) = told(dse, "--beside", "llama3-70b")["points"]
    assert point["plan"] is None
    assert "GiB for both" in point["reason"]


def test_a_model_beside_is_an_input_like_any_other(dse, tmp_path):
    """Its file is hashed with the answer, and a question over a changed one is not asked again."""
    own = tmp_path / "own.yaml"
    text = find_workload("bert-base").read_text()
    own.write_text(text)
    kept = str(tmp_path / "kept")
    code, _, err = dse("whatif", "colocate", *SMALL, "--beside", str(own), "--out", kept, "-q")
    assert code == 0, err
    own.write_text(text.replace("layers: 12", "layers: 13"))
    code, _, err = dse("replay", kept, "-q")
    assert code == 2
    assert "has changed since" in err
