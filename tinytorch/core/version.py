"""How often each storage was written in place, and when; kept only for storages that ever were."""

import functools
import itertools
import operator
import weakref
from typing import Any

# Global clock for calls and in-place writes. It counts down (0, -1, -2, ...), so that a min-heap
# yields the newest call first. An output is newer than its inputs: the order is topological.
clock = itertools.count(0, -1)
next_sequence_nr = clock.__next__


last_write = [1]  # the time of the last in-place write to any storage; 1 before the first one

# Takes the time of a write from the clock and stores it as the last one, in one call into C. With
# two, another thread could write in between, and its later time be replaced by the earlier one. An
# element of a list is set and read in half the time of an attribute of a class.
note_write = map(functools.partial(operator.setitem, last_write, 0), clock).__next__


# id of a storage -> [weak reference to it, number of writes, time of the last write]
versions: dict[int, list] = {}


def storage_of(array: Any) -> Any:
    """The array that owns the memory of `array`; all views of it have the same one."""
    while array.base is not None and hasattr(array.base, "base"):
        array = array.base
    return array


def version_of(array: Any) -> int:
    """How often the memory of `array` was written in place, through any view."""
    entry = versions.get(id(storage_of(array)))
    return 0 if entry is None else entry[1]


def modified_since(array: Any, time: int) -> bool:
    """Whether the memory of `array` was written after `time` on the clock."""
    entry = versions.get(id(storage_of(array)))
    return entry is not None and entry[2] < time


def bump_version(array: Any) -> None:
    """Count one write into the memory of `array`. The entry disappears with the storage."""
    storage = array if array.base is None else storage_of(array)
    key = id(storage)
    entry = versions.get(key)
    if entry is None:
        # A Ctrl-C in a Python function that a weak reference calls is lost: so it calls pop itself.
        forget = functools.partial(versions.pop, key)
        entry = versions.setdefault(key, [weakref.ref(storage, forget), 0, 1])
    entry[1] += 1
    note_write()
    entry[2] = last_write[0]
