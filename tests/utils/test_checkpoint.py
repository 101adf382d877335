"""Checkpoints: the same gradients from less memory, and refusals instead of wrong numbers."""

import dataclasses
import gc
import tracemalloc
import warnings
import weakref
from collections import OrderedDict

import numpy as np
import pytest

import tinytorch
from tinytorch import nn
from tinytorch.autograd import grad, gradcheck, gradgradcheck
from tinytorch.autograd.graph import graph_functions
from tinytorch.autograd.modes import FunctionMode
from tinytorch.core.state import open_modes, state
from tinytorch.profiler import profile
from tinytorch.utils import checkpoint as module
from tinytorch.utils._nested import tensors_in
from tinytorch.utils.checkpoint import CheckpointError, checkpoint_sequential


def checkpoint(function, *args, **kwargs):
    return module.checkpoint(function, *args, use_reentrant=False, **kwargs)


def leaf(*shape, device="cpu", dtype=tinytorch.float64, seed=0):
    values = np.random.default_rng(seed).normal(size=shape)
    return tinytorch.tensor(values, dtype=dtype, device=device, requires_grad=True)


def block(x, w):
    return ((x * w).tanh() @ w.exp()).softmax(1) * x


def counted(function):
    calls = []

    def call(*args):
        calls.append(args)
        return function(*args)

    return call, calls


def same(found, expected):
    assert len(found) == len(expected)
    return all(tinytorch.equal(a, b) for a, b in zip(found, expected, strict=True))


def test_gradients_are_the_same_and_the_function_runs_twice(device):
    x, w = leaf(3, 3, device=device), leaf(3, 3, device=device, seed=1)
    call, calls = counted(block)
    y = checkpoint(call, x, w)
    assert tinytorch.equal(y, block(x, w)) and len(calls) == 1
    assert same(grad(y.sum(), (x, w)), grad(block(x, w).sum(), (x, w)))
    assert len(calls) == 2


def test_derivatives_of_both_orders(device):
    x, w = leaf(2, 2, device=device), leaf(2, 2, device=device, seed=1)
    assert gradcheck(lambda x, w: checkpoint(block, x, w), (x, w))
    assert gradgradcheck(lambda x, w: checkpoint(block, x, w), (x, w))


def test_a_second_derivative_is_the_same():
    x, w = leaf(3, 3), leaf(3, 3, seed=1)
    found = []
    for call in (checkpoint, lambda f, *args: f(*args)):
        first = grad((call(block, x, w) ** 2).sum(), (x, w), create_graph=True)
        found.append(grad(sum((g**2).sum() for g in first), (x, w)))
    assert same(*found)


def test_nothing_is_kept_but_arguments_and_results():
    x = leaf(50, 50)
    y = checkpoint(block, x, x)
    assert {type(f.saved).__name__ for f in graph_functions(y)} == {"Dropped"}
    y.sum().backward()
    assert x.grad is not None
    with pytest.raises(RuntimeError, match="second time"):
        y.sum().backward()


def test_peak_memory_is_lower():
    layers = [nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.GELU()) for _ in range(8)]
    x = tinytorch.ones(512, 64)

    def peak(call):
        tracemalloc.start()
        try:
            h = x
            for layer in layers:
                h = call(layer, h)
            h.sum().backward()
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    plain = lambda layer, h: layer(h)  # noqa: E731
    peak(plain)  # makes the gradients
    assert peak(checkpoint) < 0.6 * peak(plain)


def test_the_graph_dies_without_the_collector():
    gc.collect()
    gc.disable()
    try:
        x = leaf(3, 3)
        for use in (False, True):
            y = checkpoint(lambda a: checkpoint(block, a, a), x)
            nodes = [weakref.ref(f) for f in graph_functions(y)]
            if use:
                y.sum().backward()
            del y
            assert not any(ref() for ref in nodes)
    finally:
        gc.enable()


def test_the_graph_can_be_used_twice():
    x, w = leaf(3, 3), leaf(3, 3, seed=1)
    call, calls = counted(block)
    y = checkpoint(call, x, w).sum()
    first = grad(y, (x, w), retain_graph=True)
    assert same(grad(y, (x, w)), first) and len(calls) == 2


def test_nested():
    x, w = leaf(3, 3), leaf(3, 3, seed=1)
    call, calls = counted(block)

    def outer(x, w):
        return checkpoint(call, x, w) + checkpoint(call, w, x)

    y = checkpoint(lambda x, w: checkpoint(outer, x, w).exp(), x, w)
    expected = (block(x, w) + block(w, x)).exp()
    assert same(grad(y.sum(), (x, w)), grad(expected.sum(), (x, w)))
    assert len(calls) == 8


