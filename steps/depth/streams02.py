"""Step streams02: Events: time stamps in the queue

How long does the product itself take? A stopwatch that waits for the GPU before and after, with
synchronize(), measures all that is in the queue, and empties it: the measurement changes what it
measures.

An event is a mark that is put into the stream like work. When the GPU comes to it, it notes the
time. So a mark before the product and one after it give the GPU's own time between the two, and the
CPU need not wait until it wants the number:

    begin.record()                     stream:   ... | begin | a @ b | end | ...
    a @ b
    end.record()
    end.synchronize()                  wait until the GPU has come to `end`
    begin.elapsed_time(end)            milliseconds

An event's synchronize() waits for the work before the mark, a stream's for all of its work. query()
asks without waiting.

The trap is elapsed_time too early: as long as the GPU has not come to `end`, there is no time, and
CUDA raises an error. And a first call compiles and reserves memory; measure the second.

Our Event and Stream are CuPy's, with PyTorch's names: tinytorch.cuda.Event. Without a GPU, the demo
lets Queue simulate the GPU beneath them.

New: Event, Stream, current_stream.
Try: put another queue.put(7.0) behind end.record(). Does the time between the events change?
"""

from typing import Any

from tinytorch.cuda.backend import check_available, cupy


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
    """A queue of work on a GPU."""

    def __init__(self, *, cupy_stream: Any):
        self.cupy = cupy_stream

    def synchronize(self) -> None:
        """Lets the CPU wait until the stream is empty."""
        self.cupy.synchronize()

    def query(self) -> bool:
        """Whether the stream is empty."""
        return self.cupy.done


def current_stream() -> Stream:
    """The stream into which operations are put now."""
    check_available()
    return Stream(cupy_stream=cupy.cuda.get_current_stream())


if __name__ == "__main__":
    import types

    class SimulatedStream(Queue):
        done = property(lambda self: self.end <= Queue.now)

    class SimulatedEvent:
        """A mark is the time when the work before it is done."""

        def __init__(self, block, disable_timing):
            pass

        def record(self, queue):
            self.at = max(queue.end, Queue.now)

        done = property(lambda self: self.at <= Queue.now)

        def synchronize(self):
            Queue.now = max(Queue.now, self.at)

    current = SimulatedStream()
    simulated = types.SimpleNamespace(
        Event=SimulatedEvent,
        get_current_stream=lambda: current,
        get_elapsed_time=lambda begin, end: end.at - begin.at,
    )

    def on_a_gpu():
        """ms that the CPU's watch and the events see, for a product."""
        import time

        a = cupy.ones((4096, 4096), cupy.float32)
        a @ a
        begin, end = Event(enable_timing=True), Event(enable_timing=True)
        current_stream().synchronize()
        started = time.perf_counter()
        begin.record()
        a @ a
        end.record()
        ordered = 1000 * (time.perf_counter() - started)
        end.synchronize()
        return f"ordered in {ordered:.3f} ms, computed in {begin.elapsed_time(end):.3f} ms"

    there = cupy is not None and cupy.cuda.is_available()
    print(on_a_gpu() if there else "left out, for want of a GPU")  # -> ...

    cupy = types.SimpleNamespace(cuda=simulated)  # from here on, a GPU is simulated
    check_available = lambda: None  # noqa: E731

    queue = current
    queue.put(3.0)  # work from before
    started = Queue.now
    begin, end = Event(enable_timing=True), Event(enable_timing=True)
    begin.record()
    queue.put(5.0)
    end.record(current_stream())
    queue.put(4.0)  # and work that follows
    print(f"the stopwatch: {Queue.now - started:.2f} ms")  # -> the stopwatch: 0.02 ms
    print("has the GPU come to the mark?", end.query())  # -> has the GPU come to the mark? False
    end.synchronize()
    print("and now?", end.query(), "- is the stream empty?", current_stream().query())
    # -> and now? True - is the stream empty? False
    print(f"between the events: {begin.elapsed_time(end):.2f} ms")  # -> between the events: 5.00 ms
    current_stream().synchronize()
    print(f"stopwatch and synchronize: {Queue.now - started:.2f} ms", current_stream().query())
    # -> stopwatch and synchronize: 12.00 ms True
