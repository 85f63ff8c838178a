from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from phaze.errors import InfeasibleError, InputError, OutOfTimeError
from phaze.inputs.options.option_model import Effect
from phaze.inputs.options.options_by_verb import MODELS
from phaze.runs.run_directory import run_directory
from phaze.runs.run_lock import LOCK, locked_folder
from phaze.runs.store.evaluation_database import Database
from phaze.runs.store.model_version import model_version
from phaze.runs.store.run_record import RECORD, Question, run_record

KEY = "0a" * 20
ASKED = Question.of({"power": "400W", "fix": ["hbm=hbm3x4"]}, {"workload": "abc"})
SMALL = [
    *("run", "-w", "bert-base", "--devices", "2", "--global-batch", "4", "--power", "300W", "--no-cache"),
    *("--fix", "hbm=hbm3x4", "--fix", "tensor_core_rows=128", "--fix", "tensor_core_columns=128"),
    *("--fix", "vector_core_alus=256", "--fix", "vector_cores=4", "--time-limit", "1h", "--quiet"),
]


def holder(folder: Path) -> int:
    """Another process that holds the lock of a folder, and has started a copy of itself that sleeps."""
    ready, told = os.pipe()
    if process := os.fork():
        os.read(ready, 1)
        return process
    with locked_folder(folder):
        if os.fork() == 0:
            time.sleep(2.0)
            os._exit(0)
        os.write(told, b"x")
        time.sleep(60.0)
    os._exit(0)


def test_two_processes_on_one_run_directory(tmp_path):
    process = holder(tmp_path)
    sentence = f"another dse is at work in {tmp_path}; wait for it, or choose another --out"
    with pytest.raises(InputError, match=sentence), run_directory(tmp_path, resume=True):
        pytest.fail("entered")
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)
    assert (tmp_path / LOCK).exists()
    with run_directory(tmp_path):  # what a killed process leaves means nothing
        assert (tmp_path / LOCK).exists()
    assert list(tmp_path.iterdir()) == []


def test_a_lock_that_was_removed_meanwhile_is_made_anew(tmp_path):
    with locked_folder(tmp_path):
        (tmp_path / LOCK).unlink()
        with locked_folder(tmp_path):
            assert (tmp_path / LOCK).exists()


@pytest.mark.parametrize(
    ("options", "inputs", "words"),
    [
        (
            {"power": "350W", "fix": ["hbm=hbm3x4"]},
            "abc",
            "begun with --power 400W, and is to be continued with",
        ),
        ({"fix": ["hbm=hbm3x4"]}, "abc", "continued without --power"),
        ({"power": "400W", "fix": []}, "abc", "begun with --fix hbm=hbm3x4, and is to be continued without"),
        ({"power": "400W", "fix": ["hbm=hbm3x4"]}, "abd", "the workload file has changed since"),
    ],
)
def test_another_question_is_refused(tmp_path, options, inputs, words):
    with run_record(tmp_path, ASKED) as record:
        record.store.put({KEY: b"x"})
    other = Question.of(options, {"workload": inputs})
    with pytest.raises(InputError, match=words), run_record(tmp_path, other):
        pytest.fail("entered")
    with run_record(tmp_path, ASKED) as record:
        assert record.store.get([KEY]) == {KEY: b"x"}


def questions(verb, name):
    """The question of a verb, and that with one option changed."""
    model = MODELS[verb]
    lacking = model.described().keys() - model.defaults().keys()
    options = model(**dict.fromkeys(lacking, "given"))
    changed = not getattr(options, name) if isinstance(getattr(options, name), bool) else "another"
    return [Question.of(one.answering, {}) for one in (options, replace(options, **{name: changed}))]


@pytest.mark.parametrize(
    ("verb", "name", "effect"),
    [
        (verb, name, option.effect)
        for verb, model in MODELS.items()
        for name, (_, option) in model.described().items()
    ],
)
def test_a_run_goes_on_under_the_same_answering_options_alone(tmp_path, verb, name, effect):
    before, now = questions(verb, name)
    if effect is Effect.ANSWER:
        with pytest.raises(InputError, match=f"is to be continued with.* --{name.replace('_', '-')}"):
            now.check(before, tmp_path)
    else:
        now.check(before, tmp_path)


