"""One thread for each worker of the suite, which are as many as there are cores; imported before NumPy and PyTorch.

Their own threads would wait for one another in loops, on cores that other workers need: four times the processor time
where a Gaussian process is fitted.
"""

from __future__ import annotations

import os

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")