def test_random_numbers_are_drawn_again(device):
    x = leaf(200, device=device)
    drop = nn.Dropout(0.5)

    def twice(h):
        return drop(drop(h) * 3.0)

    tinytorch.manual_seed(0)
    y = checkpoint(twice, x)
    after = tinytorch.rand(3)
    (g,) = grad(y.sum(), x)
    assert tinytorch.equal(g == 0, y == 0) and 0 < (g == 0).sum().item() < 200
    following = tinytorch.rand(3)
    tinytorch.manual_seed(0)
    twice(x)
    assert tinytorch.equal(after, tinytorch.rand(3)) and tinytorch.equal(
        following, tinytorch.rand(3)
    )

    y = checkpoint(twice, x, preserve_rng_state=False)
    (g,) = grad(y.sum(), x)
    assert not tinytorch.equal(g == 0, y == 0)


def test_arguments_and_results_of_all_kinds():
    x, w = leaf(3, 3), leaf(3, 3, seed=1)
    layer = nn.Linear(3, 3).double()

    def function(a, factor, *, pair, name, flag=None):
        hidden = layer(a * factor) * pair[0]
        return {"out": [hidden, (hidden.exp(), name)], "flag": flag, "same": a}

    arguments = (x, 2.0), {"pair": [w, 1], "name": "n"}
    found = checkpoint(function, *arguments[0], **arguments[1])
    expected = function(*arguments[0], **arguments[1])
    assert found["out"][1][1] == "n" and found["flag"] is None and found["same"] is x
    inputs = [x, w, *layer.parameters()]
    sums = [(r["out"][0] * r["out"][1][0]).sum() for r in (found, expected)]
    assert same(*(grad(total, inputs) for total in sums))


def test_several_results_some_of_them_unused():
    x = leaf(4, 3)
    a, b, index = checkpoint(lambda x: (x.exp(), x.tanh(), x.argmax(1)), x)
    assert index.dtype is tinytorch.int64
    assert tinytorch.equal(*grad(b.sum(), x), *grad(x.tanh().sum(), x))
    a.sum().backward()
    assert tinytorch.equal(x.grad, x.exp())


def test_without_anything_to_record():
    x = tinytorch.ones(3)
    assert not checkpoint(lambda x: x * 2.0, x).requires_grad
    with tinytorch.no_grad():
        assert not checkpoint(lambda x: x * 2.0, leaf(3)).requires_grad
    assert checkpoint(lambda: 3) == 3


def test_tensors_of_the_closure_get_gradients():
    x, w = leaf(3, 3), leaf(3, 3, seed=1)
    inner = x * 2.0
    y = checkpoint(lambda: (inner * w).tanh())
    assert same(grad(y.sum(), (x, w)), grad((x * 2.0 * w).tanh().sum(), (x, w)))


def test_in_place_inside_and_after():
    x = leaf(3, 3)

    def inside(x):
        h = x * 3.0
        h.mul_(2.0)
        h[0] = 0.0
        return h * h

    y = checkpoint(inside, x)
    y.add_(1.0)
    y.mul_(3.0)
    assert tinytorch.equal(*grad(y.sum(), x), *grad(((inside(x) + 1.0) * 3.0).sum(), x))
    y = checkpoint(lambda x: x.tanh(), x)
    y.add_(1.0)  # without a checkpoint, what tanh saved would be gone
    np.testing.assert_allclose(
        grad(y.sum(), x)[0].numpy(), 1 - np.tanh(x.detach().numpy()) ** 2, rtol=1e-12
    )


