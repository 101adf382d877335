"""Step 24: Well-known test functions, and a series

Every piece has been tested, but only in formulas of two or three terms. Methods that search for
the lowest value of a function are tried on well-known test functions: too long to differentiate by
hand, with known values at known points. Now they can be typed as they stand in the books:

    Sphere           x^2 + y^2                                       lowest 0 at (0, 0)
    Matyas           0.26 (x^2 + y^2) - 0.48 x y                     lowest 0 at (0, 0)
    Goldstein-Price  a polynomial of degree 8, see the demo          lowest 3 at (0, -1)

Their gradients at (1, 1) are known: (2, 2), (0.04, 0.04) and (-5376, 8064). At the lowest point
both partial derivatives of each must be 0.

The fourth function is a loop, the series of the sine:

    sin x = x - x^3 / 3! + x^5 / 5! - ...      until a term is smaller than a threshold

Python decides how often the loop runs, and the graph records what has run: the smaller the
threshold, the larger the graph. Nothing has to be prepared for this, because the graph is made
while the program runs (define-by-run, step 07).

The trap: backward differentiates what was computed, not what was meant. The series, cut off, is a
polynomial, and x.grad is the derivative of that polynomial. If the series is cut off early, the
derivative is inexact as well. (For comparison there is a function Sin, which calls NumPy's sine.)

New: Sin, sin.
Try: x = Variable(40.0) for both sines. The terms of the series grow to 10^16 before they shrink, a
float has 16 digits, and so the sum has no right digit left.
"""

import contextlib
import heapq
import itertools
import json
import pathlib
import shutil
import subprocess
import weakref

import numpy as np


def as_array(x):
    """x as an ndarray. Accepts an ndarray or a number, and raises TypeError for anything else."""
    if isinstance(x, np.ndarray):
        return x
    if isinstance(x, (int, float, np.number)):
        return np.array(x)
    raise TypeError(f"a Variable holds an ndarray or a number, not {type(x).__name__}")


class GradMode:
    """Whether calls are recorded. A class attribute, so that everything shares one switch."""

    enabled = True


@contextlib.contextmanager
def no_grad():
    """Inside this block no call is recorded: outputs have no creator."""
    before = GradMode.enabled
    GradMode.enabled = False
    try:
        yield
    finally:
        GradMode.enabled = before


class Variable:
    """A box around a NumPy array, with the function that made it and a place for a gradient."""

    # Make NumPy's operators defer to ours, so that `array + variable` calls __radd__.
    __array_ufunc__ = None

    def __init__(self, data, name=None):
        self.data = as_array(data)
        self.name = name
        self.grad = None
        self.creator = None

    @property
    def shape(self):
        return self.data.shape

    @property
    def ndim(self):
        return self.data.ndim

    @property
    def size(self):
        return self.data.size

    @property
    def dtype(self):
        return self.data.dtype

    def __len__(self):
        return len(self.data)

    def __repr__(self):
        indent = " " * len("variable(")  # aligns the rows of a matrix
        return "variable(" + str(self.data).replace("\n", "\n" + indent) + ")"

    def cleargrad(self):
        """Discard the gradient, so that the next backward does not add to it."""
        self.grad = None

    def backward(self, retain_grad=False):
        """Add d(self)/dx to x.grad, for every variable x that this one was computed from.

        Variables that a function made lose their gradient again, unless retain_grad is true.
        """
        if self.grad is None:
            self.grad = np.ones_like(self.data)
        if self.creator is None:
            return
        waiting = [(-self.creator.sequence_nr, self.creator)]  # a heap: the latest call comes first
        seen = {self.creator}
        while waiting:
            _, f = heapq.heappop(waiting)
            outputs = [output() for output in f.outputs]  # None where an output has been freed
            gys = [
                np.zeros(*spec) if y is None or y.grad is None else y.grad
                for y, spec in zip(outputs, f.output_specs, strict=True)
            ]
            gxs = f.backward(*gys)
            if not isinstance(gxs, tuple):
                gxs = (gxs,)
            for x, gx in zip(f.inputs, gxs, strict=True):
                x.grad = gx if x.grad is None else x.grad + gx  # not +=: gx may have other owners
                if x.creator is not None and x.creator not in seen:
                    seen.add(x.creator)
                    heapq.heappush(waiting, (-x.creator.sequence_nr, x.creator))
            if not retain_grad:
                for y in outputs:
                    if y is not None:
                        y.grad = None


def as_variable(x, dtypes):
    """x itself if it is a Variable, else a new Variable around it: a constant of the formula.

    A Python number has no dtype. It gets the one that NumPy gives it beside arrays of `dtypes`.
    """
    if isinstance(x, (int, float)):
        x = np.array(x, np.result_type(x, *dtypes))
    return x if isinstance(x, Variable) else Variable(x)


