"""Devices, folders, loops and endless files in the place of every kind of input, in bounded time and memory."""

from __future__ import annotations

import os

import pytest
from player import LONGEST_S

READERS = {
    "model.yaml": "workloads show FILE",
    "model.onnx": "workloads show FILE",
    "model.pt2": "workloads show FILE",
    "config.json": "workloads show hf:FILE",
    "chip.yaml": "archs show FILE",
    "space.yaml": "spaces show FILE",
    "network.yaml": "networks show FILE",
    "software.yaml": "frameworks show FILE",
    "plans.yaml": "plans show FILE",
    "instance.json": "solve schedule FILE",
    "cut.json": "solve placement FILE",
    "result.json": "report FILE --out page.html",
    "run": "certify FILE",
}
ENDLESS = 50 * 2**30


def endless(path):
    """A file of 50 GiB that takes no room."""
    with path.open("wb") as file:
        os.truncate(file.fileno(), ENDLESS)


MADE = {
    "folder": lambda path: path.mkdir(),
    "loop": lambda path: path.symlink_to(path.name),
    "dangling": lambda path: path.symlink_to("nowhere"),
    "zero": lambda path: path.symlink_to("/dev/zero"),
    "random": lambda path: path.symlink_to("/dev/urandom"),
    "null": lambda path: path.symlink_to("/dev/null"),
    "endless": endless,
}


@pytest.mark.parametrize("kind", MADE)
@pytest.mark.parametrize("name", READERS)
def test_no_special_file_is_read_without_end(name, kind, player, tmp_path):
    MADE[kind](tmp_path / name)
    outcome = player.play(READERS[name].replace("FILE", name).split(), tmp_path)
    assert outcome.code == 2, outcome.err
    assert outcome.seconds < LONGEST_S
    assert outcome.err.count("dse: ") == 1
    assert "Traceback" not in outcome.err
