"""A user's own table of served models: read, compared, and the host time in it found again."""

from __future__ import annotations

import json

import numpy as np
import pytest

from phaze.cost.fidelity import Fidelity
from phaze.errors import InputError
from phaze.hardware.architecture import load_architecture
from phaze.hardware.cluster_network import load_network
from phaze.validation.measured.own_measurements import Template, template_text
from phaze.validation.measured.own_serving import DISPATCHES_S, ServingFit, fit_serving, own_served

HEAD = "workload,tensor_parallel,prompt_tokens,output_tokens,concurrency,recipe,tpot_ms\n"
ROWS = [(1, 1), (1, 8), (1, 64), (2, 4), (2, 32)]


def table(times_s):
    lines = [f"gpt3-small,{w},512,128,{b},,{1e3 * t:.9g}" for (w, b), t in zip(ROWS, times_s, strict=True)]
    return HEAD + "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def modelled(tmp_path_factory):
    """What the model says of the rows under every host time, (rows, dispatches)."""
    file = tmp_path_factory.mktemp("served") / "served.csv"
    file.write_text(table([1.0] * len(ROWS)))
    return fit_serving(
        own_served(file), load_architecture("h100"), load_network("default"), Fidelity.ANALYTIC
    )


def test_the_template_is_read_by_its_command(dse, tmp_path):
    file = tmp_path / "served.csv"
    assert dse("measure", "template", "serving", "--out", str(file))[0] == 0
    assert len(own_served(file)) == len(template_text(Template.SERVING).split("tpot_ms\n")[-1].splitlines())
    code, out, _ = dse("measure", "serving", str(file), "--arch", "h100", "--json")
    assert code == 0
    assert {row["workload"] for row in json.loads(out)["rows"]} == {"llama3-8b"}


@pytest.mark.parametrize("which", [0, 14, 18])
def test_the_host_time_in_measurements_is_found(which, modelled, dse, tmp_path):
    file = tmp_path / "served.csv"
    file.write_text(table(modelled.predicted_s[:, which]))
    told = json.loads(dse("measure", "serving", str(file), "--arch", "h100", "--json")[1])
    assert told["dispatch_s"] == pytest.approx(DISPATCHES_S[which])
    assert [row["with_dispatch_s"] for row in told["rows"]] == pytest.approx(
        modelled.predicted_s[:, which].tolist()
    )
    assert (told["before_pct"] > 1) == (which > 0)
    if which:
        assert told["left_out_pct"] < told["before_pct"]


def test_more_host_time_never_makes_a_token_faster(modelled):
    assert (np.diff(modelled.predicted_s, axis=1) >= 0).all()
    assert (modelled.predicted_s[:, -1] > 1.5 * modelled.predicted_s[:, 0]).all()


def test_what_helps_only_the_rows_it_was_fitted_to_is_dropped(modelled):
    two = ServingFit(modelled.rows[:2], modelled.predicted_s[:2])
    assert (two.left_out, two.dispatch_s) == (None, 0.0)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (HEAD, "has no rows"),
        (HEAD + "gpt3-small,1,512,128,1,fp9,1.0\n", "'fp9' is not a recipe; use one of fp8"),
        (HEAD + "gpt3-small,1,512,1,1,,1.0\n", "output_tokens is '1', not a whole number from 2"),
        (HEAD + "gpt3-smal,1,512,128,1,,1.0\n", "unknown workload 'gpt3-smal'"),
        ("workload,tpot_ms\ngpt3,1\n", "tensor_parallel"),
    ],
)
def test_a_bad_table_is_one_sentence(text, told, dse, tmp_path):
    file = tmp_path / "served.csv"
    file.write_text(text)
    code, out, err = dse("measure", "serving", str(file), "--arch", "h100")
    assert (code, out) == (2, "")
    assert told in " ".join(err.split())
    if "gpt3-smal," not in text:
        with pytest.raises(InputError):
            own_served(file)
