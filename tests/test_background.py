"""Work in the background: taken where it is done, raised where it fails, and no end of a command waits for it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from phaze.background import in_background

LEAVING = """
import atexit, sys, threading, time
from phaze.background import in_background, leave

atexit.register(lambda: print("told at the end", flush=True))
in_background(lambda: time.sleep({seconds}), "work")
print("answer")
leave(3)
"""
ENDING = """
import time
from phaze.background import in_background

in_background(lambda: (time.sleep(0.3), print("done")), "work")
"""


def ran(script):
    command = [sys.executable, "-c", script]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)


def test_what_is_made_is_there_once_it_is_done():
    assert in_background(lambda: 7, "work").result() == 7
    with pytest.raises(ZeroDivisionError):
        in_background(lambda: 1 / 0, "work").result()


@pytest.mark.parametrize("seconds", [0, 3600])
def test_a_command_leaves_with_its_code_and_all_that_it_said(seconds):
    """What waits for the end of a process has its turn; an hour of work does not."""
    done = ran(LEAVING.format(seconds=seconds))
    assert (done.returncode, done.stdout.split("\n")[:2]) == (3, ["answer", "told at the end"])


def test_a_program_that_ends_by_itself_waits():
    done = ran(ENDING)
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


def test_who_reads_may_have_left():
    script = LEAVING.format(seconds=3600).replace('print("answer")', "sys.stdin.read()")
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    process = subprocess.Popen([sys.executable, "-c", script], **pipes)
    try:
        process.stdout.close()
        process.stdin.close()
        assert process.wait(60) == 3
    finally:
        process.kill()
