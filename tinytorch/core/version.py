"""How often each storage was written in place, and when: kept only for storages that ever were."""

import itertools
import weakref
from typing import Any

# Numbers all that happens, calls and writes in place: 0, -1, -2, ... An output is younger than its
# inputs, so this is a topological order of the calls, and a heap gives the youngest first.
next_order = itertools.count(0, -1).__next__


class Writes:
    """The number of the last write in place, of whatever storage; 1 before there is one."""

    last = 1


# id of a storage -> [weak reference to it, how often it was written, the number of the last write]
written: dict[int, list] = {}


def storage_of(array: Any) -> Any:
    """The array that owns the memory of `array`: the same one for all views of it."""
    while array.base is not None and hasattr(array.base, "base"):
        array = array.base
    return array


def version_of(array: Any) -> int:
    """How often the memory of `array` was written in place, through whatever view."""
    entry = written.get(id(storage_of(array)))
    return 0 if entry is None else entry[1]


def written_since(array: Any, order: int) -> bool:
    """Whether the memory of `array` was written after what has the number `order`."""
    entry = written.get(id(storage_of(array)))
    return entry is not None and entry[2] < order


def count_write(array: Any) -> None:
    """Notes one write into the memory of `array`. The count is forgotten with the storage."""
    storage = storage_of(array)
    key = id(storage)
    entry = written.get(key)
    if entry is None:
        entry = written[key] = [weakref.ref(storage, lambda _: written.pop(key, None)), 0, 1]
    entry[1] += 1
    entry[2] = Writes.last = next_order()
