"""Checks the derivatives of a step's framework against differences of its own forward pass.

    python steps/companion/gradients.py steps/stepNN.py [EXPRESSION ...]

It stands alone, in a process of its own, as recorder.py does. It loads the framework without its
demo. While a step holds its own Variable or Tensor, every operation of TABLE, OPERATORS and LATER
that it has is checked, by hand or by `backward`, in float64 and with random cotangents; where
`backward` has create_graph, second derivatives are checked too. So is each EXPRESSION in x and y,
from `gradcheck = [...]` in curriculum.toml. Once Tensor and backward are the package's, expressions
are given to its own gradcheck and gradgradcheck. The output is one JSON object: `checked`, the
names; `wrong`, {name: why}; and `once`, the names of those whose second derivative is not there
yet, because their formula uses a function that Tensor lacks.
"""

import ast
import inspect
import json
import os
import re
import sys
import warnings

import numpy as np

EPS = 1e-6
TOLERANCE = 1e-6
SHAPE = (3, 4)
NOT_YET = "the framework says that it cannot do this yet"
ONCE = "right, and cannot be differentiated twice yet"

# Name, its class in the first steps, number of inputs. Inputs are positive: log and / need it.
TABLE = [
    ("square", "Square", 1),
    ("exp", "Exp", 1),
    ("sin", "Sin", 1),
    ("cos", "Cos", 1),
    ("tanh", "Tanh", 1),
    ("log", "Log", 1),
    ("neg", "Neg", 1),
    ("add", "Add", 2),
    ("sub", "Sub", 2),
    ("mul", "Mul", 2),
    ("div", "Div", 2),
]

# What a Variable must define, the expression, number of inputs.
OPERATORS = [
    ("__neg__", "-x", 1),
    ("__pow__", "x ** 3", 1),
    ("__add__", "x + y", 2),
    ("__sub__", "x - y", 2),
    ("__mul__", "x * y", 2),
    ("__truediv__", "x / y", 2),
    ("__rsub__", "2.0 - x", 1),
    ("__rtruediv__", "2.0 / x", 1),
]

# What comes from stage 6 on: a method of Tensor or a name of the framework, a parameter that it
# must take (or None), the expression, number of inputs, their shape.
LATER = [
    ("sum", None, "x.sum()", 1, SHAPE),
    ("sum", "dim", "x.sum(1)", 1, SHAPE),
    ("sum", "keepdim", "x.sum(0, True)", 1, SHAPE),
    ("mean", None, "x.mean()", 1, SHAPE),
    ("mean", "dim", "x.mean(1)", 1, SHAPE),
    ("SumTo", None, "x * y.sum()", 2, SHAPE),
    ("matmul", None, "x @ y", 2, (3, 3)),
    ("reshape", None, "x.reshape(2, 6) ** 2", 1, SHAPE),
    ("transpose", None, "x.transpose(0, 1) * x", 1, (3, 3)),
    ("T", None, "x.T / x", 1, (3, 3)),
    ("Where", None, "where(x > 1.0, x * y, y)", 2, SHAPE),
    ("relu", None, "(x - 1.0).relu() * x", 1, SHAPE),
    ("amax", None, "x.amax() * x", 1, SHAPE),
    ("amax", "dim", "x.amax(1) ** 2", 1, SHAPE),
    ("log_softmax", "dim", "x.log_softmax(1)", 1, SHAPE),
]


