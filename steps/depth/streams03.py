"""Step streams03: Two streams

A batch is fetched from the host and then computed with. In one stream, these take turns: 3 batches
take 6 units of time. But the GPU has units for copying beside those that compute. Two streams are
two queues, and they do not wait for one another: while one computes, the other fetches the next
batch. (They are made with non_blocking=True; a plain stream of CUDA waits for the default one.)

    copies    fetch 1 | fetch 2   | fetch 3   |
    compute           | compute 1 | compute 2 | compute 3

`with stream(s):` makes s the current stream, into which operations are put; the stream before is
back at the end. stream(None) changes nothing, so that a program can turn it off. (Fetching runs
beside computing only from pinned memory: step backend03.)

An object Stream may be made anew for the same queue, as current_stream() does. Two of them are
equal if CuPy's streams are, and have one hash: a dictionary takes them for one key.

The trap: the streams do not wait for one another, even where they should. In the demo, computing
begins before the data are there. There is no error: it computes with whatever is in the memory.

Changed: Stream. New: stream, default_stream.
Try: without __eq__ and __hash__, what does the last line of the demo say?
"""

from typing import Any

from tinytorch.cuda.backend import check_available, cupy
from tinytorch.cuda.device import device_index


class Queue:
    """A simulated stream: what is put into it is done later, and in order. Times are in ms."""

    now = 0.0  # the CPU's time, one for all queues

    def __init__(self):
        self.end = 0.0  # when the GPU will have done all that is in the queue

    def put(self, duration: float) -> None:
        """Orders work: 0.01 ms for the CPU. The GPU begins when the work before it is done."""
        Queue.now += 0.01
        self.end = max(self.end, Queue.now) + duration

    def synchronize(self) -> None:
        """Lets the CPU wait until all is done."""
        Queue.now = max(Queue.now, self.end)


class Event:
    """A mark in a stream: record it, then wait for it, or measure the time between two of them."""

    def __init__(self, enable_timing: bool = False, blocking: bool = False):
        check_available()
        self.cupy = cupy.cuda.Event(block=blocking, disable_timing=not enable_timing)

    def record(self, stream: "Stream | None" = None) -> None:
        """Puts the mark at the end of what the stream (the current one by default) has to do."""
        self.cupy.record((current_stream() if stream is None else stream).cupy)

    def query(self) -> bool:
        """Whether all work before the mark is done."""
        return self.cupy.done

    def synchronize(self) -> None:
        """Lets the CPU wait until all work before the mark is done."""
        self.cupy.synchronize()

    def elapsed_time(self, end_event: "Event") -> float:
        """Milliseconds on the GPU from this mark to another; both with enable_timing=True."""
        return cupy.cuda.get_elapsed_time(self.cupy, end_event.cupy)


class Stream:
    """A queue of work on a GPU. What is in one stream is done in order; streams do not wait for
    one another. Use it with `with tinytorch.cuda.stream(s):`."""

    def __init__(self, device: Any = None, priority: int = 0, *, cupy_stream: Any = None):
        check_available()
        if cupy_stream is None:
            with cupy.cuda.Device(device_index(device)):
                cupy_stream = cupy.cuda.Stream(non_blocking=True, priority=priority)
        self.cupy = cupy_stream

    def synchronize(self) -> None:
        """Lets the CPU wait until the stream is empty."""
        self.cupy.synchronize()

    def query(self) -> bool:
        """Whether the stream is empty."""
        return self.cupy.done

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, Stream) and self.cupy.ptr == other.cupy.ptr

    def __hash__(self) -> int:
        return hash(self.cupy.ptr)


class stream:
    """`with tinytorch.cuda.stream(s):` puts the work inside into stream s; None changes nothing."""

    def __init__(self, stream: Stream | None):
        self.stream = stream

    def __enter__(self) -> None:
        if self.stream is not None:
            self.stream.cupy.__enter__()

    def __exit__(self, *exception: Any) -> None:
        if self.stream is not None:
            self.stream.cupy.__exit__(*exception)


def current_stream() -> Stream:
    """The stream into which operations are put now."""
    check_available()
    return Stream(cupy_stream=cupy.cuda.get_current_stream())


def default_stream() -> Stream:
    """The stream that is current until another one is chosen."""
    check_available()
    return Stream(cupy_stream=cupy.cuda.Stream.null)


if __name__ == "__main__":
    import contextlib
    import types

    class SimulatedStream(Queue):
        def __init__(self, non_blocking=True, priority=0):
            super().__init__()
            self.ptr, self.priority = id(self), priority

        done = property(lambda self: self.end <= Queue.now)

        def __enter__(self):
            chosen.append(self)

        def __exit__(self, *exception):
            chosen.pop()

    SimulatedStream.null = SimulatedStream()
    chosen = [SimulatedStream.null]
    simulated = types.SimpleNamespace(
        Stream=SimulatedStream,
        get_current_stream=lambda: chosen[-1],
        Device=lambda index: contextlib.nullcontext(),
    )

    cupy = types.SimpleNamespace(cuda=simulated)  # a GPU is simulated
    check_available, device_index = (lambda: None), (lambda device: 0)

    # Three batches: each is fetched and computed with, in 1 ms each.
    def last_end(copies):
        began = Queue.now
        for _ in range(3):
            with stream(copies):  # None changes nothing
                current_stream().cupy.put(1.0)
            current_stream().cupy.put(1.0)
        current_stream().synchronize()
        return Queue.now - began

    print(f"one stream: {last_end(None):.0f} ms")  # -> one stream: 6 ms

    # With two, they run side by side: too early. Nothing waits for the first batch.
    copies = Stream(priority=-1)
    print(f"two streams: {last_end(copies):.0f} ms")  # -> two streams: 3 ms
    copies.cupy.put(2.0)
    start = max(current_stream().cupy.end, Queue.now)
    print("computes before its data are there:", start < copies.cupy.end)
    # -> computes before its data are there: True

    with stream(copies):
        print("inside:", current_stream() == copies)  # -> inside: True
    print("the stream before is back:", current_stream() == default_stream() != copies)
    # -> the stream before is back: True
    print("one queue, one key:", len({current_stream(), default_stream(), copies}))
    # -> one queue, one key: 2
