"""How often each storage was written in place, and when: kept only for storages that ever were."""

import weakref
from typing import Any


class Writes:
    """The number of all writes in place so far, of whatever storage: a clock for them."""

    count = 0


# id of a storage -> [weak reference to it, number of its writes, Writes.count at the last one]
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


def written_since(array: Any, time: int) -> bool:
    """Whether the memory of `array` was written after Writes.count was `time`."""
    entry = written.get(id(storage_of(array)))
    return entry is not None and entry[2] > time


def count_write(array: Any) -> None:
    """Notes one write into the memory of `array`. The count is forgotten with the storage."""
    storage = storage_of(array)
    key = id(storage)
    entry = written.get(key)
    if entry is None:
        entry = written[key] = [weakref.ref(storage, lambda _: written.pop(key, None)), 0, 0]
    Writes.count += 1
    entry[1] += 1
    entry[2] = Writes.count
