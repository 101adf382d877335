"""What the compiler knows about reductions: one line each, for the trace, for C and for CUDA."""

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
