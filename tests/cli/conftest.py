from __future__ import annotations

from subprocess import CompletedProcess

import pytest


@pytest.fixture
def solve(dse):
    """Runs `dse solve` in this process: what a process of its own would leave, without its second of imports."""

    def call(*arguments):
        code, out, err = dse("solve", *arguments)
        return CompletedProcess(arguments, code, out, err)

    return call