@pytest.mark.parametrize("change", ["argument", "keyword", "parameter"])
def test_what_changed_since_is_refused(change):
    x, w, b = leaf(3), leaf(3, seed=1), leaf(3, seed=2)
    y = checkpoint(lambda x, *, w: (x * w * b).tanh(), x, w=w)
    with tinytorch.no_grad():
        {"argument": x, "keyword": w, "parameter": b}[change].mul_(2.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_what_changed_between_two_backward_passes_is_refused():
    x, w = leaf(3), leaf(3, seed=1)
    y = checkpoint(lambda: x * w).sum()
    y.backward(retain_graph=True)
    with tinytorch.no_grad():
        w.mul_(2.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()


def test_another_path_is_refused():
    x = leaf(3)
    for second in (lambda x: x.exp(), lambda x: x.tanh().exp(), lambda x: x[:2].tanh()):
        functions = [lambda x: x.tanh(), second]
        y = checkpoint(lambda x, f=functions: f.pop(0)(x), x)
        with pytest.raises(CheckpointError):
            y.sum().backward()


def test_an_error_of_the_second_run_leaves_everything_as_it_was():
    x, runs = leaf(3), []

    def function(x):
        runs.append(x)
        if len(runs) == 2:
            raise KeyError("second")
        return x.exp()

    y = checkpoint(function, x)
    tinytorch.manual_seed(0)
    with pytest.raises(KeyError):
        y.sum().backward()
    assert tinytorch.is_grad_enabled() and state.modes == () and open_modes == []
    a = tinytorch.rand(2)
    tinytorch.manual_seed(0)
    assert tinytorch.equal(a, tinytorch.rand(2))


def test_user_defined_functions():
    class Cube(tinytorch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return 3 * g * x * x

    x = leaf(3)
    (first,) = grad(checkpoint(lambda x: Cube.apply(x.exp()), x).sum(), x, create_graph=True)
    np.testing.assert_allclose(first.detach().numpy(), 3 * np.exp(3 * x.detach().numpy()))
    (second,) = grad(first.sum(), x)
    np.testing.assert_allclose(second.numpy(), 9 * np.exp(3 * x.detach().numpy()))


def test_modes_of_the_call_stand_around_the_second_run():
    class Triple(FunctionMode):
        def call(self, function, args):
            out = function.apply(*args)
            return out * 3.0 if function.__name__ == "Tanh" else out

    x = leaf(3)
    with Triple():
        y = checkpoint(lambda x: x.tanh(), x)
    (g,) = grad(y.sum(), x)
    np.testing.assert_allclose(g.numpy(), 3 * (1 - np.tanh(x.detach().numpy()) ** 2))
    with profile() as prof, FunctionMode():
        checkpoint(lambda x: x.tanh(), x).sum().backward()
    assert [e.name for e in prof.events()].count("aten::tanh") == 2
    assert state.modes == () and open_modes == []


def test_a_mode_that_does_something_only_once():
    class CastOnce(FunctionMode):
        """Products run in float32, and what was cast is kept, as autocast does."""

        casts: dict = {}

        def __exit__(self, *exception):
            self.casts.clear()
            super().__exit__(*exception)

        def call(self, function, args):
            if function.__name__ == "Mul":
                args = [self.casts.setdefault(id(x), x.float()) for x in args]
            return function.apply(*args)

    x, w = leaf(3), leaf(3, seed=1)
    found = []
    for call in (checkpoint, lambda f, *args: f(*args)):
        with CastOnce():
            total = sum(call(lambda x: (x * w).exp(), x) for _ in range(2)).sum()
            assert total.dtype is tinytorch.float32
        found.append(grad(total, (x, w)))
    assert same(*found)


@pytest.mark.parametrize("segments", [1, 2, 3, 5])
def test_sequential(segments):
    tinytorch.manual_seed(0)
    layers = [part for _ in range(3) for part in (nn.Linear(4, 4), nn.Tanh())][:5]
    model = nn.Sequential(*layers)
    x = leaf(2, 4, dtype=tinytorch.float32)
    expected = grad(model(x).sum(), [x, *model.parameters()])
    for functions in (model, layers):
        y = checkpoint_sequential(functions, segments, x, use_reentrant=False)
        assert same(grad(y.sum(), [x, *model.parameters()]), expected)


def test_use_reentrant():
    x = leaf(3)
    with pytest.warns(UserWarning, match="use_reentrant"):
        module.checkpoint(lambda x: x.exp(), x)
    with pytest.raises(NotImplementedError):
        module.checkpoint(lambda x: x.exp(), x, use_reentrant=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        checkpoint(lambda x: x.exp(), x)


def test_tensors_are_found_in_every_container():
    @dataclasses.dataclass
    class Pair:
        one: tinytorch.Tensor
        other: object

    a, b, c, d = (leaf(1, seed=n) for n in range(4))
    nested = OrderedDict(first=(a, [b]), second={c}, third=Pair(d, "text"), fourth=Pair)
    assert [id(x) for x in tensors_in(nested)] == [id(x) for x in (a, b, c, d)]
    assert list(tensors_in("text")) == [] and list(tensors_in(a)) == [a]
