"""Step plan02: How often to write a checkpoint

Step plan01 writes a file after each epoch. With 1,000 GPUs an epoch may take a week, and something
breaks every two days: no epoch would ever end. A file after each step would never lose anything,
and the job would do little but write.

Writing costs c seconds, every t seconds. A failure, every M seconds, costs the work since the last
file, on average half an interval:

    waste = c / t + t / (2 M)        least at t = sqrt(2 c M)          (Young, 1974)

Where from: the derivative by t is -c / t^2 + 1 / (2 M), and it is zero there.

If a GPU fails once in 5 years, 1,000 of them fail every 44 hours: one of them, and all have to go
back. With a minute for a file, the best interval is 72 minutes, and 3 % of the time is lost. The
demo also shows how flat the minimum is: half or twice the interval costs little more.

The trap: the formula holds while t is much shorter than M. And c is the time that training stands
still: copying to the main memory is enough, the disk can be written meanwhile.

New: interval, waste, which are not in the package.
Try: a file that takes ten minutes, with 10,000 GPUs.
"""

import math


def interval(between: float, cost: float) -> float:
    """Seconds between two files that lose the least time (Young, 1974).

    Args:
        between: seconds between two failures.
        cost: seconds that a file takes.
    """
    return math.sqrt(2 * cost * between)


def waste(every: float, between: float, cost: float) -> float:
    """The share of the time that is lost: for files, and for work that is done twice."""
    return cost / every + every / (2 * between)


if __name__ == "__main__":
    for count in (1, 100, 1000, 10000):
        between = 5 * 365 * 24 * 3600 / count  # seconds between failures
        every = interval(between, 60)  # a file takes a minute
        print(
            f"{count:5} GPUs: a failure every {between / 3600:7.1f} h, "
            f"a file every {every / 60:5.0f} min, lost {waste(every, between, 60):.1%}"
        )
    # ->     1 GPUs: a failure every 43800.0 h, a file every  2293 min, lost 0.1%
    # ->   100 GPUs: a failure every   438.0 h, a file every   229 min, lost 0.9%
    # ->  1000 GPUs: a failure every    43.8 h, a file every    72 min, lost 2.8%
    # -> 10000 GPUs: a failure every     4.4 h, a file every    23 min, lost 8.7%
    between = 43.8 * 3600
    for factor in (0.1, 0.5, 1, 2, 10):
        every = factor * interval(between, 60)
        print(f"every {every / 60:4.0f} min: {waste(every, between, 60):.1%}")
    # -> every    7 min: 13.9%
    # -> every   36 min: 3.4%
    # -> every   72 min: 2.8%
    # -> every  145 min: 3.4%
    # -> every  725 min: 13.9%
