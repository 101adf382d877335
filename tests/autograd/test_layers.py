"""The four layers: each module imports downward only, and a call goes down once and comes back."""

import ast
from pathlib import Path

import numpy as np
import pytest

import tinytorch
from tinytorch.autograd.modes import FunctionMode
from tinytorch.core.device import Backend, Device, array_types, backends, register_backend
from tinytorch.ops.arithmetic import Add, Mul

PACKAGE = Path(tinytorch.__file__).parent
OPTIONAL = {"cupy", "ml_dtypes", "graphviz", "mpi4py", "safetensors", "threadpoolctl"}


def module_names():
    names = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        if path.name != "__init__.py":
            parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
            names[".".join(parts)] = path
    return names


MODULES = module_names()


def imports_of(name):
    """The modules of the package that a module imports; a package stands for its modules."""
    found = set()
    for node in ast.walk(ast.parse(MODULES[name].read_text())):
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                found.add(inner if inner in MODULES else node.module)
        elif isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
    return {target for target in found if target.split(".")[0] == "tinytorch"}


def layer(name):
    """0 core, 1 autograd, 2 ops, 3 what is built from these."""
    if name == "tinytorch.autograd.functional":  # so PyTorch calls it; it is made of operations
        return 3
    order = {"core": 0, "autograd": 1, "ops": 2}
    return order.get(name.split(".")[1], 3)


@pytest.mark.parametrize("name", MODULES)
def test_a_module_imports_downward_only(name):
    for target in imports_of(name):
        assert layer(target) <= layer(name), f"{name} imports {target}"


def test_imports_have_no_cycle():
    state = {}

    def visit(name, path):
        assert state.get(name) != "open", " -> ".join([*path, name])
        if name in MODULES and name not in state:
            state[name] = "open"
            for target in imports_of(name):
                visit(target, [*path, name])
            state[name] = "done"

    for name in MODULES:
        visit(name, [])


@pytest.mark.parametrize("name", MODULES)
def test_no_import_inside_a_function_but_of_optional_packages(name):
    for function in ast.walk(ast.parse(MODULES[name].read_text())):
        if not isinstance(function, ast.FunctionDef):
            continue
        for node in ast.walk(function):
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                imported = node.module if isinstance(node, ast.ImportFrom) else node.names[0].name
                assert imported.split(".")[0] in OPTIONAL, f"{name}, line {node.lineno}"


def test_the_core_knows_no_operation():
    for name in ("add", "mul", "sum", "exp", "backward"):
        assert f"def {name}(" not in (PACKAGE / "core" / "tensor.py").read_text()


# One call through the layers.


class Logged:
    """An array library that notes what reaches it: the third layer."""

    def __init__(self, log):
        self.log = log

    def __getattr__(self, name):
        self.log.append(f"xp.{name}")
        return getattr(np, name)


class LoggedArray(np.ndarray):
    """An array that notes its arithmetic: the fourth layer."""

    log: list = []

    def __array_ufunc__(self, ufunc, method, *inputs, **kwargs):
        self.log.append(f"C loop {ufunc.__name__}")
        plain = [np.asarray(x) if isinstance(x, LoggedArray) else x for x in inputs]
        return np.asarray(getattr(ufunc, method)(*plain, **kwargs)).view(LoggedArray)


class Note(FunctionMode):
    """Notes which Function is called: the second layer."""

    def __init__(self, log):
        self.log = log

    def call(self, function, args):
        self.log.append(f"Function {function.__name__}")
        return function.apply(*args)


@pytest.fixture
def logged():
    """A fourth kind of device, registered for one test: the layers above it know nothing of it."""
    log = LoggedArray.log = []
    backend = Backend(
        Logged(log), LoggedArray, lambda array, index: array.view(LoggedArray), np.asarray
    )
    register_backend("logged", backend)
    yield log
    del backends["logged"], array_types[LoggedArray]
    Device.known.pop(("logged", None))


def test_a_call_goes_down_once_and_back_up_once(logged, monkeypatch):
    def multiply(self, other):
        logged.append("Tensor.__mul__")
        return original(self, other)

    original = tinytorch.Tensor.__mul__
    monkeypatch.setattr(tinytorch.Tensor, "__mul__", multiply)
    a, b = (tinytorch.tensor([2.0, 3.0], device="logged", requires_grad=True) for _ in range(2))
    logged.clear()
    with Note(logged):
        c = a * b
    assert logged == ["Tensor.__mul__", "Function Mul", "C loop multiply"]
    assert isinstance(c.grad_fn, Mul) and c.device == Device("logged")

    seed = tinytorch.tensor([1.0, 1.0], device="logged")
    logged.clear()
    c.backward(seed)
    # Backward runs on arrays: two products, and no Function is called again.
    assert logged[:2] == ["C loop multiply", "C loop multiply"]
    assert not [line for line in logged if line.startswith(("Function", "Tensor"))]
    assert a.grad.tolist() == [2.0, 3.0]


def test_with_create_graph_backward_goes_through_all_layers(logged):
    a = tinytorch.tensor([2.0, 3.0], device="logged", requires_grad=True)
    seed = tinytorch.tensor([1.0, 1.0], device="logged")
    logged.clear()
    with Note(logged):
        c = a * a
        (g,) = tinytorch.autograd.grad(c, a, seed, create_graph=True)
    functions = [line for line in logged if line.startswith("Function")]
    assert functions == ["Function Mul", "Function Mul", "Function Mul", "Function Add"]
    assert isinstance(g.grad_fn, Add) and g.tolist() == [4.0, 6.0]
