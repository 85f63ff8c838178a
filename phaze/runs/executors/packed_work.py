"""Work as bytes that other processes unpack, and the works they keep."""

from __future__ import annotations

import io
import pickle
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Generic, TypeVar

from phaze.digest import sha256_of

T = TypeVar("T")
MOST = 2  # works kept: a search has one at a time, and each may grow large


@dataclass(frozen=True)
class Pack:
    """A pickled work and the digest of its content."""

    content: bytes
    digest: str


@dataclass
class RecentlyUsed(Generic[T]):
    """The `MOST` things used last, by key; two that are asked for the same keys in turn hold the same."""

    _things: OrderedDict[Any, T] = field(default_factory=OrderedDict)

    def __contains__(self, key: object) -> bool:
        """Whether it is there."""
        return key in self._things

    def get(self, key: object, make: Callable[[], T]) -> T:
        """The thing of a key, made where it is not there."""
        if key not in self._things:
            self._things[key] = make()
        self._things.move_to_end(key)
        while len(self._things) > MOST:
            self._things.popitem(last=False)
        return self._things[key]


@dataclass
class Packs:
    """Packs of the works used last; each work is packed once, as it is when first asked for."""

    _kept: RecentlyUsed[tuple[object, Pack]] = field(default_factory=RecentlyUsed)

    def of(self, work: object) -> Pack:
        """The pack of a work."""
        # The work is kept beside its pack, so that no other can have its identity.
        return self._kept.get(id(work), lambda: (work, packed(work)))[1]


class _Pickler(pickle.Pickler):
    """Also packs read-only mappings, which graphs are full of."""

    def reducer_override(self, thing: object) -> Any:  # noqa: ANN401 - pickle's own protocol
        return (_read_only, (dict(thing),)) if isinstance(thing, MappingProxyType) else NotImplemented


def _read_only(content: dict[object, object]) -> MappingProxyType[object, object]:
    return MappingProxyType(content)


def packed(thing: object) -> Pack:
    """Pickle of a thing for another process, read-only mappings included."""
    buffer = io.BytesIO()
    _Pickler(buffer, protocol=pickle.HIGHEST_PROTOCOL).dump(thing)
    content = buffer.getvalue()
    return Pack(content, sha256_of(content))
