from __future__ import annotations

import csv
import json
import os
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from phaze.errors import InputError
from phaze.hardware.architecture import load_architecture
from phaze.runs.atomic_files import check_writable, file_hashes, read_json, write_atomically
from phaze.runs.run_directory import (
    default_directory,
    load_designs,
    load_run,
    run_directory,
    table_columns,
    write_run,
)

DESIGNS = {"id": np.array(["a", "b"]), "tdp_w": np.array([1.5, 2.5]), "tensor_cores": np.array([1, 2])}


def test_a_run_reads_back(tmp_path, document):
    write_run(tmp_path, document, DESIGNS)
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "architecture.yaml",
        "designs.csv",
        "frontier.csv",
        "manifest.json",
        "result.json",
    ]
    assert load_run(tmp_path) == document
    assert load_run(tmp_path / "result.json") == document
    assert load_designs(tmp_path) == [
        {"id": "a", "tdp_w": 1.5, "tensor_cores": 1},
        {"id": "b", "tdp_w": 2.5, "tensor_cores": 2},
    ]
    with (tmp_path / "frontier.csv").open() as file:
        frontier = list(csv.DictReader(file))
    assert [row["id"] for row in frontier] == [point.id for point in document.frontier]
    assert frontier[0]["tensor_cores"] == "8"
    assert json.loads((tmp_path / "manifest.json").read_text())["seed"] == 0


def test_the_winner_is_usable_as_an_architecture(tmp_path, document):
    write_run(tmp_path, document, DESIGNS)
    architecture = load_architecture(str(tmp_path / "architecture.yaml"))
    assert {
        name: architecture.value(name) for name in document.best.architecture
    } == document.best.architecture


def test_the_name_of_the_default_directory():
    now = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert default_directory("gpt3", now) == Path("results/gpt3-20260102T030405Z")
    assert default_directory("../a b", now) == Path("results/a-b-20260102T030405Z")


def test_runs_of_the_same_second_have_directories_of_their_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    now = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    names = []
    for _ in range(3):
        with run_directory(default_directory("gpt3", now)) as path:
            (path / "result.json").write_text("{}")
            names.append(path.name)
    assert names == ["gpt3-20260102T030405Z", "gpt3-20260102T030405Z-2", "gpt3-20260102T030405Z-3"]


def test_a_folder_that_holds_something_is_refused(tmp_path):
    (tmp_path / "mine.txt").write_text("x")
    with pytest.raises(InputError, match="--resume"), run_directory(tmp_path):
        pytest.fail("entered")
    with (
        pytest.raises(InputError, match="other files than those of a run"),
        run_directory(tmp_path, resume=True),
    ):
        pytest.fail("entered")
    (tmp_path / "log.txt").write_text("2026-01-01T00:00:00+00:00  started, phaze-dse 0.1.0: dse run\n")
    with run_directory(tmp_path, resume=True) as path:
        assert path == tmp_path
    with pytest.raises(InputError, match="is a file"), run_directory(tmp_path / "mine.txt"):
        pytest.fail("entered")


def test_a_failed_run_leaves_no_empty_folder(tmp_path):
    with pytest.raises(RuntimeError), run_directory(tmp_path / "new"):
        raise RuntimeError
    assert not (tmp_path / "new").exists()


def test_an_interrupted_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "file"
    write_atomically(path, "old")

    def fail(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(KeyboardInterrupt):
        write_atomically(path, "new")
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_a_link_stays_and_its_target_is_written(tmp_path):
    (tmp_path / "target").write_text("old")
    (tmp_path / "link").symlink_to("target")
    (tmp_path / "dangling").symlink_to("new")
    write_atomically(tmp_path / "link", "x")
    write_atomically(tmp_path / "dangling", "y")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "dangling").is_symlink()
    assert {p.name: p.read_text() for p in tmp_path.iterdir()} == {
        "target": "x",
        "link": "x",
        "new": "y",
        "dangling": "y",
    }


def test_a_device_takes_what_is_written_and_stays(tmp_path):
    check_writable(Path("/dev/null"))
    write_atomically(Path("/dev/null"), "x")
    assert Path("/dev/null").is_char_device()
    with pytest.raises(InputError, match="No space left"):
        write_atomically(Path("/dev/full"), "x")


