from __future__ import annotations

import os
import pickle
import sqlite3
import subprocess
import sys
import threading

import pytest

from phaze.runs.store.evaluation_database import Database, GuardedStore, LayeredStores

A, B, C = ("0a" * 20, "0b" * 20, "0c" * 20)


@pytest.fixture
def database(tmp_path):
    return Database(tmp_path / "folder" / "x.sqlite", "one")


def test_what_was_put_is_found_again_by_others(database):
    database.put({A: b"a", B: b""})
    assert database.get([A, B, C]) == {A: b"a", B: b""}
    other = pickle.loads(pickle.dumps(database))
    assert other.get([A]) == {A: b"a"}


def test_a_value_that_is_there_stays(database):
    database.put({A: b"first"})
    database.put({A: b"second", B: b"b"})
    assert database.get([A, B]) == {A: b"first", B: b"b"}


def test_another_version_of_the_model_knows_nothing(database, tmp_path):
    database.put({A: b"a"})
    newer = Database(database.path, "two")
    assert newer.get([A]) == {}
    newer.put({A: b"other"})
    assert database.get([A]) == {A: b"a"}


def test_many_keys_at_once(database):
    items = {f"{i:040x}": str(i).encode() for i in range(1234)}
    database.put(items)
    assert database.get([*items, C]) == items


def test_damaged_entries_are_forgotten_and_can_be_put_again(database):
    database.put({A: b"a", B: b"b"})
    with sqlite3.connect(database.path) as connection:
        connection.execute("UPDATE entries SET value = x'ff' WHERE key = ?", (bytes.fromhex(A),))
    assert database.get([A, B]) == {B: b"b"}
    database.put({A: b"a"})
    assert database.get([A]) == {A: b"a"}


def test_the_oldest_go_where_there_is_no_room(tmp_path):
    database = Database(tmp_path / "x.sqlite", "one", limit_bytes=200_000)
    keys = [f"{i:040x}" for i in range(100)]
    for key in keys:
        database.put({key: os.urandom(5_000)})
    found = database.get(keys)
    assert keys[-1] in found
    assert keys[0] not in found
    assert len(found) > 20
    assert database.path.stat().st_size < 300_000


def test_threads_and_copies_of_the_process_share_a_database(database):
    database.put({A: b"a"})
    threads = [threading.Thread(target=database.put, args=({f"{i:040x}": b"t"},)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if (child := os.fork()) == 0:
        database.put({B: b"child"})
        os._exit(0 if database.get([A]) == {A: b"a"} else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert database.get([B]) == {B: b"child"}
    assert len(database.get([f"{i:040x}" for i in range(8)])) == 8


def test_many_processes_write_at_once(database):
    code = (
        "import sys; from pathlib import Path; from phaze.runs.store.evaluation_database import Database\n"
        "d = Database(Path(sys.argv[1]), 'one')\n"
        "for i in range(40): d.put({f'{int(sys.argv[2]) * 100 + i:040x}': b'x' * 5000})\n"
    )
    writers = [subprocess.Popen([sys.executable, "-c", code, database.path, str(k)]) for k in range(3)]
    assert [writer.wait() for writer in writers] == [0, 0, 0]
    keys = [f"{k * 100 + i:040x}" for k in range(3) for i in range(40)]
    assert len(database.get(keys)) == 120


@pytest.mark.parametrize("content", [b"no database" * 100, b"SQLite format 3\0" + b"\xff" * 5000])
def test_a_broken_file_is_told_once_and_left_out(tmp_path, content):
    (tmp_path / "x.sqlite").write_bytes(content)
    told = []
    store = GuardedStore(Database(tmp_path / "x.sqlite", "one"), "the cache", told.append)
    assert store.get([A]) == {}
    store.put({A: b"a"})
    assert store.get([A]) == {}
    assert len(told) == 1
    assert told[0].startswith(f"the cache {tmp_path / 'x.sqlite'} cannot be used (")
    assert told[0].endswith("; going on without it")


def test_another_schema_is_left_out(database):
    database.put({A: b"a"})
    database.close()
    with sqlite3.connect(database.path) as connection:
        connection.execute("PRAGMA user_version = 99")
    told = []
    assert GuardedStore(Database(database.path, "one"), "the cache", told.append).get([A]) == {}
    assert "schema is 99" in told[0]


def test_a_locked_file_is_left_out(database, monkeypatch):
    monkeypatch.setattr("phaze.runs.store.evaluation_database.BUSY_S", 0.05)
    database.put({A: b"a"})
    told = []
    store = GuardedStore(Database(database.path, "one"), "the cache", told.append)
    holder = sqlite3.connect(database.path, isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    store.put({B: b"b"})
    assert "locked" in told[0]
    holder.rollback()
    holder.close()
    assert database.get([A, B]) == {A: b"a"}


def test_a_folder_that_cannot_be_made_is_left_out(tmp_path):
    (tmp_path / "file").write_text("")
    told = []
    store = GuardedStore(Database(tmp_path / "file" / "x.sqlite", "one"), "the cache", told.append)
    assert store.get([A]) == {}
    assert len(told) == 1


def test_the_near_store_learns_from_the_far_one(tmp_path):
    near, far = (Database(tmp_path / name, "one") for name in ("near", "far"))
    both = LayeredStores(near, far)
    far.put({A: b"a"})
    near.put({B: b"b"})
    assert both.get([A, B, C]) == {A: b"a", B: b"b"}
    assert near.get([A]) == {A: b"a"}
    both.put({C: b"c"})
    assert near.get([C]) == far.get([C]) == {C: b"c"}
