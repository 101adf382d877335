"""What the compiler knows about reductions and functions: one line each, for all its parts."""

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


@dataclasses.dataclass(frozen=True)
class LibraryFunction:
    """A function of C's library.

    Attributes:
        called: its name for float64; that for float32 ends in f.
        cost: of one element, in additions.
        operands: how many it has.
        vectors: whether glibc's libmvec has a form of it for 4 to 16 numbers at once.
    """

    called: str
    cost: int = 20
    operands: int = 1
    vectors: bool = True

    def template(self) -> str:
        """The call. {f} is "f" in float32 and nothing in float64: expf and exp."""
        return f"{self.called}{{f}}({'{a}, {b}' if self.operands == 2 else '{a}'})"


LIBRARY = {
    "exp": LibraryFunction("exp", cost=8),
    "expm1": LibraryFunction("expm1"),
    "exp2": LibraryFunction("exp2"),
    "log": LibraryFunction("log", cost=8),
    "log1p": LibraryFunction("log1p"),
    "log2": LibraryFunction("log2"),
    "log10": LibraryFunction("log10"),
    "sin": LibraryFunction("sin"),
    "cos": LibraryFunction("cos"),
    "tan": LibraryFunction("tan"),
    "sinh": LibraryFunction("sinh"),
    "cosh": LibraryFunction("cosh"),
    "tanh": LibraryFunction("tanh"),
    "erf": LibraryFunction("erf"),
    "erfc": LibraryFunction("erfc"),
    "cbrt": LibraryFunction("cbrt"),
    "arcsin": LibraryFunction("asin"),
    "arccos": LibraryFunction("acos"),
    "arctan": LibraryFunction("atan"),
    "arcsinh": LibraryFunction("asinh"),
    "arccosh": LibraryFunction("acosh"),
    "arctanh": LibraryFunction("atanh"),
    "power": LibraryFunction("pow", operands=2),
    "float_power": LibraryFunction("pow", operands=2),
    "hypot": LibraryFunction("hypot", operands=2),
    "arctan2": LibraryFunction("atan2", operands=2),
    "fmod": LibraryFunction("fmod", operands=2, vectors=False),
    "copysign": LibraryFunction("copysign", cost=1, operands=2, vectors=False),
    "sqrt": LibraryFunction("sqrt", cost=4, vectors=False),
    "floor": LibraryFunction("floor", cost=1, vectors=False),
    "ceil": LibraryFunction("ceil", cost=1, vectors=False),
    "trunc": LibraryFunction("trunc", cost=1, vectors=False),
    "rint": LibraryFunction("rint", cost=1, vectors=False),
    "fabs": LibraryFunction("fabs", cost=1, vectors=False),
}
