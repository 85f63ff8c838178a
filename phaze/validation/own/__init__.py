"""What this project measured itself: the script that measures a GPU, and the tables that it wrote.

The tables are of one NVIDIA H100 80GB HBM3 (SXM) and, with other cases, of one NVIDIA H200, both with a limit of 700 W,
driver 580.159.04, PyTorch 2.11.0 with CUDA 13.0, on 2026-11-26: `dse measure gpu` with loops of 2 s, the boards'
settings as they were. No constant is fitted to them.
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path


def own_tables() -> dict[str, Path]:
    """The tables by the name of their set."""
    folder = Path(str(resources.files("phaze.validation.own")))
    return {path.stem: path for path in sorted(folder.glob("*.csv"))}
