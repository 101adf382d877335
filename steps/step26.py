"""Step 26: Newton's method, with f'' by hand

Gradient descent needs a rate, and a good one is hard to find. It depends on how fast the slope
itself changes, and that is the second derivative.

Newton's method uses it. Near x, a function looks like a parabola. With d for a small step:

    f(x + d) = f(x) + f'(x) d + 1/2 f''(x) d^2      (nearly)

The lowest point of this parabola is where its slope f'(x) + f''(x) d is 0. Go there at once:

    x <- x - f'(x) / f''(x)

So it is gradient descent with the rate 1 / f''(x), which the function sets anew in each step.

    f(x) = x^4 - 8 x^2,   f'(x) = 4 x^3 - 16 x,   f''(x) = 12 x^2 - 16,   lowest at x = 2

backward computes f'. It cannot compute f'': our gradients are plain numbers and arrays. They have
no graph, so backward cannot start from them. In this step f'' is worked out by hand; the next one
removes the need.

From x = 4 Newton arrives after 6 steps. Gradient descent takes 54 steps with a good rate and 699
with a small one. Close to the goal each Newton step roughly squares the error: the number of right
digits doubles. Gradient descent only multiplies the error by the same factor in each step.

The trap: Newton looks for slope 0, not for a minimum. From x = 0.5, where f'' is negative, the
parabola opens downward, and Newton climbs to the maximum at x = 0.

(PyTorch's optimizers do not use f''. torch.optim.LBFGS estimates it from gradients.)

Changed: nothing above the demo. New: Newton's method.
Try: start Newton at x = 1.1547, where f'' is nearly 0. The first step goes to about -830,000.
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

    def f(x):
        return x**4 - 8 * x**2

    def second(x):
        """The second derivative of f, by hand."""
        return 12 * x**2 - 16

    def slope(x):
        """The first derivative of f, by backward."""
        x.cleargrad()
        f(x).backward()
        return x.grad

    x = Variable(4.0)
    for step in range(1, 7):
        x.data = x.data - slope(x) / second(x.data)
        print(f"Newton, step {step}: x {x.data:.10f}, error {abs(x.data - 2):.1e}")
        # -> Newton, step 1: x 2.9090909091, error 9.1e-01
        # -> Newton, step 2: x 2.3020935788, error 3.0e-01
        # -> Newton, step 3: x 2.0506518580, error 5.1e-02
        # -> Newton, step 4: x 2.0018169039, error 1.8e-03
        # -> Newton, step 5: x 2.0000024706, error 2.5e-06
        # -> Newton, step 6: x 2.0000000000, error 4.6e-12

    for rate in (0.01, 0.001):
        x, steps = Variable(4.0), 0
        while abs(x.data - 2) > 1e-10:
            x.data = x.data - rate * slope(x)
            steps += 1
        print(f"gradient descent with rate {rate}: {steps} steps")
        # -> gradient descent with rate 0.01: 54 steps
        # -> gradient descent with rate 0.001: 699 steps

    x = Variable(0.5)
    print("second derivative at 0.5:", second(x.data))  # -> second derivative at 0.5: -13.0
    for _ in range(4):
        x.data = x.data - slope(x) / second(x.data)
    print(f"Newton from 0.5 stops at {abs(x.data):.6f}")  # -> Newton from 0.5 stops at 0.000000
    print("the gradient:", type(slope(x)).__name__)  # -> the gradient: float64
