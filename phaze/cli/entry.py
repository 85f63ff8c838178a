"""Where the `dse` script enters: so light that an early Ctrl-C meets nothing but this."""

from __future__ import annotations

import sys
from typing import NoReturn

_INTERRUPTED = 130


def main() -> NoReturn:
    """Load the command line and run it; Ctrl-C while it loads leaves without a word, as shells expect."""
    try:
        from phaze.cli.main import main as run
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)
    run()
