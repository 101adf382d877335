"""Step elementwise18: Large arrays in chunks

Per element, erf of four million numbers takes more than twice as long as erf of ten thousand. It
does the same operations. The difference is where the numbers lie.

`polynomial` makes thirteen passes over its array, and tanh and the products make more. An array of
40 KB stays in the processor's cache from one pass to the next. One of 16 MB does not: each pass
gets it from memory and writes it back, and memory is slower than the arithmetic.

So a large array is cut into chunks, and each chunk goes through the whole formula before the next
one begins. A backend says how many elements a chunk has (`chunk_elements`, step device04); on a GPU
it says None, because there each operation is a launch, and more of them cost more.

The trap: the chunks are cut from one long row. reshape(-1) makes it, and copies an array that is
not contiguous.

Compilers do the same to whole chains of operations; there it is called loop fusion, or tiling.

Changed: erf_of. New: erf_formula.
Try: set chunk_elements to 100, and see what too many calls cost.
"""

import functools
import math
from typing import Any

import numpy as np

from tinytorch.core.device import device_of
from tinytorch.core.tensor import Tensor
from tinytorch.ops.elementwise import unary

# Polynomials in x^2, the constant first, fitted by least squares on the relative error of erf, with
# weights moved towards the largest errors until these were even (Lawson 1961).
# For float32 erf(x) is tanh(x p), to 1e-7 up to |x| = 4, where both become 1. For float64 it is
# x p / q, to 8e-18 up to |x| = 6.
# fmt: off
ERF_FLOAT32 = (
    1.1283793, 0.10276906, -0.00019183199, -0.00061978371, 8.7636999e-5, -5.668426e-6,
    1.4184959e-7,
)
ERF_FLOAT64 = (
    (1.1283791670955126, 0.22350992138874286, 0.067106701583840033, 0.0071486386798325379,
     0.00089519409781254, 6.1392091433056988e-5, 4.3055550476626276e-6, 1.9568644357134679e-7,
     8.2336866152592816e-9, 2.276822327454184e-10, 5.1213378509012598e-12, 4.7354014718176122e-14,
     8.2087701232847399e-17),
    (1.0, 0.53141384377386717, 0.13660971374653561, 0.022540026759436114, 0.0026687969277293038,
     0.00023994233762508876, 1.6880348625789718e-5, 9.4151764305302158e-7, 4.1562180376061841e-8,
     1.4231408823495243e-9, 3.5812606909591549e-11, 5.8099506506416758e-13, 2.562209921885018e-15,
     1.1775258739143197e-18),
)
# fmt: on


def polynomial(coefficients: tuple, t: Any) -> Any:
    """c0 + c1 t + c2 t^2 + ..., as c0 + t (c1 + t (c2 + ...)): Horner's scheme."""
    value = t * coefficients[-1]
    for coefficient in coefficients[-2:0:-1]:
        value += coefficient
        value *= t
    value += coefficients[0]
    return value


def erf_formula(x: Any, xp: Any) -> Any:
    """The error function of an array of float32 or float64."""
    if x.dtype == np.float32:
        return xp.tanh(x * polynomial(ERF_FLOAT32, x * x))
    x = xp.clip(x, -6, 6)
    p, q = (polynomial(coefficients, x * x) for coefficients in ERF_FLOAT64)
    return xp.clip(x * (p / q), -1, 1)


@functools.singledispatch
def erf_of(x: Any, xp: Any) -> Any:
    """The error function of an array. A large one is computed in chunks, so that the many
    intermediate results stay in the cache."""
    x = xp.asarray(x)  # NumPy's 0-d results are not arrays
    limit = device_of(x).backend.chunk_elements
    if limit is None or x.size <= limit:
        return erf_formula(x, xp)
    row = x.reshape(-1)
    chunks = [erf_formula(row[i : i + limit], xp) for i in range(0, x.size, limit)]
    return xp.concatenate(chunks).reshape(x.shape)


erf = unary(
    "erf",
    lambda xp, x: erf_of(x, xp),
    from_x=lambda xp, g, x: g * (2 / math.sqrt(math.pi)) * xp.exp(-x * x),
)


@erf_of.register(Tensor)
def erf_of_tensor(x: Tensor, xp: Any) -> Tensor:
    """The same for a Tensor, so that a formula may call `erf_of` on either."""
    return erf(x)


if __name__ == "__main__":
    import timeit

    from tinytorch.core.device import backends
    from tinytorch.core.tensor import tensor

    def nanoseconds(formula: Any, x: Any) -> float:
        """Of formula(x, np), for each element."""
        return min(timeit.repeat(lambda: formula(x, np), number=3, repeat=5)) / 3 / x.size * 1e9

    small = np.linspace(-3, 3, 10_000, dtype=np.float32)
    large = np.linspace(-3, 3, 4_000_000, dtype=np.float32)
    print(f"ten thousand at once: {nanoseconds(erf_formula, small):.1f} ns each")  # -> ...
    print(f"four million at once: {nanoseconds(erf_formula, large):.1f} ns each")  # -> ...
    print(f"four million in chunks: {nanoseconds(erf_of, large):.1f} ns each")  # -> ...

    print("chunks of", backends["cpu"].chunk_elements)  # -> chunks of 32768
    table = large.reshape(2000, 2000).T  # not contiguous: its rows are columns of the memory
    print(
        "the same:", np.array_equal(erf_of(table, np), erf_formula(table, np))
    )  # -> the same: True
    print(erf(tensor([[0.5], [-0.5]])).tolist())  # -> [[0.5205], [-0.5205]]
    print(erf_of(tensor(0.5), np).item(), erf_of(np.float32(0.5), np))  # -> 0.5205 0.5205
