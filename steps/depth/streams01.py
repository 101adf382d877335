"""Step streams01: A queue between CPU and GPU, simulated with two clocks

Step 82b built the model: a launch returns at once, and only a request for a number waits. `Queue`
is the same, without several streams, for the demos of this run: `now` is the CPU's time, `end` is
the time when the GPU will be ready.

The trap is that errors come late as well. A failing kernel was enqueued long before, and the error
appears at whatever line waits next. With CUDA_LAUNCH_BLOCKING=1 in the environment, CUDA waits
after each launch: slow, and the line is the right one.

New: Queue, a model that is dropped again in step streams05.
Try: a prepare time of 0.1 ms instead of 0.5. Which of the two loops gains, and why?
"""


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


if __name__ == "__main__":
    queue = Queue()
    queue.put(5.0)
    print(f"a stopwatch around a product of 5 ms: {Queue.now:.2f} ms")
    # -> a stopwatch around a product of 5 ms: 0.01 ms
    queue.synchronize()
    print(f"after synchronize(): {Queue.now:.2f} ms")  # -> after synchronize(): 5.01 ms
    queue.put(1.0)
    queue.put(2.0)
    print(f"in order, one after the other: ready in {queue.end - Queue.now:.2f} ms")
    # -> in order, one after the other: ready in 2.99 ms

    def train(steps, prepare, every):
        """ms for all steps: each `prepare` on the CPU, 0.5 on the GPU; item() now and then."""
        queue = Queue()
        queue.end = begin = Queue.now
        for step in range(steps):
            Queue.now += prepare
            queue.put(0.5)
            if step % every == 0:
                queue.synchronize()  # print(loss.item())
        queue.synchronize()
        return Queue.now - begin

    print(f"100 steps, the loss printed in each: {train(100, 0.5, 1):.0f} ms")
    # -> 100 steps, the loss printed in each: 101 ms
    print(f"printed once: {train(100, 0.5, 100):.0f} ms")  # -> printed once: 52 ms
