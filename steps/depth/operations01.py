"""Step operations01: Reductions: what a loop has to know

A compiler turns sum(x) into a loop: a variable, the accumulator, starts at 0 and takes up one
number after the other. The other reductions have the same loop. But put their statements in the
place of acc += x and change nothing else, and their results are wrong:

    prod    acc *= x;                       0, whatever the numbers are
    max     acc = x > acc ? x : acc;        0 for negative numbers

(C writes `a ? b : c` for Python's `b if a else c`.) So a reduction is more than a statement, and
the parts of a compiler ask for different facts:

    what records a program       the function that it repeats: np.add.reduce is the sum
    what writes loops in C       the statement, the number before the first one, the type of `acc`
    what divides them            C's sign, or OpenMP's word: so it joins what two threads have found
    what writes for a GPU        the same formula for the numbers of two threads

If each part had a list of its own, a reduction that is missing in one of them would be found late.
So one table has a line for each reduction, and the runs tracer, ccode and cudacode ask it.

The trap is nan. No comparison with it is true, so max passes over it, and NumPy's max is nan. A
loop must look for nan where `compare` is not empty (step ccode06).

(PyTorch's compiler has functions for this, reduction_init and reduction_combine in
torch._inductor.codegen.cpp, with an `if` for each reduction.)

New: Accumulator, ACCUMULATORS.
Try: let "prod" start at 0. Which line of the demo shows it?
"""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Accumulator:
    """How a reduction takes up one number after the other.

    Attributes:
        repeats: the element-wise function that it repeats: np.add.reduce is the sum.
        sign: C's operator for that, or the word that OpenMP has for it.
        start: the number before the first one; None where it depends on the type.
        compare: of a reduction that chooses one of two numbers: the sign that is true for it.
        in_double: floats are added up in float64.
        of_truth: it takes up whether a number is not 0.
    """

    repeats: str | None
    sign: str
    start: int | None = None
    compare: str = ""
    in_double: bool = False
    of_truth: bool = False

    def combined(self, a: str, b: str) -> str:
        """C for one number out of two."""
        return f"{b} {self.compare} {a} ? {b} : {a}" if self.compare else f"{a} {self.sign} {b}"

    def update(self, acc: str, x: str) -> str:
        """The statement in C with which the variable `acc` takes up a number."""
        return f"{acc} = {self.combined(acc, x)};" if self.compare else f"{acc} {self.sign}= {x};"


ACCUMULATORS = {
    "sum": Accumulator("add", "+", start=0, in_double=True),
    "mean": Accumulator(None, "+", start=0, in_double=True),  # divided by the count at the end
    "prod": Accumulator("multiply", "*", start=1, in_double=True),
    "max": Accumulator("maximum", "max", compare=">"),
    "min": Accumulator("minimum", "min", compare="<"),
    "all": Accumulator("logical_and", "&", start=1, of_truth=True),
    "any": Accumulator("logical_or", "|", start=0, of_truth=True),
}


if __name__ == "__main__":
    import math
    import re

    import numpy as np

    def python_of(text):
        """A line of C as Python."""
        return re.sub(r"= (.*) \? (.*) : (.*);", r"= \2 if \1 else \3", text)

    def reduced(name, row, start):
        """The reduction of some numbers, with the statement of the table in a loop."""
        statement = python_of(ACCUMULATORS[name].update("acc", "x"))
        names = {"acc": start}
        for x in row:
            names["x"] = x
            exec(statement, names)
        return names["acc"]

    # The same loop from 0 for three reductions: the second and the third are wrong.
    row = [-3.0, -1.0, -2.0]
    print([reduced(name, row, 0.0) for name in ("sum", "prod", "max")])  # -> [-6.0, -0.0, 0.0]

    def start_of(name):
        """The number before the first one, for floats."""
        reduction = ACCUMULATORS[name]
        if reduction.start is not None:
            return float(reduction.start)
        return -math.inf if reduction.compare == ">" else math.inf

    print([reduced(name, row, start_of(name)) for name in ("sum", "prod", "max")])
    # -> [-6.0, -6.0, -1.0]

    # The statements, and the formula with which two threads join what they have found.
    for name in ("sum", "min", "any"):
        reduction = ACCUMULATORS[name]
        print(f"{name}: {reduction.update('acc', 'x')}   {reduction.combined('a', 'b')}")
    # -> sum: acc += x;   a + b
    # -> min: acc = x < acc ? x : acc;   b < a ? b : a
    # -> any: acc |= x;   a | b

    # Each gives what the function that it repeats gives in NumPy. any and all take truths.
    numbers = np.random.default_rng(0).normal(size=12)
    for name, reduction in ACCUMULATORS.items():
        if reduction.of_truth:
            got = reduced(name, [int(x != 0) for x in numbers], reduction.start)
        else:
            got = reduced(name, numbers, start_of(name))
        if reduction.repeats:  # a mean is a sum, divided at the end
            assert np.isclose(got, getattr(np, reduction.repeats).reduce(numbers)), name
    print(len(ACCUMULATORS), "reductions")  # -> 7 reductions

    # Why floats are added up in float64: a million times 0.1.
    tenths = np.full(1_000_000, 0.1, np.float32)
    print(f"{np.cumsum(tenths)[-1]:.0f}, {np.cumsum(tenths, dtype=np.float64)[-1]:.0f}")
    # -> 100958, 100000

    # The trap: a nan between two numbers is lost.
    print(reduced("max", [1.0, math.nan, 2.0], -math.inf), np.max([1.0, math.nan, 2.0]))
    # -> 2.0 nan