class Function:
    """A step of a computation: arrays in, arrays out. An object is one node: make one per call."""

    sequence_numbers = itertools.count()  # shared by all functions: each call takes the next one

    def __call__(self, *inputs):
        dtypes = [x.dtype for x in inputs if hasattr(x, "dtype")]  # Python numbers have none
        inputs = [as_variable(x, dtypes) for x in inputs]
        ys = self.forward(*[x.data for x in inputs])
        if not isinstance(ys, tuple):
            ys = (ys,)
        outputs = [Variable(y) for y in ys]
        if GradMode.enabled:
            self.sequence_nr = next(Function.sequence_numbers)
            self.inputs = inputs
            self.outputs = [weakref.ref(output) for output in outputs]  # strong would be a cycle
            self.output_specs = [(output.data.shape, output.data.dtype) for output in outputs]
            for output in outputs:
                output.creator = self
        return outputs[0] if len(outputs) == 1 else outputs

    def forward(self, *xs):
        """Compute one output array, or a tuple of them, from the input arrays."""
        raise NotImplementedError

    def backward(self, *gys):
        """Compute a gradient for each input from one for each output: one array, or a tuple."""
        raise NotImplementedError


class Square(Function):
    """y = x^2, dy/dx = 2 x"""

    def forward(self, x):
        return x**2

    def backward(self, gy):
        return 2 * self.inputs[0].data * gy


class Exp(Function):
    """y = e^x, dy/dx = e^x"""

    def forward(self, x):
        return np.exp(x)

    def backward(self, gy):
        return np.exp(self.inputs[0].data) * gy


class Add(Function):
    """y = x0 + x1, dy/dx0 = 1, dy/dx1 = 1"""

    def forward(self, x0, x1):
        return x0 + x1

    def backward(self, gy):
        return gy, gy


class Mul(Function):
    """y = x0 x1, dy/dx0 = x1, dy/dx1 = x0"""

    def forward(self, x0, x1):
        return x0 * x1

    def backward(self, gy):
        x0, x1 = self.inputs
        return gy * x1.data, gy * x0.data


class Neg(Function):
    """y = -x, dy/dx = -1"""

    def forward(self, x):
        return -x

    def backward(self, gy):
        return -gy


class Sub(Function):
    """y = x0 - x1, dy/dx0 = 1, dy/dx1 = -1"""

    def forward(self, x0, x1):
        return x0 - x1

    def backward(self, gy):
        return gy, -gy


class Div(Function):
    """y = x0 / x1, dy/dx0 = 1 / x1, dy/dx1 = -x0 / x1^2"""

    def forward(self, x0, x1):
        return x0 / x1

    def backward(self, gy):
        x0, x1 = self.inputs
        return gy / x1.data, -gy * x0.data / x1.data**2


class Pow(Function):
    """y = x^n with a number n, dy/dx = n x^(n-1)"""

    def __init__(self, n):
        self.n = n

    def forward(self, x):
        return x**self.n

    def backward(self, gy):
        if self.n == 0:
            return 0 * gy  # x^0 is 1 everywhere; at x = 0 the formula would divide by zero
        return self.n * self.inputs[0].data ** (self.n - 1) * gy


class Sin(Function):
    """y = sin x, dy/dx = cos x"""

    def forward(self, x):
        return np.sin(x)

    def backward(self, gy):
        return np.cos(self.inputs[0].data) * gy


def square(x):
    return Square()(x)


def exp(x):
    return Exp()(x)


def add(x0, x1):
    return Add()(x0, x1)


Variable.__add__ = add
Variable.__radd__ = add


def mul(x0, x1):
    return Mul()(x0, x1)


Variable.__mul__ = mul
Variable.__rmul__ = mul


def neg(x):
    return Neg()(x)


Variable.__neg__ = neg


def sub(x0, x1):
    return Sub()(x0, x1)


Variable.__sub__ = sub
Variable.__rsub__ = lambda self, other: sub(other, self)


def div(x0, x1):
    return Div()(x0, x1)


Variable.__truediv__ = div
Variable.__rtruediv__ = lambda self, other: div(other, self)


def pow(x, n):
    return Pow(n)(x)


Variable.__pow__ = pow


def sin(x):
    return Sin()(x)


def numerical_diff(f, x, eps=1e-4):
    """The derivative of f at x by central difference: (f(x + eps) - f(x - eps)) / (2 eps)."""
    y0 = f(Variable(x.data - eps))
    y1 = f(Variable(x.data + eps))
    return (y1.data - y0.data) / (2 * eps)


def graph_functions(y):
    """The functions in the graph of y, each of them once, in the order of their calls."""
    found = set()
    waiting = [y.creator]
    while waiting:
        f = waiting.pop()
        if f is not None and f not in found:
            found.add(f)
            waiting.extend(x.creator for x in f.inputs)
    return sorted(found, key=lambda f: f.sequence_nr)


