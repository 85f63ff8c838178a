"""An ONNX file without the content of its weights: the message is thinned out before it is parsed.

External data is looked at only where it may lie, and only its beginning, where numbers decide what a tensor is.

The file is a protobuf message (wire format: protobuf.dev/programming-guides/encoding). Long content of
tensors is skipped where it lies, so a file of any size costs the memory of its nodes alone. Content that
lies there as raw data does becomes a reference to its place, written as external data: weights inside and
beside a file are then the same to whoever reads on.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
from onnx import ModelProto, StringStringEntryProto, TensorProto, helper, numpy_helper

from phaze.errors import InputError
from phaze.workload.onnx.shape_data import FAULTS

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


KEPT_BYTES = 4096
"""Fields up to this size stay: 256 numbers of shape data are never longer, nor are most nodes."""

MOST_FIELDS = 5_000_000
"""Where a file is given up: five million nodes and weights are no model, and would take minutes to walk."""

MOST_BYTES = 2**29
"""Where a file is given up: what is left of it without its weights must fit into memory several times."""

_DEEPEST = 100  # as protobuf's own limit on nested messages
_RAW = frozenset({"raw_data", "float_data", "double_data"})  # little-endian numbers, one after another
_NUMBERS = _RAW | {"int32_data", "int64_data", "uint64_data", "string_data"}


def parse_model(path: Path) -> ModelProto:
    """The model in a file, long content of tensors left out.

    Raises OSError for a file that cannot be read, ValueError or protobuf's DecodeError for one that is no
    such message.
    """
    model = ModelProto()
    with path.open("rb") as file:
        if path.stat().st_size:
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content, memoryview(content) as view:
                thin = _Thinner(view, path.name).message(ModelProto.DESCRIPTOR, 0, len(view), 0)
            model.ParseFromString(thin)
    return model


class _Thinner:
    """Copies the messages of one file without long content of tensors."""

    def __init__(self, view: memoryview, location: str) -> None:
        self._view = view
        self._location = location
        self._seen = 0

    def message(self, descriptor: object, begin: int, end: int, depth: int) -> bytes:
        """The message of a protobuf type that stands between two places of the file."""
        if depth > _DEEPEST:
            raise ValueError("messages are nested too deep")
        types = {field.number: field for field in descriptor.fields}  # type: ignore[attr-defined]
        made, copied = bytearray(), begin
        for number, start, body, stop in self._fields(begin, end):
            field = types.get(number)
            is_number = descriptor is TensorProto.DESCRIPTOR and field is not None and field.name in _NUMBERS
            if stop - body <= KEPT_BYTES or field is None or not (is_number or field.message_type):
                continue
            self._take(made, copied, start)
            copied = stop
            if is_number:
                made += self._reference(body, stop) if field.name in _RAW else b""
            else:
                made += _delimited(number, self.message(field.message_type, body, stop, depth + 1))
        self._take(made, copied, end)
        return bytes(made)

    def _take(self, made: bytearray, begin: int, end: int) -> None:
        """Copy a stretch of the file as it is."""
        if len(made) + end - begin > MOST_BYTES:
            raise ValueError("too large even without its weights")
        made += self._view[begin:end]

    def _fields(self, begin: int, end: int) -> Iterator[tuple[int, int, int, int]]:
        """Number, start, start of the content and end of each field of a message."""
        place = begin
        while place < end:
            start = place
            tag, body = self._number(place, end)
            match tag & 7:
                case 2:  # length-delimited
                    length, body = self._number(body, end)
                    place = body + length
                case 0:
                    place = self._number(body, end)[1]
                case 1:
                    place = body + 8
                case 5:
                    place = body + 4
                case unknown:
                    raise ValueError(f"wire type {unknown}")
            self._seen += 1
            if place > end or tag < 8 or self._seen > MOST_FIELDS:
                raise ValueError("a field without number or longer than its message, or too many of them")
            yield tag >> 3, start, body, place

    def _number(self, place: int, end: int) -> tuple[int, int]:
        """A variable-length integer and the place after it."""
        value = 0
        for i, byte in enumerate(self._view[place : min(end, place + 10)]):
            value |= (byte & 0x7F) << (7 * i)
            if byte < 0x80:
                return value, place + i + 1
        raise ValueError("a number does not end")

    def _reference(self, body: int, stop: int) -> bytes:
        """Fields of a tensor that tell where its content stands in the file."""
        entries = {"location": self._location, "offset": str(body), "length": str(stop - body)}
        tensor = TensorProto(
            data_location=TensorProto.EXTERNAL,
            external_data=[StringStringEntryProto(key=key, value=value) for key, value in entries.items()],
        )
        return bytes(tensor.SerializeToString())


def _delimited(number: int, content: bytes) -> bytes:
    """A length-delimited field."""
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    made = bytearray()
    while value > 0x7F:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    made.append(value)
    return bytes(made)
