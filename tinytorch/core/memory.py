"""Makes the C library keep freed memory for the next array."""

import ctypes


def keep_freed_memory() -> bool:
    """Tells glibc to keep the memory of freed arrays. Returns whether that worked.

    A training step makes the same large arrays again and again. By default glibc maps each of them
    anew and unmaps it when it is freed, and the kernel has to provide, and zero, every page of
    4 KiB at its first touch: a page fault. Here arrays below 32 MiB come from the heap, and the
    heap does not shrink. See `man 3 mallopt`. Other C libraries have no mallopt: nothing happens.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    trim_threshold, mmap_threshold = -1, -3  # their numbers in malloc.h
    return bool(mallopt(mmap_threshold, 32 << 20) and mallopt(trim_threshold, 512 << 20))


freed_memory_is_kept = keep_freed_memory()
