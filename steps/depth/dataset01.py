"""Step dataset01: Threads of a matrix product

Train a small network while the machine is busy with other work, and it may take thirty times as
long. The reason is the product of matrices. NumPy leaves it to a BLAS library, which starts one
thread for each core, and the threads of one product wait for each other: whenever one of them has
no core, all the others wait for it. With one thread there is no waiting, and for small matrices
several threads gain little at best. It is the same where several processes multiply matrices at the
same time, such as those of step loader18: eight processes of eight threads, on eight cores, are far
slower than eight of one.

NumPy can be built with several BLAS libraries, and has no function for their threads. threadpoolctl
is a small package that finds the library and calls it. It is optional: without it the two functions
here raise an error that names it. An environment variable always works; the library reads it when
it is loaded:

    OPENBLAS_NUM_THREADS=1 python train.py

(torch.get_num_threads and torch.set_num_threads are the same for PyTorch's own products.)

New: get_num_threads, set_num_threads. Moved: what step schedule21 wrote, to cycle.py.
Try: run the demo while another program keeps all cores busy.
"""

import importlib
from typing import Any

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


def load_threadpoolctl() -> Any:
    """threadpoolctl, which can talk to all BLAS libraries, or None where it is not installed. It is
    imported when it is needed: with it, `import tinytorch` would take longer."""
    try:
        import threadpoolctl
    except ImportError:
        return None
    return threadpoolctl


def blas_libraries() -> Any:
    """The loaded BLAS libraries, as threadpoolctl controls them.

    Raises:
        ImportError: where threadpoolctl is not installed.
    """
    threadpoolctl = load_threadpoolctl()
    if threadpoolctl is None:
        raise ImportError(
            "the number of threads is read and set by threadpoolctl, which is not installed: "
            "pip install threadpoolctl"
        )
    return threadpoolctl.ThreadpoolController().select(user_api="blas")


def get_num_threads() -> int:
    """The number of threads that a product of matrices on the CPU may use.

    Raises:
        ImportError: where threadpoolctl is not installed.
    """
    return max((library["num_threads"] for library in blas_libraries().info()), default=1)


def set_num_threads(num: int) -> None:
    """Sets the number of threads that a product of matrices on the CPU may use.

    Raises:
        ImportError: where threadpoolctl is not installed.
        RuntimeError: for anything but a positive integer.
    """
    if not isinstance(num, int):
        raise RuntimeError(f"set_num_threads expects an int, but got {type(num).__name__}")
    if num < 1:
        raise RuntimeError("set_num_threads expects a positive integer")
    blas_libraries().limit(limits=num)


if __name__ == "__main__":
    import time

    from tinytorch.ops.random import randn

    # The product of a small network's first layer, with as many threads as there are, and with one.
    x, weight = randn(64, 784), randn(784, 256)

    def milliseconds():
        start = time.perf_counter()
        for _ in range(200):
            x @ weight
        return (time.perf_counter() - start) / 200 * 1e3

    try:
        before, usual = get_num_threads(), milliseconds()
        set_num_threads(1)
        text = f"{before} threads {usual:.2f} ms, {get_num_threads()} {milliseconds():.2f} ms"
        set_num_threads(before)  # for the rest of the program
    except ImportError as error:
        text = str(error)
    print(text)  # -> ...

    # Without the package there is nothing to ask.
    load, load_threadpoolctl = load_threadpoolctl, lambda: None
    try:
        get_num_threads()
    except ImportError as error:
        print(str(error).rpartition("which ")[2])  # -> is not installed: pip install threadpoolctl
    load_threadpoolctl = load

    # What is refused.
    for wrong in (0, 1.5):
        try:
            set_num_threads(wrong)
        except RuntimeError as error:
            print(error)
    # -> set_num_threads expects a positive integer
    # -> set_num_threads expects an int, but got float
