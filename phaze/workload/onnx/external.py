"""External data: where it may lie, and the beginning of it where numbers decide what a tensor is."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from phaze.errors import InputError
from phaze.workload.onnx.values import FAULTS

SAMPLE_BYTES = 2**20
"""How much of a tensor is read: the first row of a causal mask over 262 144 positions."""


def check_locations(tensors: Iterable[TensorProto], path: Path) -> None:
    """Raise InputError for external data that would lie outside the model's folder.

    Outside is what is given as an absolute path, leads out by `..`, or is a link to elsewhere. The folder
    of the file that a linked model stands for counts as well.
    """
    folders = (path.parent.resolve(), path.resolve().parent)
    inside: dict[str, bool] = {}
    for tensor in tensors:
        for location in (e.value for e in tensor.external_data if e.key == "location"):
            if location not in inside:
                inside[location] = _is_inside(location, path.parent, folders)
            if not inside[location]:
                raise InputError(
                    f"{path}: external data of {tensor.name!r} would lie outside the model's folder: "
                    f"{location!r}"
                )


def _is_inside(location: str, folder: Path, allowed: Iterable[Path]) -> bool:
    try:
        found = (folder / location).resolve()
    except (OSError, ValueError, TypeError, RuntimeError):  # a name no file can have, a circle of links
        return False
    absolute = Path(location).is_absolute() or location.startswith("\\") or ":" in location[:3]
    return not absolute and any(found.is_relative_to(place) for place in allowed)


def smallest(tensor: TensorProto, path: Path) -> float:
    """Smallest of the first numbers of a tensor; 0 where there are none to be had.

    The locations of external data must have been checked.
    """
    if math.prod(tensor.dims) == 0:
        return 0.0
    try:
        if tensor.data_location != TensorProto.EXTERNAL:
            return float(numpy_helper.to_array(tensor).min())
        entries = {entry.key: entry.value for entry in tensor.external_data}
        dtype = np.dtype(helper.tensor_dtype_to_np_dtype(tensor.data_type))
        sample = min(SAMPLE_BYTES, math.prod(tensor.dims) * dtype.itemsize)
        if not (place := path.parent / entries["location"]).is_file():  # a pipe would be waited for
            return 0.0
        with place.open("rb") as file:
            file.seek(int(entries.get("offset") or 0))
            content = file.read(sample)
        return float(np.frombuffer(content, dtype, len(content) // dtype.itemsize).min())
    except (*FAULTS, OSError):  # damaged, missing, or not numbers
        return 0.0
