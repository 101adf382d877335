"""The last step of Part I alone: one file, NumPy and the standard library, PyTorch's numbers."""

import ast
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tinytorch
from steps.companion.contract import differing, functions_of, run
from steps.companion.curriculum import Curriculum
from steps.companion.source import Source
from tinytorch.autograd.node import Function

ROOT = Path(__file__).resolve().parents[2]
CURRICULUM = Curriculum(ROOT)
STEP = [step for step in CURRICULUM.steps if step.run is None and step.stage.number <= 10][-1]
SOURCE = Source(STEP.path)
FRAMEWORK = "\n".join(SOURCE.lines[: SOURCE.demo_first - 1])


def test_it_imports_numpy_and_the_standard_library_only():
    roots = set()
    for node in ast.walk(ast.parse(STEP.path.read_text())):
        if isinstance(node, ast.Import):
            roots |= {each.name.partition(".")[0] for each in node.names}
        elif isinstance(node, ast.ImportFrom):
            roots.add((node.module or ".").partition(".")[0])
    assert "numpy" in roots and roots - {"numpy"} <= sys.stdlib_module_names


@pytest.mark.slow
def test_copied_with_its_data_it_reads_digits_and_writes(tmp_path):
    for path in (STEP.path, *(ROOT / "tinytorch" / "datasets").glob("*.gz")):
        shutil.copy(path, tmp_path)
    command = [sys.executable, "-I", "-W", "error", STEP.path.name, "--tour"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    (share,) = [line for line in done.stdout.splitlines() if line.startswith("digits of other")]
    assert float(share.split()[-2].rstrip("%")) > 95
    written = done.stdout.rpartition("step 2500: loss")[2]
    assert float(written.split()[0]) < 3.3 and " the " in written


# --- programs: the same on the file and on the package -------------------------------------------

PROGRAMS = {
    "second derivatives": """
        x = tensor([0.5, 1.5, -2.0], requires_grad=True)
        y = ((x**3).sin() * x.exp() + x.tanh() / (x * x + 1)).sum()
        y.backward(create_graph=True)
        slope, x.grad = x.grad, None
        (slope * slope).sum().backward()
        print(slope.tolist(), x.grad.tolist())""",
    "broadcasting": """
        a, b = randn(4, 1, 3, requires_grad=True), randn(2, 1, requires_grad=True)
        (a * b - b / (a * a + 1)).sum().backward()
        print(a.grad.tolist(), b.grad.tolist())""",
    "a tensor used twice": """
        x = tensor([2.0, 3.0], requires_grad=True)
        y = x * x
        (y * y + y + x).sum().backward()
        x.grad, first = None, x.grad.tolist()
        (x * 2).sum().backward()
        (x * 3).sum().backward()
        print(first, x.grad.tolist())""",
    "detach and no_grad": """
        x = tensor([1.0, 2.0], requires_grad=True)
        (x * x.detach()).sum().backward()
        with no_grad():
            y = x * 2
            x += 10.0
        print(x.grad.tolist(), x.tolist(), y.requires_grad, y.is_leaf)""",
    "indexing": """
        x = randn(5, 4, requires_grad=True)
        y = x[[0, 0, 2]] * 2 + x[1:4, ::2].sum() + x[..., -1].sum()
        y.sum().backward()
        print(y.shape, x.grad.tolist())""",
    "matrices": """
        a, b = randn(2, 3, 4, requires_grad=True), randn(4, 5, requires_grad=True)
        v = randn(5, requires_grad=True)
        (a @ b @ v.reshape(5, 1)).sum().backward()
        print(a.grad.tolist(), b.grad.tolist(), v.grad.tolist())""",
    "sums, means, spreads": """
        x = randn(3, 4, 2, requires_grad=True)
        for y in (x.sum(1), x.mean((0, 2), keepdim=True), x.var(-1), x.var((0, 1), correction=0)):
            print(y.shape, y.sum().item())
            (y * y).sum().backward()
        print(x.amax(1).tolist(), x.argmax(2).tolist(), x.grad.tolist())""",
    "shapes": """
        x = randn(2, 3, 4, requires_grad=True)
        y = stack([x.permute(2, 0, 1).reshape(4, 6), x.transpose(0, 2).reshape(4, 6)], 1)
        z = cat([y, y * 2], -1).chunk(3, 2)
        (z[0] * z[2]).sum().backward()
        print(y.shape, [each.shape for each in z], x.grad.tolist())""",
    "where and comparisons": """
        x = tensor([-2.0, 0.0, 3.0], requires_grad=True)
        y = where(x > 0, x.log(), x * x)
        y.sum().backward()
        print(y.tolist(), x.grad.tolist(), (x <= 0).tolist(), (x == 3).sum().item())""",
    "activations": """
        x = tensor([-30.0, -1.0, 0.5, 30.0], requires_grad=True)
        for y in (sigmoid(x), softplus(x), x.relu(), gelu(x, approximate="tanh"), x.softmax(0)):
            y.sum().backward(create_graph=True)
            print(y.tolist())
        print(x.grad.tolist(), x.log_softmax(0).tolist())""",
    "losses": """
        x = tensor([[2.0, -1.0, 800.0], [0.0, 0.5, -0.5]], requires_grad=True)
        t = tensor([2, 0])
        yes = tensor([[1.0, 0.0, 1.0], [0.0, 1.0, 0.0]])
        said = binary_cross_entropy_with_logits(x, yes)
        for loss in (cross_entropy(x, t), said, mse_loss(x, yes)):
            loss.backward()
            print(loss.item())
        print(x.grad.tolist())""",
    "optimizers": """
        for rule, options in (
            (SGD, {"lr": 0.1}), (SGD, {"lr": 0.1, "momentum": 0.9}), (RMSprop, {"lr": 0.05}),
            (Adam, {"lr": 0.05}), (AdamW, {"lr": 0.05, "weight_decay": 0.3}),
       ):
            p = Parameter(tensor([1.0, -2.0, 0.5]))
            optimizer = rule([p], **options)
            for step in range(7):
                optimizer.zero_grad()
                ((p - 3) ** 2 * tensor([1.0, 10.0, 0.01])).sum().backward()
                optimizer.step()
            print(rule.__name__, p.tolist())""",
    "clipping and a schedule": """
        p, q = Parameter(tensor([3.0, 4.0])), Parameter(tensor([1.0]))
        (p * 100).sum().backward()
        print(clip_grad_norm_([p, q], 1.0).item(), p.grad.tolist(), q.grad is None)
        optimizer = SGD([p, q], lr=1.0)
        schedule = LambdaLR(optimizer, lambda step: 1 / (1 + step))
        for _ in range(3):
            optimizer.step()
            schedule.step()
        print(p.tolist(), schedule.get_last_lr())""",
    "modules by name": """
        net = Sequential(Linear(3, 4), ReLU(), Sequential(Linear(4, 2, bias=False)))
        print(net)
        print([name for name, _ in net.named_parameters()], [*net.state_dict()])
        print([name for name, _ in net.named_children()], net.training, net.eval().training)""",
    "states": """
        one, two = Linear(3, 2), Linear(3, 2)
        two.load_state_dict(one.state_dict())
        x = ones(4, 3)
        print((one(x) == two(x)).sum().item(), one.weight is two.weight)
        try:
            two.load_state_dict({"weight": one.weight})
        except RuntimeError:
            print("refused")""",
    "a network learns": """
        x = tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
        net, t = Sequential(Linear(2, 8), ReLU(), Linear(8, 2)), tensor([0, 1, 1, 0])
        with no_grad():  # the same start on both sides
            for i, p in enumerate(net.parameters()):
                p *= 0
                p += tensor(np.cos(np.arange(p.numel()) * (i + 1.7)).reshape(p.shape))
        optimizer = Adam(net.parameters(), lr=0.05)
        for _ in range(60):
            loss = cross_entropy(net(x), t)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(loss.item(), net(x).argmax(1).tolist())""",
    "convolutions": """
        x, w = randn(2, 3, 7, 6, requires_grad=True), randn(4, 3, 3, 3, requires_grad=True)
        b = randn(4, requires_grad=True)
        y = max_pool2d(conv2d(x, w, b, stride=2, padding=1), 2)
        (y * y).sum().backward()
        print(y.tolist(), x.grad.sum().item(), w.grad[1, 2].tolist(), b.grad.tolist())""",
    "batch norm": """
        norm, x = BatchNorm2d(3), randn(4, 3, 2, 2, requires_grad=True)
        y = norm(x)
        (y * y * y).sum().backward()
        print(y.sum().item(), x.grad[0].tolist(), norm.running_var.tolist())
        print(norm.eval()(x).sum().item(), norm.num_batches_tracked.item())""",
    "data": """
        data = TensorDataset(tensor([[1.0], [2.0], [3.0], [4.0], [5.0]]), tensor([0, 1, 0, 1, 0]))
        for x, t in DataLoader(Subset(data, [4, 2, 0]), 2):
            print(x.tolist(), t.tolist())
        print(len(DataLoader(data, 2)), len(DataLoader(data, 2, drop_last=True)), data[3])""",
    "embedding and topk": """
        table, x = Embedding(5, 3), tensor([[1, 4], [1, 1]])
        table(x).sum().backward()
        values, places = tensor([0.3, 2.0, -1.0, 5.0]).topk(2)
        print(table.weight.grad.tolist(), values.tolist(), places.tolist())""",
    "recurrent cells": """
        for cell in (RNNCell(3, 4), LSTMCell(3, 4)):
            with no_grad():
                for p in cell.parameters():
                    p *= 0
                    p += tensor(np.sin(np.arange(p.numel()) + 0.5).reshape(p.shape))
            x = tensor(np.cos(np.arange(6.0)).reshape(2, 3))
            x.requires_grad = True
            state = cell(x, cell(x))
            h = state[0] if isinstance(state, tuple) else state
            h.sum().backward()
            print(h.tolist(), x.grad.tolist())""",
    "attention": """
        q, k = randn(2, 3, 5, 4, requires_grad=True), randn(2, 3, 5, 4, requires_grad=True)
        v = randn(2, 3, 5, 2, requires_grad=True)
        y = scaled_dot_product_attention(q, k, v, is_causal=True)
        (y * y).sum().backward()
        print(y[0, 0].tolist(), q.grad[1, 2].tolist())
        print(k.grad[1, 0].tolist(), v.grad.sum().item())""",
    "layer norm": """
        norm, x = LayerNorm(4), randn(3, 4, requires_grad=True)
        (norm(x) ** 3).sum().backward(create_graph=True)
        slope, x.grad = x.grad, None
        slope.sum().backward()
        print(slope.tolist(), norm.weight.grad.tolist(), norm.bias.grad.tolist())""",
    "messages": """
        for wrong in (
            lambda: ones(2, 3) @ ones(2, 3), lambda: ones(3) + ones(4), lambda: ones(2).backward(),
            lambda: ones(2, requires_grad=True).numpy(), lambda: ones(2, 3).reshape(4),
            lambda: tensor([1, 2], requires_grad=True), lambda: bool(ones(2)),
       ):
            try:
                wrong()
                print("accepted")
            except (RuntimeError, ValueError, TypeError) as error:
                print("refused")""",
}


def as_demo(text: str) -> str:
    return (
        FRAMEWORK
        + '\n\nif __name__ == "__main__":\n'
        + text.lstrip("\n").replace("\n        ", "\n    ").replace("        ", "    ", 1)
    )


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_prints_the_same_on_the_package(name):
    own = CURRICULUM.contract["own"]
    text = as_demo("\n        manual_seed(0)" + PROGRAMS[name])
    ours = run(ROOT, STEP.path, text, own)
    theirs = run(ROOT, STEP.path, text, own, "tinytorch")
    assert not ours.failed and not theirs.failed, (ours.failed, theirs.failed)
    assert ours.lines and differing(ours.lines, theirs.lines) == []


# --- its Functions run in the package's engine ---------------------------------------------------

X = np.random.default_rng(0).uniform(0.5, 1.5, (3, 4))
Y = np.random.default_rng(1).uniform(0.5, 1.5, (3, 4))
IMAGE = np.random.default_rng(2).uniform(0.5, 1.5, (2, 5, 5))
CALLS = {
    "Exp": (X,), "Add": (X, Y), "Mul": (X, Y[0]), "Neg": (X,), "Sub": (X[:, :1], Y),
    "Div": (X, Y), "Pow": (X, 3.0), "Sin": (X,), "Cos": (X,), "Tanh": (X,), "Log": (X,),
    "Sum": (X, 1, True), "Expand": (X[:1], (3, 4)), "SumTo": (X, (1, 4)),
    "MatMul": (X, Y.T.copy()), "Reshape": (X, (4, 3)), "Transpose": (X, 0, 1),
    "Where": (X > 1, X, Y), "Relu": (X - 1,), "Amax": (X, 1, False),
    "Index": (X, (slice(1, 3), [0, 2])),
    "AddIndex": (X, (5, 4), (slice(1, 4),)), "NllLoss": (X, np.array([0, 3, 1])), "Sigmoid": (X,),
    "Softplus": (X,), "Permute": (IMAGE, (2, 0, 1)), "Windows": (IMAGE, 3, 2),
    "Cat": (1, X, Y), "Softmax": (X, 1), "Normalization": (X, 1e-5), "GeluActivation": (X,),
}  # fmt: skip
# Compare and ArgMax have no gradient, AddWindows is the way back of Windows, and Checkpoint runs a
# graph of its own inside backward, by the file's functions.
FIRST_ONLY = {"NllLoss"}  # p - right: the package refuses to subtract a tensor of booleans
LEFT_OUT = {"Compare", "ArgMax", "AddWindows", "Checkpoint"}


NAMES = functions_of(SOURCE)
FILE: dict = {"__name__": "file"}
exec(compile(FRAMEWORK, STEP.path.name, "exec"), FILE)
ENGINE = {name: FILE[name] for name in ("np", "math", "itertools", "sum_to", "contextlib")}
ENGINE |= {"__name__": "engine", "Function": Function, "Tensor": tinytorch.Tensor}
for each in NAMES:
    exec(compile(SOURCE.definitions[each].text, STEP.path.name, "exec"), ENGINE)


def derivatives(space, name, make):
    """The value of a call, its gradients, and the gradients of the sum of their squares."""
    differentiable = {"Where": (1, 2), "NllLoss": (0,), "Pow": (0,), "Cat": (1, 2)}.get(name)
    args = [
        make(x, requires_grad=differentiable is None or i in differentiable)
        if isinstance(x, np.ndarray) and x.dtype.kind == "f"
        else make(x)
        if isinstance(x, np.ndarray)
        else x
        for i, x in enumerate(CALLS[name])
    ]
    y = space[name].apply(*args)
    leaves = [x for x in args if getattr(x, "requires_grad", False)]
    if name in FIRST_ONLY:
        (y * y).sum().backward()
        return [y.detach().numpy(), *(x.grad.numpy() for x in leaves)]
    (y * y).sum().backward(create_graph=True)
    slopes = [x.grad for x in leaves]
    for x in leaves:
        x.grad = None
    sum((slope * slope).sum() for slope in slopes).backward()
    return [each.detach().numpy() for each in (y, *slopes, *(x.grad for x in leaves))]


@pytest.mark.parametrize("name", [each for each in NAMES if each not in LEFT_OUT])
def test_a_function_of_the_file_runs_in_the_engine_of_the_package(name):
    """As it stands: the value, the gradients, and the gradients of the gradients."""
    ours = derivatives(FILE, name, FILE["Tensor"])
    theirs = derivatives(ENGINE, name, of_package)
    assert len(ours) == len(theirs) >= 2
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-10, atol=1e-12)


def of_package(array, requires_grad=False):
    return tinytorch.tensor(array, requires_grad=requires_grad)
