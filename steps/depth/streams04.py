"""Step streams04: One stream waits for an event of another

In the demo of step streams03 two streams compute with a batch before it has arrived. The CPU could
wait for the copy (synchronize), but then it puts nothing into the queues meanwhile, and they run
empty.

The waiting itself can be put into a stream. `wait_event` lets it wait for a mark (step streams02)
in the other one: what is put in from now on starts after the mark. `wait_stream` marks the end of
another stream and waits for it. The CPU waits in neither case; it only enqueues the wait.

    copies    fetch 1  mark | fetch 2  mark |
    compute                 wait, compute 1 | wait, compute 2        3 batches: 4 units, not 6

The trap is memory. It belongs to the stream that was current when it was allocated, and that stream
reuses it as soon as the last reference is gone. If another stream still reads it, it reads the new
owner's numbers. So keep a tensor until the other stream has finished with it.

Changed: Event (wait), Stream. With them, cuda/streams.py is finished.
Try: take wait_event out of `pipeline` of the demo. When does the last batch seem to be done?
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

    def wait(self, stream: "Stream | None" = None) -> None:
        """Lets the stream wait for the mark. The CPU does not wait."""
        (current_stream() if stream is None else stream).wait_event(self)

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
    one another unless told so. Use it with `with tinytorch.cuda.stream(s):`.

    Memory belongs to the stream that was current when it was asked for. Before another stream uses
    a tensor, let it wait: `other.wait_stream(s)`; and keep the tensor until that has been done.
    """

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

    def record_event(self, event: Event | None = None) -> Event:
        event = Event() if event is None else event
        event.record(self)
        return event

    def wait_event(self, event: Event) -> None:
        """What is put into this stream from now on starts after the event's mark."""
        self.cupy.wait_event(event.cupy)

    def wait_stream(self, stream: "Stream") -> None:
        """What is put into this stream from now on starts after all that `stream` has now."""
        self.wait_event(stream.record_event())

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

        def wait_event(self, event):
            self.end = max(self.end, event.at)

        def __enter__(self):
            chosen.append(self)

        def __exit__(self, *exception):
            chosen.pop()

    class SimulatedEvent:
        def __init__(self, block, disable_timing):
            pass

        def record(self, queue):
            self.at = max(queue.end, Queue.now)

    SimulatedStream.null = SimulatedStream()
    chosen = [SimulatedStream.null]
    simulated = types.SimpleNamespace(
        Stream=SimulatedStream,
        Event=SimulatedEvent,
        get_current_stream=lambda: chosen[-1],
        Device=lambda index: contextlib.nullcontext(),
    )

    def on_a_gpu():
        """Seconds for 10 copies and 10 products, in one stream and in two."""
        import time

        import numpy as np

        a = cupy.ones((4096, 4096), cupy.float32)
        host = cupy.cuda.alloc_pinned_memory(a.nbytes)
        host = np.frombuffer(host, np.float32, a.size).reshape(a.shape)
        there, copies, seconds = cupy.empty_like(a), Stream(), {}
        for way in ("one stream", "two streams"):
            current_stream().synchronize()
            started = time.perf_counter()
            for _ in range(10):
                with stream(copies if way == "two streams" else None):
                    there.set(host, cupy.cuda.get_current_stream())
                a @ a
            copies.synchronize()
            current_stream().synchronize()
            seconds[way] = round(time.perf_counter() - started, 4)
        return seconds

    present = cupy is not None and cupy.cuda.is_available()
    print(on_a_gpu() if present else "left out, for want of a GPU")  # -> ...

    cupy = types.SimpleNamespace(cuda=simulated)  # from here on, a GPU is simulated
    check_available, device_index = (lambda: None), (lambda device: 0)

    def pipeline(batches, copies):
        """When the last batch is done; each is fetched and computed with, in 1 ms."""
        compute, began = current_stream(), Queue.now
        for _ in range(batches):
            with stream(copies):  # None changes nothing
                current_stream().cupy.put(1.0)
                fetched = current_stream().record_event()
            compute.wait_event(fetched)
            compute.cupy.put(1.0)
        compute.synchronize()
        return Queue.now - began

    print(f"3 batches, one stream: {pipeline(3, None):.0f} ms; two: {pipeline(3, Stream()):.0f} ms")
    # -> 3 batches, one stream: 6 ms; two: 4 ms

    # A stream that does not wait begins before its data are there.
    copies, compute = Stream(priority=-1), current_stream()
    copies.cupy.put(2.0)
    arrive = copies.cupy.end
    start = max(compute.cupy.end, Queue.now)
    print(
        "computes before they are there:", start < arrive
    )  # -> computes before they are there: True
    compute.wait_stream(copies)
    print("after wait_stream:", compute.cupy.end < arrive, "- the CPU waited:", Queue.now >= arrive)
    # -> after wait_stream: False - the CPU waited: False

    mark = copies.record_event(Event())
    with stream(Stream()):
        inside = current_stream()
        mark.wait()
    print("the current stream waits for the mark:", inside.cupy.end == mark.cupy.at, inside.query())
    # -> the current stream waits for the mark: True False