def graph_variables(y):
    """The variables of the graph of y, each once: first those given, then those computed."""
    functions = graph_functions(y)
    given = [x for f in functions for x in f.inputs if x.creator is None]
    computed = [output() for f in functions for output in f.outputs if output() is not None]
    return list(dict.fromkeys([*given, *computed, y]))  # a dict drops repeats and keeps the order


def short(array):
    """A single number to six digits, 2 as 2.0; of a larger array only the shape."""
    return str(float(f"{array:.6g}")) if array.ndim == 0 else f"array {array.shape}"


def graph_text(y):
    """The graph of y as text: a line for each variable, in the order of the computation."""
    names = {v: v.name or f"v{i}" for i, v in enumerate(graph_variables(y))}
    lines = []
    for v, name in names.items():
        line = f"{name} = "
        if v.creator is not None:
            arguments = ", ".join(names[x] for x in v.creator.inputs)
            line += f"{type(v.creator).__name__}({arguments}) = "
        line += short(v.data)
        if v.grad is not None:
            line += f"   gradient {short(v.grad)}"
        lines.append(line)
    return "\n".join(lines)


def to_dot(y):
    """The graph of y in Graphviz's language: ellipses are variables, boxes are functions."""
    ids = {v: f"v{i}" for i, v in enumerate(graph_variables(y))}
    lines = ["digraph {"]
    for v, node in ids.items():
        label = short(v.data) if v.name is None else f"{v.name}\n{short(v.data)}"
        label = json.dumps(label, ensure_ascii=False)  # DOT and JSON quote strings alike
        lines.append(f"  {node} [label={label}]")
    for i, f in enumerate(graph_functions(y)):
        lines.append(f'  f{i} [label="{type(f).__name__}", shape=box]')
        lines.extend(f"  {ids[x]} -> f{i}" for x in f.inputs)
        lines.extend(f"  f{i} -> {ids[output()]}" for output in f.outputs if output() in ids)
    return "\n".join([*lines, "}"])


def draw(y, path):
    """Draw the graph of y into a file. The extension sets the format: .png, .svg, .pdf."""
    if shutil.which("dot") is None:
        raise RuntimeError("to draw, install Graphviz (the program dot): graphviz.org/download")
    kind = pathlib.Path(path).suffix.removeprefix(".")
    subprocess.run(["dot", f"-T{kind}", "-o", path], input=to_dot(y), text=True, check=True)


if __name__ == "__main__":

    def sphere(x, y):
        return x**2 + y**2

    def matyas(x, y):
        return 0.26 * (x**2 + y**2) - 0.48 * x * y

    def goldstein_price(x, y):
        near = 19 - 14 * x + 3 * x**2 - 14 * y + 6 * x * y + 3 * y**2
        far = 18 - 32 * x + 12 * x**2 + 48 * y - 36 * x * y + 27 * y**2
        return (1 + (x + y + 1) ** 2 * near) * (30 + (2 * x - 3 * y) ** 2 * far)

    def report(f, x, y):
        """The value of f at (x, y) and its gradient, as text."""
        x, y = Variable(x), Variable(y)
        z = f(x, y)
        z.backward()
        return f"{z.data:.2f}, gradient {x.grad:.2f} and {y.grad:.2f}"

    print("value and gradient at (1, 1), and at the lowest point:")
    for f, lowest in ((sphere, (0, 0)), (matyas, (0, 0)), (goldstein_price, (0, -1))):
        print(report(f, 1.0, 1.0), "/", report(f, *lowest))
        # -> 2.00, gradient 2.00 and 2.00 / 0.00, gradient 0.00 and 0.00
        # -> 0.04, gradient 0.04 and 0.04 / 0.00, gradient 0.00 and 0.00
        # -> 1876.00, gradient -5376.00 and 8064.00 / 3.00, gradient 0.00 and 0.00

    def taylor_sin(x, threshold):
        """The sine of x by its series, up to the first term below the threshold."""
        term = total = x
        for n in itertools.count(2, 2):
            term = term * (-1 / (n * (n + 1))) * x**2
            total = total + term
            if abs(term.data) < threshold:
                return total

    x = Variable(np.pi / 4)
    y = sin(x)
    y.backward()
    print("NumPy's sine:", y.data, x.grad)  # -> NumPy's sine: 0.70710678119 0.70710678119

    print("threshold, sum, derivative, functions in the graph")
    for threshold in (1e-1, 1e-4, 1e-16):
        x.cleargrad()
        y = taylor_sin(x, threshold)
        y.backward()
        print(f"{threshold:.0e} {y.data:.8f} {x.grad:.8f} {len(graph_functions(y))}")
        # -> 1e-01 0.70465265 0.69157486 4
        # -> 1e-04 0.70710647 0.70710321 12
        # -> 1e-16 0.70710678 0.70710678 32
