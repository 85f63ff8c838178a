"""Where the `dse` script enters: so light that an early Ctrl-C meets nothing but this."""

from __future__ import annotations

import gc
import sys
from typing import NoReturn

_INTERRUPTED = 130

OBJECTS = 50_000
"""New objects between two looks for cycles among them: what is loaded and what searches make is mostly kept, and looks
took a twentieth of the time of both at Python's own 700."""


def main() -> NoReturn:
    """Load the command line and run it, then leave, whatever still runs in the background.

    Ctrl-C while it loads leaves without a word, as shells expect.
    """
    gc.set_threshold(OBJECTS)
    try:
        from phaze.cli.main import main as run
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)
    from phaze.background import leave

    try:
        run()
    except SystemExit as ended:
        leave(ended.code if isinstance(ended.code, int) else 0)
