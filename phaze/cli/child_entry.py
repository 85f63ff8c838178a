"""A `dse` command as a child of another program: it ends with its parent, whatever ends that one.

`python -m phaze.cli.child_entry WORDS...`, with a pipe as standard input that the parent keeps open.
"""

from __future__ import annotations

import os
import signal
import sys
import threading


def _ends_with_parent() -> None:
    """Wait until the parent's end of the pipe is closed, then end, with all processes of a group that is its own."""
    while os.read(0, 1):
        pass
    if hasattr(os, "killpg") and os.getpgid(0) == os.getpid():
        os.killpg(os.getpgid(0), signal.SIGKILL)
    os._exit(1)


def main() -> None:
    """Run the command line; `dse` is this process's own session, so that workers end with it, too."""
    threading.Thread(target=_ends_with_parent, daemon=True).start()
    sys.argv[0] = "dse"
    from phaze.cli.entry import main as run

    run()


if __name__ == "__main__":
    main()