class Probe:
    """What can be called in a framework, and how a derivative is asked for."""

    def __init__(self, framework):
        self.framework = framework
        self.box = framework.get("Tensor") or framework.get("Variable")

    @property
    def is_own(self):
        """Whether box or backward pass are the step's own; later both come from the package."""
        if self.box is None:
            return False
        backward = getattr(self.box, "backward", self.box)
        return "__main__" in (self.box.__module__, backward.__module__)

    @property
    def automatic(self):
        return hasattr(self.box, "backward")

    def operations(self):
        """Names, functions of boxes, their numbers of inputs, and the shape of each."""
        functions = [row for row in TABLE if callable(self.framework.get(row[0]))]
        for name, _, arity in functions:
            yield name, self.framework[name], arity, SHAPE
        for _, name, arity in TABLE if not functions else ():
            if self._is_rule(self.framework.get(name)):
                yield name, self._call_of(self.framework[name]), arity, SHAPE
        for method, expression, arity in OPERATORS:
            if self.automatic and hasattr(self.box, method):
                yield expression, compiled(expression, self.framework), arity, SHAPE
        for name, parameter, expression, arity, shape in LATER:
            found = getattr(self.box, name, None) or self.framework.get(name)
            if self.box.__name__ == "Tensor" and found is not None:
                if parameter is None or parameter in inspect.signature(found).parameters:
                    yield expression, compiled(expression, self.framework), arity, shape

    def make(self, array):
        """A box that holds this very array and wants a gradient."""
        if self.box.__name__ == "Variable":
            return self.box(array)
        create = self.framework.get("tensor", self.box)
        for options in ({"dtype": self.framework.get("float64")}, {}):
            try:
                made = create(array, requires_grad=True, **options)
            except TypeError:
                continue
            if self.array(made).dtype == np.float64:
                return made
        made = create(array)
        made.requires_grad = True
        return made

    def array(self, box):
        """The NumPy array inside a box, however deep."""
        for _ in range(4):
            if isinstance(box, (np.ndarray, np.generic)):
                return np.asarray(box)
            box = box.array if hasattr(box, "array") else box.data
        raise TypeError(f"no array inside {type(box).__name__}")

    def gradients(self, call, arrays, cotangent):
        """The gradients of sum(cotangent * call(*arrays)), one array for each input."""
        inputs = [self.make(array) for array in arrays]
        if not self.automatic:
            call(*inputs)
            gradients = call.rule.backward(cotangent)
            return list(gradients) if isinstance(gradients, tuple) else [gradients]
        boxed = self._gradients_are_boxes(call, arrays)
        self._backward(call(*inputs), cotangent, boxed)
        return [self._gradient_of(each, array) for each, array in zip(inputs, arrays, strict=True)]

    def second_gradients(self, call, arrays, cotangent, second):
        """The gradients of sum(second[0] * x.grad) + sum(second[1] * y.grad), where x.grad and
        y.grad are the gradients of sum(cotangent * call(x, y)): one array for each input."""
        inputs = [self.make(array) for array in arrays]
        self._backward(call(*inputs), cotangent, True, create_graph=True)
        firsts = [each.grad for each in inputs]
        for each in inputs:
            each.grad = None
        for first, weight in zip(firsts, second, strict=True):
            # A gradient without history does not change with the inputs.
            if getattr(first, "grad_fn", None) or getattr(first, "creator", None):
                options = {"retain_graph": True} if self._takes("retain_graph") else {}
                self._backward(first, weight, True, **options)
        return [self._gradient_of(each, array) for each, array in zip(inputs, arrays, strict=True)]

    @property
    def differentiates_gradients(self):
        return self.automatic and self._takes("create_graph")

    def _takes(self, parameter):
        return parameter in inspect.signature(self.box.backward).parameters

    def _backward(self, output, cotangent, boxed, **options):
        if self._takes("gradient"):
            output.backward(self.constant(cotangent), **options)
        else:
            output.grad = self.box(cotangent) if boxed else cotangent
            output.backward(**options)

    def _gradient_of(self, box, array):
        return np.zeros_like(array) if box.grad is None else self.array(box.grad)

    def constant(self, array):
        made = self.make(array)
        return made.detach() if hasattr(made, "detach") else made

    def _gradients_are_boxes(self, call, arrays):
        inputs = [self.make(array) for array in arrays]
        try:
            call(*inputs).backward()
        except (RuntimeError, TypeError):  # Tensors need a gradient; the first steps have arrays
            return False
        return isinstance(inputs[0].grad, self.box)

    def _is_rule(self, found):
        return isinstance(found, type) and hasattr(found, "backward") and hasattr(found, "forward")

    def _call_of(self, rule_class):
        if self.automatic:
            return lambda *inputs: rule_class()(*inputs)
        return _ByHand(rule_class)


def compiled(expression, names):
    """An expression in x and y as a function. One without them is a function: it is made once."""
    code = compile(expression, expression, "eval")
    if not {"x", "y"} & {*code.co_names}:
        return eval(code, dict(names))
    return lambda x, y=None: eval(code, dict(names), {"x": x, "y": y})


class _ByHand:
    """A call that keeps its rule, so that `rule.backward` can be called by hand."""

    def __init__(self, rule_class):
        self.rule_class = rule_class

    def __call__(self, *inputs):
        self.rule = self.rule_class()
        return self.rule(*inputs)


def differences(value, arrays, cotangent):
    """Central differences of sum(cotangent * value(*arrays)) by every number of every array."""
    found = []
    for array in arrays:
        slope = np.zeros_like(array)
        for index in np.ndindex(array.shape):
            before = array[index]
            array[index] = before + EPS
            above = np.sum(cotangent * value(*arrays))
            array[index] = before - EPS
            below = np.sum(cotangent * value(*arrays))
            array[index] = before
            slope[index] = (above - below) / (2 * EPS)
        found.append(slope)
    return found