@pytest.mark.parametrize(
    ("power", "fix", "same"),
    [
        ("0.4kW", ["hbm=hbm3x4"], True),
        ("400.0 W", ["hbm=hbm3x4"], True),
        (400.0, ["hbm=hbm3x4"], True),
        ("0.41kW", ["hbm=hbm3x4"], False),
        ("400mm2", ["hbm=hbm3x4"], False),
        ("0.4kW", ["hbm=hbm3x6"], False),
        (True, ["hbm=hbm3x4"], False),
    ],
)
def test_a_quantity_in_other_units_is_the_same_question(tmp_path, power, fix, same):
    other = Question.of({"power": power, "fix": fix}, {"workload": "abc"})
    if same:
        other.check(ASKED, tmp_path)
    else:
        with pytest.raises(InputError, match="is to be continued"):
            other.check(ASKED, tmp_path)


def test_fixed_fields_in_other_units_are_the_same_question(tmp_path):
    before, now, other = (
        Question.of({"fix": [f"global_buffer_bytes={size}"]}, {}) for size in ("32MiB", "32768KiB", "32MB")
    )
    now.check(before, tmp_path)
    with pytest.raises(InputError, match="is to be continued"):
        other.check(before, tmp_path)


@pytest.mark.parametrize(
    ("error", "entries", "stays"),
    [
        (InfeasibleError("none"), 1, False),
        (InputError("bad"), 0, False),
        (InputError("disk full"), 1, True),
        (OutOfTimeError("late"), 1, True),
        (KeyboardInterrupt(), 1, True),
    ],
)
def test_a_record_stays_where_something_can_be_continued(tmp_path, error, entries, stays):
    with pytest.raises(type(error)), run_record(tmp_path, ASKED) as record:
        record.store.put({f"{i:040x}": b"x" for i in range(entries)})
        raise error
    assert (tmp_path / RECORD).exists() == stays


def test_a_record_that_cannot_be_read_is_left_out(tmp_path):
    (tmp_path / RECORD).write_bytes(b"nonsense" * 1000)
    told = []
    with run_record(tmp_path, ASKED, told.append) as record:
        record.store.put({KEY: b"x"})
        assert record.store.get([KEY]) == {}
    assert len(told) == 1
    assert "the run's record" in told[0]


def dse(*arguments, limit_bytes=None):
    """A command in a process of its own, which may write files of at most that size."""

    def limit():
        if limit_bytes is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, limit_bytes))

    code = "from phaze.cli.main import main; main()"
    words = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(words, preexec_fn=limit, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_a_full_disk_loses_nothing_that_was_evaluated(tmp_path):
    whole, full = tmp_path / "whole", tmp_path / "full"
    assert dse(*SMALL, "--out", whole).returncode == 0
    found = dse(*SMALL, "--out", full, limit_bytes=60 << 10)
    assert found.returncode == 2
    *remarks, last = found.stderr.splitlines()
    assert last.startswith(f"dse: cannot write {full}/")
    assert len(remarks) <= 1
    assert not (full / "result.json").exists()
    assert [path.name for path in full.iterdir() if path.name.startswith(".")] == []
    record = Database(full / RECORD, model_version())
    assert record.entries() > 2
    record.close()
    assert dse(*SMALL, "--out", full, "--resume").returncode == 0
    documents = [json.loads((folder / "result.json").read_text()) for folder in (whole, full)]
    for document in documents:
        del document["manifest"]
    assert documents[0] == documents[1]


@pytest.mark.soak
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads processor times from /proc")
def test_killed_runs_and_sweeps_end_in_the_same_answer(tmp_path):
    script = Path(__file__).with_name("killed.py")
    done = subprocess.run(
        [sys.executable, script, tmp_path, "55", "1"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["kills"] >= 60
