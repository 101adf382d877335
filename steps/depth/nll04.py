"""Step nll04: Keeping freed memory: mallopt

Training makes and frees the same large arrays in each step, and that costs more than it seems. The
C library gets large pieces of memory from the system and returns each of them as soon as it is
freed. For the next array the system provides pages again, 4 KiB each, fills each with zeros, and
interrupts the program at the first touch of each: a page fault. For four arrays of 16 MiB that can
be 16,384 faults, again in each step.

glibc, the C library of Linux, has two numbers for this, which `mallopt` sets:

    MMAP_THRESHOLD   arrays from this size on are fetched and returned singly      -> 32 MiB
    TRIM_THRESHOLD   so much free memory at the end of the heap is returned        -> 512 MiB

With these, freed arrays stay in the heap of the process, and the next array of the same size reuses
them. ctypes (of the standard library) calls a C function of the running process. Other C libraries
have no mallopt: nothing happens.

The trap: the process keeps the memory that it once needed, and other programs do not get it.

(PyTorch keeps memory as well: on a GPU always, see step streams05; on the CPU people link
jemalloc.)

Changed: a new module, core/memory.py. New: keep_freed_memory; importing the module calls it.
Try: let keep_freed_memory return False at once. How many faults are there then?
"""

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


if __name__ == "__main__":
    import importlib.util
    import subprocess
    import sys
    import textwrap
    import types

    # Four arrays of 4 MiB, five times over. The same lines run in a new process, with the C
    # library's defaults, and here, where this file has asked it to keep what is freed.
    count = textwrap.dedent("""
        import numpy, resource
        for _ in range(2):  # the first time, the memory has to be fetched in any case
            before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
            for _ in range(5):
                arrays = [numpy.ones(1 << 20, numpy.float32) for _ in range(4)]
                del arrays
        faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
    """)
    if importlib.util.find_spec("resource") is None:
        print("this system does not count page faults")
    else:
        command = [sys.executable, "-c", count + "print(faults)"]
        as_it_comes = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        here = {}
        exec(count, here)
        print("page faults by default:  ", as_it_comes.strip())  # -> ...
        print("page faults, memory kept:", here["faults"])  # -> ...
    print("the C library was asked, and agreed:", freed_memory_is_kept)  # -> ...

    # Other libraries: one without mallopt, and one that notes what it is asked.
    asked, real = [], ctypes.CDLL
    ctypes.CDLL = lambda name: types.SimpleNamespace()
    print("without mallopt:", keep_freed_memory())  # -> without mallopt: False
    ctypes.CDLL = lambda name: types.SimpleNamespace(mallopt=lambda *args: asked.append(args) or 1)
    print("with it:", keep_freed_memory(), asked)
    # -> with it: True [(-3, 33554432), (-1, 536870912)]
    ctypes.CDLL = real
