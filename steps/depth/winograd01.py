"""Step winograd01: Winograd's convolution: fewer products in one dimension

NumPy's products alone take as long as PyTorch's whole convolution (64 pictures of 32 x 26 x 26, to
64 channels), so faster copies cannot help any more. Only fewer multiplications can. Two outputs of
a kernel of 3 elements take 6. S. Winograd (1980) needs 4:

    y0 = d0 w0 + d1 w1 + d2 w2        m0 = (d2 - d0) (-w0)
    y1 = d1 w0 + d2 w1 + d3 w2        m1 = (d1 + d2) (w0 + w1 + w2) / 2
                                      m2 = (d2 - d1) (w0 - w1 + w2) / 2
    y0 = m0 + m1 + m2                 m3 = (d3 - d1) w2
    y1 = m1 - m2 + m3

The rest is additions, and the factors made of w are computed once for all places. As matrices,
with * element by element and ' for transposed:

    y = A' ((B d) * (G w))        A [4, 2], B [4, 4], G [4, 3]

To find such matrices, multiply two polynomials, g0 + g1 t and w0 + w1 t + w2 t^2. The product has 4
coefficients, so its values at 3 points and its highest coefficient determine it. Each of these four
takes one multiplication: a value of the product is the product of two values. A gives the values of
g at the points 0, 1, -1 and its highest coefficient, G those of w, and B' turns products of values
into coefficients (interpolation, whose divisors are put into G):

    coefficients of the product = B' ((A g) * (G w))

If g is the gradient of y, these are the gradient of d (np.convolve in the demo). For a fixed w this
is a linear map from g to the gradient of d; the convolution, from d to y, is its transpose: B' and
A become A' and B. With n - 1 points, n products give n - 2 outputs: 6 give 4, instead of 12.

The trap: more points save more, but their powers differ more in size, and rounding errors grow. In
float32 the three products of an output, added up, have an error of 7e-8; with 3 points it is 1e-7,
with 5 points 3e-7, and with 7 points 3e-6.

The classes of the run conv so far are laid aside until step winograd07.
New: matrices.
Try: the points 0, 1, 2, 3, 4. How large is the error of float32 then?
"""

import numpy as np


def matrices(points: tuple[float, ...]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A [n, n - 2], B [n, n] and G [n, 3], for n - 1 points: A' ((B d) * (G w)) are the n - 2
    outputs of a kernel w of 3 elements on d, which has n."""
    p = np.array(points, np.float64)
    others = [np.delete(p, i) for i in range(len(p))]
    scale = np.array([np.prod(at - rest) for at, rest in zip(p, others, strict=True)])[:, None]
    a = np.vstack([p[:, None] ** np.arange(len(p) - 1), np.eye(len(p) - 1)[-1]])
    g = np.vstack([p[:, None] ** np.arange(3) / scale, np.eye(3)[-1]])
    # Row i: the coefficients of the polynomial that is zero at all other points.
    b = [np.append(np.poly(rest)[::-1], 0) for rest in others]
    return a, np.vstack([*b, np.poly(p)[::-1]]), g


if __name__ == "__main__":
    d, w = np.array([1.0, 2.0, 3.0, 5.0]), np.array([2.0, 1.0, 4.0])
    direct = np.correlate(d, w)
    print("6 products:", direct)  # -> 6 products: [16. 27.]
    m = [
        (d[2] - d[0]) * -w[0],
        (d[1] + d[2]) * (w[0] + w[1] + w[2]) / 2,
        (d[2] - d[1]) * (w[0] - w[1] + w[2]) / 2,
        (d[3] - d[1]) * w[2],
    ]
    print("4 products:", m[0] + m[1] + m[2], m[1] - m[2] + m[3])  # -> 4 products: 16.0 27.0

    a, b, g = matrices((0, 1, -1))
    print("A' =", a.T.tolist())  # -> A' = [[1.0, 1.0, 1.0, 0.0], [0.0, 1.0, -1.0, 1.0]]
    print("B d =", b @ d)  # -> B d = [2. 5. 1. 3.]
    print("G w =", g @ w)  # -> G w = [-2.   3.5  2.5  4. ]
    print("the same:", a.T @ ((b @ d) * (g @ w)))  # -> the same: [16. 27.]

    # The matrices: a row of A holds the powers of a point, and of G too, divided.
    print("B =", b.astype(int).tolist())
    # -> B = [[-1, 0, 1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, -1, 0, 1]]
    print("G =", g.tolist())
    # -> G = [[-1.0, 0.0, 0.0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0.0, 0.0, 1.0]]

    # The gradient of d is a product of polynomials. Values are multiplied, then interpolated.
    gy = np.array([1.0, 10.0])
    print(np.convolve(gy, w), b.T @ ((a @ gy) * (g @ w)))
    # -> [ 2. 21. 14. 40.] [ 2. 21. 14. 40.]

    # More points: fewer products for each output, and more rounding.
    rng = np.random.default_rng(0)
    for points in ((0, 1, -1), (0, 1, -1, 2, -2), (0, 1, -1, 2, -2, 3, -3)):
        a, b, g = matrices(points)
        n = len(b)
        d, w = rng.standard_normal((n, 1000)), rng.standard_normal((3, 1000))
        a, b, g, d, w = (v.astype(np.float32) for v in (a, b, g, d, w))
        exact = sum(w[k].astype(float) * d[k : k + n - 2] for k in range(3))
        error = np.sqrt(np.mean((a.T @ ((b @ d) * (g @ w)) - exact) ** 2))
        direct = np.sqrt(np.mean((sum(w[k] * d[k : k + n - 2] for k in range(3)) - exact) ** 2))
        print(f"{n / (n - 2):.1f} products an output, error {error:.0e}; direct: 3, {direct:.0e}")
    # -> 2.0 products an output, error 1e-07; direct: 3, ...e-08
    # -> 1.5 products an output, error ...e-07; direct: 3, ...e-08
    # -> 1.3 products an output, error ...e-06; direct: 3, ...e-08
