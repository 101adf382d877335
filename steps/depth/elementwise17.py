"""Step elementwise17: erf, a function without a formula

The table of step elementwise01 calls NumPy's functions. NumPy has no erf, the area under a bell
curve:

    erf(x) = 2 / sqrt(pi) * (the integral of e^(-t^2) for t from 0 to x)

Its derivative is a formula, but the area is not: no finite number of operations gives it. Python's
own math.erf takes one number at a time, and a loop over it is slow.

So we fit a formula to it. A polynomial alone goes to infinity, where erf goes to 1. But tanh goes
to 1 too. So let erf(x) = tanh(u), where u is a smooth, odd function of x:

    erf(x) = tanh(x p(x^2)),     p(t) = c0 + c1 t + ... + c6 t^6

A least-squares fit finds the seven numbers. At large x, tanh is flat and hides an error of p. So
each error is weighted by its effect on erf. For float64, p would need some fifty terms. Here erf is
x times a quotient of two polynomials, cut off at |x| = 6, where erf is 1 to the last digit.

The trap is to compute the powers: t^6 is slow, and overflows where the whole does not. `polynomial`
multiplies and adds in turn (Horner's method), and allocates one array.

A backward pass may run on Tensors (step 33), so erf_of is a singledispatch (step elementwise07). An
array library with an erf of its own can register it there.

New: polynomial, erf_of, erf, erf_of_tensor.
Try: leave out the last number of ERF_FLOAT32. What is erf of 4 now, and of 1e20?
"""

import functools
import math
from typing import Any

import numpy as np

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


@functools.singledispatch
def erf_of(x: Any, xp: Any) -> Any:
    """The error function of an array of float32 or float64."""
    if x.dtype == np.float32:
        return xp.tanh(x * polynomial(ERF_FLOAT32, x * x))
    x = xp.clip(x, -6, 6)
    p, q = (polynomial(coefficients, x * x) for coefficients in ERF_FLOAT64)
    return xp.clip(x * (p / q), -1, 1)


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

    from tinytorch.autograd.gradcheck import gradcheck, gradgradcheck
    from tinytorch.core.dtype import float32, float64
    from tinytorch.core.tensor import tensor

    # A polynomial through erf runs away as soon as it leaves the range that it was fitted to.
    x = np.linspace(-2, 2, 401)
    fitted = np.polynomial.Polynomial.fit(x, [math.erf(number) for number in x], 9)
    print("a polynomial at 2, 3, 4:", fitted(np.array([2.0, 3.0, 4.0])).round(2).tolist())
    # -> a polynomial at 2, 3, 4: [1.0, 4.64, 113.43]
    print("tanh(x p) there:", erf(tensor([2.0, 3.0, 4.0, 1e20])).tolist())
    # -> tanh(x p) there: [0.9953, 1.0, 1.0, 1.0]

    # Against Python's own, which knows one number at a time.
    for dtype, bound in ((float32, 2e-7), (float64, 1e-15)):
        x = np.linspace(-6.0, 6.0, 2001).astype(dtype.numpy)
        exact = np.array([math.erf(number) for number in x])
        error = np.max(np.abs(erf(tensor(x)).numpy() - exact))
        print(f"erf in {dtype!r}: error below {bound}: {error < bound}")
        # -> erf in tinytorch.float32: error below 2e-07: True
        # -> erf in tinytorch.float64: error below 1e-15: True
    one_by_one = min(timeit.repeat(lambda: [math.erf(number) for number in x], number=5, repeat=3))
    seconds = min(timeit.repeat(lambda: erf_of(x, np), number=5, repeat=3))
    print(f"math.erf in a loop takes {one_by_one / seconds:.0f} times as long")  # -> ...

    x = tensor([0.2, 0.5, 0.8], dtype=float64, requires_grad=True)
    print("derivatives:", gradcheck(erf, x), gradgradcheck(erf, x))  # -> derivatives: True True
    print(erf_of(x, None).tolist())  # -> [0.2227, 0.5205, 0.7421]
