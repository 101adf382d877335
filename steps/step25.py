"""Step 25: Gradient descent

What are gradients for? Above all for this: to find the inputs for which a function is lowest.

The demo begins with a line through measured points (x, t). Its formula w x + b is called a model,
and w and b are its parameters (a network's are its weights). The loss says how wrong it is: the
mean of (w x + b - t)^2. The gradient points where the loss rises fastest, so take a small step the
other way, and repeat:

    loss = sum((w * x + b - t) ** 2 for x, t in points) / len(points)
    loss.backward()
    w.data, b.data = w.data - rate * w.grad, b.data - rate * b.grad

That is gradient descent, and repeating it is called training. These three lines train every neural
network; only the model is a longer formula, with millions of parameters. `rate`, the learning rate,
is the size of the step, and it is hard to choose. Rosenbrock's function shows why:

    f(x, y) = 100 (y - x^2)^2 + (1 - x)^2       lowest 0 at (1, 1)

It is a narrow valley, bent along y = x^2. Ten steps lead down to its floor; thousands lead along
it. The curvature of f (its second derivative) near (1, 1) is about 1,000 across the valley, and 0.4
along it. One rate has to serve both: if it is small enough for the walls, it is much too small for
the floor. Above 2 / curvature, here 0.002, each step lands higher on the opposite wall: with 0.003
it never arrives.

Two traps in the loop:

- Clear the gradients in each round; otherwise they add up.
- Change w.data, not w. `w = w - rate * w.grad` records the step as part of the formula. The new w
  was made by a function, so it keeps no gradient, and the second round finds None.

(In PyTorch: torch.optim.SGD, with zero_grad against the first trap and no_grad against the second.)

Changed: nothing above the demo. New: gradient descent.
Try: in fit, leave out the two lines with cleargrad. w and b then swing back and forth around the
line, and never settle.
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
    # Six measured points near the line t = 3 x + 2.
    points = [(0.0, 2.1), (0.2, 2.5), (0.4, 3.3), (0.6, 3.7), (0.8, 4.5), (1.0, 4.9)]

    def fit(rate, rounds):
        """Train w and b from 0, and return them with the loss of the last round."""
        w, b = Variable(0.0), Variable(0.0)
        for i in range(rounds):
            w.cleargrad()
            b.cleargrad()
            loss = sum((w * x + b - t) ** 2 for x, t in points) / len(points)
            loss.backward()
            w.data, b.data = w.data - rate * w.grad, b.data - rate * b.grad
            if i in (0, 10, 100):
                print(f"{i:3} rounds: loss {loss.data:.5f}, w {w.data:.4f}, b {b.data:.4f}")
        return w.data, b.data

    w, b = fit(rate=0.5, rounds=300)
    # ->   0 rounds: loss 13.25000, w 2.0900, b 3.5000
    # ->  10 rounds: loss 0.04216, w 2.4361, b 2.3060
    # -> 100 rounds: loss 0.00914, w 2.9142, b 2.0429
    print(f"line: {w:.6f} x + {b:.6f}")  # -> line: 2.914286 x + 2.042857
    xs, ts = np.array(points).T  # the first column, and the second
    print("NumPy's polyfit:", np.polyfit(xs, ts, deg=1).round(6))
    # -> NumPy's polyfit: [2.914286 2.042857]

    def rosenbrock(x, y):
        return 100 * (y - x**2) ** 2 + (1 - x) ** 2

    def descend(rate, rounds, report=()):
        """Gradient descent from (-1.2, 1): the value that it has reached."""
        x, y = Variable(-1.2), Variable(1.0)
        for i in range(rounds):
            z = rosenbrock(x, y)
            if i in report:
                print(f"{i:5} rounds: x {x.data:6.3f}, y {y.data:6.3f}, f {z.data:.5f}")
            x.cleargrad()
            y.cleargrad()
            z.backward()
            x.data = x.data - rate * x.grad
            y.data = y.data - rate * y.grad
        return rosenbrock(x, y).data

    descend(0.001, 10_001, report=(0, 10, 10_000))
    # ->     0 rounds: x -1.200, y  1.000, f 24.20000
    # ->    10 rounds: x -1.021, y  1.051, f 4.09247
    # -> 10000 rounds: x  0.992, y  0.985, f 0.00006
    print("0.003 stays above 0.01:", descend(0.003, 10_000) > 0.01)
    # -> 0.003 stays above 0.01: True

    x = Variable(3.0)
    square(x).backward()
    x = x - 0.1 * x.grad
    square(x).backward()
    print("the second trap:", type(x.creator).__name__, x.grad)  # -> the second trap: Sub None
