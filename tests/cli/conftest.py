"""What the tests of the command line share."""

import sys

import pytest

from phaze.cli import main as cli


@pytest.fixture
def dse(monkeypatch, capfd):
    """Runs one command line in this process: (exit code, stdout, stderr)."""

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["dse", *map(str, arguments)])
        with pytest.raises(SystemExit) as leave:
            cli.main()
        out, err = capfd.readouterr()
        return leave.value.code, out, err

    return call