def positive_arrays(arity, rng, shape=SHAPE):
    """Inputs without ties, away from the places where functions have corners."""
    numbers = rng.permutation(np.linspace(0.51, 1.49, shape[0] * shape[1] * arity))
    return list(numbers.reshape(arity, *shape))


def check(probe, call, arity, shape, rng):
    """None where all gradients agree, NOT_YET, ONCE, or what is wrong."""
    arrays = positive_arrays(arity, rng, shape)

    def value(*each):
        return probe.array(call(*[probe.make(array.copy()) for array in each]))

    def slopes(*each):
        """The gradients in one array, whose own differences are second derivatives."""
        return np.stack(probe.gradients(call, [array.copy() for array in each], cotangent))

    try:
        cotangent = rng.uniform(0.5, 1.5, value(*arrays).shape)
        expected = differences(value, arrays, cotangent)
        actual = probe.gradients(call, [array.copy() for array in arrays], cotangent)
        wrong = disagreement(actual, expected)
        if wrong is None and probe.differentiates_gradients:
            second = rng.uniform(0.5, 1.5, (arity, *shape))
            copies = [array.copy() for array in arrays]
            try:
                actual = probe.second_gradients(call, copies, cotangent, second)
            except AttributeError as error:
                if "'Tensor'" not in str(error):
                    raise
                return ONCE
            expected = differences(slopes, arrays, second)
            wrong = disagreement(actual, expected)
            wrong = wrong and f"second derivative: {wrong}"
    except NotImplementedError:
        return NOT_YET
    except Exception as error:  # any other exception of the framework is a finding
        return f"{type(error).__name__}: {error}"
    return wrong


def disagreement(actual, expected):
    """The first gradient that is not the expected one, in words, or None."""
    for position, (got, want) in enumerate(zip(actual, expected, strict=True)):
        if got.shape != want.shape:
            return f"gradient {position} has shape {got.shape}, the input {want.shape}"
        if not np.allclose(got, want, rtol=TOLERANCE, atol=TOLERANCE):
            return f"gradient {position} is {got.ravel()[:3]}..., should be {want.ravel()[:3]}..."
    return None


def arity_of(expression):
    """The number of inputs of an expression in x and y, or of a function of them."""
    return 2 if re.search(r"\by\b", expression) else 1


def check_expression(expression, framework, rng):
    """The package's own gradcheck and gradgradcheck on an expression. None, ONCE, or what is
    wrong."""
    from tinytorch.autograd.gradcheck import gradcheck, gradgradcheck
    from tinytorch.core.tensor import tensor

    arrays = positive_arrays(arity_of(expression), rng)
    inputs = [tensor(array, requires_grad=True) for array in arrays]
    call = compiled(expression, framework)
    try:
        gradcheck(call, inputs)
        try:
            gradgradcheck(call, inputs)
        except NotImplementedError:
            return ONCE
    except Exception as error:  # any exception of the framework is a finding
        return f"{type(error).__name__}: {error}"
    return None


def framework_of(path):
    """What a step defines above its demo.

    Its name is `__main__`, as when it is run: only then may it put a method of its own in the place
    of one that the package has.
    """
    with open(path, encoding="utf-8") as file:
        tree = ast.parse(file.read(), path)
    demo = ast.parse('if __name__ == "__main__": pass').body[0].test
    tree.body = [
        node
        for node in tree.body
        if not (isinstance(node, ast.If) and ast.dump(node.test) == ast.dump(demo))
    ]
    framework = {"__name__": "__main__", "__file__": path}
    exec(compile(tree, path, "exec"), framework)
    return framework


def main(path, expressions):
    warnings.simplefilter("error")
    sys.path[0] = os.path.dirname(path)
    framework = framework_of(path)
    rng = np.random.default_rng(0)
    results = {}
    probe = Probe(framework)
    if probe.is_own:
        for name, call, arity, shape in probe.operations():
            results[name] = check(probe, call, arity, shape, rng)
    for expression in expressions:
        if probe.is_own:
            call = compiled(expression, framework)
            results[expression] = check(probe, call, arity_of(expression), SHAPE, rng)
        else:
            results[expression] = check_expression(expression, framework, rng)
    checked = [name for name, result in results.items() if result != NOT_YET]
    once = [name for name in checked if results[name] == ONCE]
    wrong = {name: results[name] for name in checked if results[name] not in (None, ONCE)}
    print(json.dumps({"checked": checked, "once": once, "wrong": wrong}))


if __name__ == "__main__":
    main(os.path.abspath(sys.argv[1]), sys.argv[2:])
