"""Whole searches on worker processes and on a Dask cluster: the same answers."""

from __future__ import annotations

import json

import pytest
from small_cases import DECODER

SPACE = """
schema_version: 1
name: few
axes:
  - {fields: [tensor_cores], values: [4, 6]}
  - {fields: [tensor_core_rows], values: [64, 256]}
  - {fields: [vector_cores], values: [3]}
  - fields: [hbm_generation, hbm_stacks]
    values: [[HBM2e, 4], [HBM3, 6]]
"""


@pytest.fixture
def asked(tmp_path):
    """Options of a small question."""
    (tmp_path / "tiny.yaml").write_text(DECODER)
    (tmp_path / "few.yaml").write_text(SPACE)
    files = ("--workload", tmp_path / "tiny.yaml", "--space", tmp_path / "few.yaml")
    return (*files, "--power", "300W", "--devices", "8", "--json", "--quiet")


def answer(dse, verb, asked, folder, *more):
    """The document without what tells of the run itself."""
    code, out, _ = dse(verb, *asked, "--out", folder, *more)
    assert code == 0
    document = json.loads(out)
    document.pop("manifest", None)
    if strategy := document.get("strategy"):
        document["strategy"] = {"best": strategy["best_value"], "evaluations": strategy["evaluations"]}
    return document


def test_a_sweep_is_the_same_from_processes_and_from_a_cluster(dse, asked, tmp_path, cluster):
    more = ("--trials", "10", "--sampler", "random")
    alone = answer(dse, "sweep", asked, tmp_path / "alone", *more)
    assert alone["trials"] == 10
    assert answer(dse, "sweep", asked, tmp_path / "processes", *more, "--workers", "2") == alone
    assert answer(dse, "sweep", asked, tmp_path / "dask", *more, "--executor", cluster.address) == alone


def test_a_search_is_the_same_from_a_cluster(dse, asked, tmp_path, cluster, monkeypatch):
    none = [(name, lambda *_: []) for name in ("chips_beside", "plan_beside")]
    for name, nothing in (("NEXT_BEST", 0), *none):
        monkeypatch.setattr(f"phaze.explore.answers.exploration.{name}", nothing)
    more = ("--strategy", "random", "--evaluations", "8")
    alone = answer(dse, "run", asked, tmp_path / "alone", *more)
    assert answer(dse, "run", asked, tmp_path / "dask", *more, "--executor", cluster.address) == alone


def test_a_scheduler_that_is_not_there_is_one_sentence(dse, asked, monkeypatch, tmp_path):
    pytest.importorskip("distributed")
    monkeypatch.setattr("phaze.runs.executors.dask_cluster.CONNECT_S", 0.5)
    code, out, err = dse("run", *asked, "--out", tmp_path / "out", "--executor", "dask://127.0.0.1:9")
    assert (code, out) == (2, "")
    assert err.strip() == "dse: no Dask scheduler answers at dask://127.0.0.1:9"
