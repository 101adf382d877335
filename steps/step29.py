"""Step 29: Higher-order derivatives

Newton needs two derivatives. What about the third, or the sixth? Nothing has to be added: each pass
with create_graph leaves a gradient that has a graph, so the next pass can start there. A loop:

    y = f(x);  then repeatedly:  clear x,  y.backward(create_graph=True),  y = x.grad

Three functions test it, each with derivatives that are known in another way.

    sine     d^n/dx^n sin x = sin(x + n pi/2): after four derivatives it starts over
    log      d^n/dx^n log x = (-1)^(n-1) (n-1)! / x^n
    tanh     with t = tanh x each derivative is a polynomial in t:
             1 - t^2,  -2 t + 2 t^3, ...,  6th: -272 t + 1232 t^3 - 1680 t^5 + 720 t^7

tanh, the hyperbolic tangent, is an S-shaped curve from -1 to 1 that networks use (step 38c). It has
a new kind of backward: its derivative is simplest in terms of its output, 1 - y^2. The function
refers to its output only weakly (step 17a). That is enough: during backward the end of the
graph is alive, and with it every variable on the way. It must be the Variable, not its array,
because the next pass needs the creator of y.

The trap is the growth. The graph of the sine gains one or two nodes each time. The derivative of
tanh is a product, whose derivative is two products: the graph more than doubles each time. The
graph of log does so too, although its derivatives are simple, because we do not simplify formulas.

(In PyTorch the same loop works, with torch.autograd.grad(y, x, create_graph=True).)

New: Tanh, Log, tanh, log.
Try: `y = self.outputs[0]().data` in Tanh.backward. The first derivative is right. From it no path
leads to x: x.grad is None, and the demo fails.
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
def set_grad_enabled(flag):
    """Inside this block calls are recorded if flag is true, and not recorded if it is false."""
    before = GradMode.enabled
    GradMode.enabled = flag
    try:
        yield
    finally:
        GradMode.enabled = before


def no_grad():
    """Inside this block no call is recorded: outputs have no creator."""
    return set_grad_enabled(False)


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

    def backward(self, retain_grad=False, create_graph=False):
        """Add d(self)/dx to x.grad, for every variable x that this one was computed from.

        Variables that a function made lose their gradient again, unless retain_grad is true.
        With create_graph the gradients are recorded like any computation, so they have a graph.
        """
        if self.grad is None:
            self.grad = Variable(np.ones_like(self.data))
        if self.creator is None:
            return
        waiting = [(-self.creator.sequence_nr, self.creator)]  # a heap: the latest call comes first
        seen = {self.creator}
        while waiting:
            _, f = heapq.heappop(waiting)
            outputs = [output() for output in f.outputs]  # None where an output has been freed
            gys = [
                Variable(np.zeros(*spec)) if y is None or y.grad is None else y.grad
                for y, spec in zip(outputs, f.output_specs, strict=True)
            ]
            with set_grad_enabled(create_graph):
                gxs = f.backward(*gys)
                if not isinstance(gxs, tuple):
                    gxs = (gxs,)
                for x, gx in zip(f.inputs, gxs, strict=True):
                    # Not +=: gx may have other owners.
                    x.grad = gx if x.grad is None else x.grad + gx
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
        """Compute a gradient for each input from one for each output: one Variable, or a tuple."""
        raise NotImplementedError


class Square(Function):
    """y = x^2, dy/dx = 2 x"""

    def forward(self, x):
        return x**2

    def backward(self, gy):
        return 2 * self.inputs[0] * gy


class Exp(Function):
    """y = e^x, dy/dx = e^x"""

    def forward(self, x):
        return np.exp(x)

    def backward(self, gy):
        return exp(self.inputs[0]) * gy


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
        return gy * x1, gy * x0


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
        return gy / x1, -gy * x0 / x1**2


class Pow(Function):
    """y = x^n with a number n, dy/dx = n x^(n-1)"""

    def __init__(self, n):
        self.n = n

    def forward(self, x):
        return x**self.n

    def backward(self, gy):
        if self.n == 0:
            return 0 * gy  # x^0 is 1 everywhere; at x = 0 the formula would divide by zero
        return self.n * self.inputs[0] ** (self.n - 1) * gy


class Sin(Function):
    """y = sin x, dy/dx = cos x"""

    def forward(self, x):
        return np.sin(x)

    def backward(self, gy):
        return cos(self.inputs[0]) * gy


class Cos(Function):
    """y = cos x, dy/dx = -sin x"""

    def forward(self, x):
        return np.cos(x)

    def backward(self, gy):
        return -sin(self.inputs[0]) * gy


class Tanh(Function):
    """y = tanh x, dy/dx = 1 - y^2"""

    def forward(self, x):
        return np.tanh(x)

    def backward(self, gy):
        y = self.outputs[0]()
        return (1 - y * y) * gy


class Log(Function):
    """y = log x (base e), dy/dx = 1 / x"""

    def forward(self, x):
        return np.log(x)

    def backward(self, gy):
        return gy / self.inputs[0]


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


def cos(x):
    return Cos()(x)


def tanh(x):
    return Tanh()(x)


def log(x):
    return Log()(x)


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
            line += f"   gradient {short(v.grad.data)}"
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
    import math

    def derivatives(f, at, n):
        """The first n derivatives of f: each value, and how many functions its graph has."""
        x = Variable(at)
        y = f(x)
        for _ in range(n):
            x.cleargrad()
            y.backward(create_graph=True)
            y = x.grad
            yield y.data, len(graph_functions(y))
        x.cleargrad()  # cuts the cycle

    values, sizes = zip(*derivatives(sin, 1.0, 5), strict=True)
    print("sine at 1:", np.array(values).round(6), "functions:", sizes)
    # -> sine at 1: [ 0.540302 -0.841471 -0.540302  0.841471  0.540302] functions: (2, 4, 5, 7, 8)
    print("    known:", np.sin(1 + np.arange(1, 6) * np.pi / 2).round(6))
    # ->     known: [ 0.540302 -0.841471 -0.540302  0.841471  0.540302]

    values, sizes = zip(*derivatives(log, 2.0, 4), strict=True)
    print("log at 2:", [float(value) for value in values], "functions:", sizes)
    # -> log at 2: [0.5, -0.25, 0.25, -0.375] functions: (1, 4, 10, 26)
    print("   known:", [(-1) ** (n - 1) * math.factorial(n - 1) / 2**n for n in range(1, 5)])
    # ->    known: [0.5, -0.25, 0.25, -0.375]

    print("tanh at 0.5")
    known = np.polynomial.Polynomial([0, 1])  # tanh itself: the polynomial t
    for n, (value, size) in enumerate(derivatives(tanh, 0.5, 6), start=1):
        known = known.deriv() * np.polynomial.Polynomial([1, 0, -1])  # dp/dx = dp/dt (1 - t^2)
        print(n, f"{value:.8f} {known(np.tanh(0.5)):.8f} {size}")
        # -> 1 0.78644773 0.78644773 4
        # -> 2 -0.72686198 -0.72686198 9
        # -> 3 -0.56520929 -0.56520929 21
        # -> 4 3.95221956 3.95221956 51
        # -> 5 -3.26668647 -3.26668647 129
        # -> 6 -36.27954029 -36.27954029 339
    print("the 6th, by powers of t:", known.coef.astype(int).tolist())
    # -> the 6th, by powers of t: [0, -272, 0, 1232, 0, -1680, 0, 720]
