"""Step 82b: Launches return at once: streams

How long does a @ b take on a GPU? A stopwatch says 0.01 ms, for work of 5 ms. A launch returns
before anything is computed. The CPU puts the kernel into a queue, called a stream, and goes on; the
GPU works through the stream in order. So while the GPU computes, Python is at the next operations:

    CPU    order | prepare the next batch | order | prepare ...
    GPU          | compute                        | compute ...

Only a request for a number waits: item(), tolist(), print, `if loss > 1`. A training loop that
prints its loss in each step empties the stream each time, and takes the sum of both times.

Two streams run beside each other: in one, the next batch can cross the bus while this one is
computed in the other. What needs the copy has to be told to wait: wait_stream.

The trap: without that wait, a kernel reads a batch that is not there yet, without an error. And
errors come late, at the line that waits next (CUDA_LAUNCH_BLOCKING=1 makes each launch wait).

The times of Stream are invented: they show the order of things, not the speed of a GPU. PyTorch:
torch.cuda.Stream.

New: Stream.
Try: leave out wait_stream. What does the loop with two streams claim to take, and why is it wrong?
"""


class Stream:
    """A queue of work for a GPU, simulated: what is put into it is done later and in order.

    Times are in ms. now: the CPU's time. end: when all that was put into this stream is done.
    """

    now = 0.0

    def __init__(self):
        self.end = 0.0

    def put(self, duration):
        """Order work, which takes the CPU 0.01 ms. It begins when the work before it is done."""
        Stream.now += 0.01
        self.end = max(self.end, Stream.now) + duration

    def synchronize(self):
        """Let the CPU wait until all is done."""
        Stream.now = max(Stream.now, self.end)

    def wait_stream(self, other):
        """Let what is put into this stream from now on wait for what is in the other one."""
        self.end = max(self.end, other.end)


if __name__ == "__main__":
    stream = Stream()
    stream.put(5.0)
    print("ms on a stopwatch:", Stream.now)  # -> ms on a stopwatch: 0.01
    stream.synchronize()
    print("ms after synchronize():", Stream.now)  # -> ms after synchronize(): 5.01

    def train(steps, every):
        """ms for all steps: each takes 0.5 on the CPU and 0.5 on the GPU; item() now and then."""
        begin = Stream.now
        for step in range(steps):
            Stream.now += 0.5  # Python prepares a batch
            stream.put(0.5)
            if step % every == 0:
                stream.synchronize()  # print(loss.item())
        stream.synchronize()
        return round(Stream.now - begin, 1)

    print("ms of 100 steps, the loss printed in each, or once:", train(100, 1), train(100, 100))
    # -> ms of 100 steps, the loss printed in each, or once: 101.0 52.0

    def copies(steps, compute, copy):
        """ms for all steps: each batch is copied in 1 ms and computed in 1 ms."""
        begin = Stream.now
        for _ in range(steps):
            copy.put(1.0)
            compute.wait_stream(copy)
            compute.put(1.0)
        compute.synchronize()
        return round(Stream.now - begin, 1)

    one, two = copies(100, stream, stream), copies(100, stream, Stream())
    print("ms of 100 batches, one stream, or two:", one, two)
    # -> ms of 100 batches, one stream, or two: 200.0 101.0
