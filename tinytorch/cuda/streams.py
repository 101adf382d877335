"""Streams: lines in which the GPU works, each in order, several at once. Events: marks in them."""

from typing import Any

from tinytorch.cuda.backend import check_available, cupy
from tinytorch.cuda.device import device_index


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