def test_a_pipe_is_written_where_somebody_reads_and_refused_elsewhere(tmp_path):
    os.mkfifo(pipe := tmp_path / "pipe")
    for attempt in (check_writable, lambda path: write_atomically(path, "x")):
        with pytest.raises(InputError, match="cannot write"):
            attempt(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_atomically(pipe, "text")
    assert os.read(reader, 10) == b"text"
    os.close(reader)
    assert pipe.is_fifo()


def test_files_have_the_permissions_of_the_mask_or_keep_their_own(tmp_path):
    before = os.umask(0o027)
    try:
        write_atomically(tmp_path / "new", "x")
    finally:
        os.umask(before)
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o640
    (tmp_path / "new").chmod(0o600)
    write_atomically(tmp_path / "new", "y")
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("name", ["n" * 250, "\0", "loop"])
def test_names_that_are_long_or_lead_nowhere(tmp_path, name):
    (tmp_path / "loop").symlink_to("loop")
    if name[0] == "n":
        write_atomically(tmp_path / name, "x")
        assert (tmp_path / name).read_text() == "x"
        return
    with pytest.raises(InputError, match="cannot write"):
        write_atomically(tmp_path / name, "x")


def test_writing_where_there_is_no_folder_is_bad_input(tmp_path):
    with pytest.raises(InputError, match="cannot write"):
        write_atomically(tmp_path / "no" / "file", "x")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "not valid JSON"),
        ("[]", "names no schema"),
        ('{"schema": "phaze-result/0"}', "this version reads 'phaze-result/4'"),
        ('{"schema": "phaze-result/4"}', "request: Field required"),
        ('{"schema": "phaze-result/1"}', "not a valid phaze-result/1"),
    ],
)
def test_a_broken_result_is_named(tmp_path, content, message):
    (tmp_path / "result.json").write_text(content)
    with pytest.raises(InputError, match=message):
        load_run(tmp_path)


def test_no_run_and_no_designs_are_named(tmp_path):
    with pytest.raises(InputError, match="no run at"):
        load_run(tmp_path)
    with pytest.raises(InputError, match="no run at"):
        load_designs(tmp_path)
    for text, told in (
        ("nonsense\n1\n", "no column id"),
        ("id,tdp_w\na\n", "line 2"),
        ("id,tdp_w\na,hot\n", "'hot'"),
        ("id,id\n", "two columns of one name"),
    ):
        (tmp_path / "designs.csv").write_text(text)
        with pytest.raises(InputError, match=f"cannot be read: .*{told}"):
            load_designs(tmp_path)


@pytest.mark.parametrize("text", ['{"a": 1, "a": 2}', '{"a": NaN}', "[1", "[" * 100_000])
def test_json_is_read_strictly(tmp_path, text):
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(InputError, match="not valid JSON"):
        read_json(tmp_path / "x.json")


def test_columns_keep_order_and_types():
    table = table_columns([{"id": "a", "n": 1}, {"id": "b", "n": 2}])
    assert list(table) == ["id", "n"]
    assert table["n"].dtype.kind == "i"


def test_inputs_are_told_by_their_content(tmp_path):
    (tmp_path / "m.onnx").write_bytes(b"abc")
    # SHA-256 of "abc" from FIPS 180-2, appendix B.1.
    expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert file_hashes({"workload": tmp_path / "m.onnx"}) == {"workload": expected}
    with pytest.raises(InputError, match="cannot read"):
        file_hashes({"workload": tmp_path / "gone.onnx"})


def test_a_failed_run_removes_what_it_created_and_nothing_else(tmp_path):
    (tmp_path / "kept").mkdir()
    for folder in (tmp_path / "kept", tmp_path / "results" / "deep" / "run"):
        with pytest.raises(RuntimeError), run_directory(folder):
            raise RuntimeError
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


def test_a_folder_that_cannot_be_written_is_found_before_the_work(tmp_path, monkeypatch):
    def refuse(_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("phaze.runs.atomic_files._beside", refuse)
    with pytest.raises(InputError, match="Permission denied"), run_directory(tmp_path / "r"):
        pytest.fail("started the work")
    assert not (tmp_path / "r").exists()
