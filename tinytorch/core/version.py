"""How often each storage was written in place: counted only for storages that ever were."""

import weakref
from typing import Any

# id of a storage -> [weak reference to it, number of writes]. Empty as long as nothing is written
# in place, so that a program without in-place operations pays one truth test.
written: dict[int, list] = {}


def storage_of(array: Any) -> Any:
    """The array that owns the memory of `array`: the same one for all views of it."""
    while array.base is not None and hasattr(array.base, "base"):
        array = array.base
    return array


def version_of(array: Any) -> int:
    """How often the memory of `array` was written in place, through whatever view."""
    if not written or not hasattr(array, "base"):
        return 0
    entry = written.get(id(storage_of(array)))
    return 0 if entry is None else entry[1]


def count_write(array: Any) -> None:
    """Notes one write into the memory of `array`. The count is forgotten with the storage."""
    storage = storage_of(array)
    key = id(storage)
    entry = written.get(key)
    if entry is None:
        entry = written[key] = [weakref.ref(storage, lambda _: written.pop(key, None)), 0]
    entry[1] += 1
