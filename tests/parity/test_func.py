"""torch.func.functional_call against PyTorch's."""

import numpy as np
import pytest

import tinytorch
import tinytorch.func

torch = pytest.importorskip("torch", reason="PyTorch is not installed", exc_type=ImportError)

from tests.parity.test_programs import drawn, fill  # noqa: E402

LIBRARIES = pytest.mark.parametrize("library", [tinytorch, torch], ids=["tinytorch", "torch"])


def numbers(value):
    return value.detach().numpy().tolist()


def a_meta_step(t):
    """Two steps of gradient descent inside, and the gradient of the loss after them."""
    nn = t.nn
    net = fill(t, nn.Sequential(nn.Conv1d(2, 3, 2), nn.Tanh(), nn.Flatten(), nn.Linear(12, 2)))
    x, y = drawn(t, 6, 2, 5), drawn(t, 6, 2, seed=2)
    weights = dict(net.named_parameters())
    for _ in range(2):
        loss = ((t.func.functional_call(net, weights, (x,)) - y) ** 2).mean()
        grads = t.autograd.grad(loss, list(weights.values()), create_graph=True)
        pairs = zip(weights.items(), grads, strict=True)
        weights = {name: w - 0.1 * g for (name, w), g in pairs}
    ((t.func.functional_call(net, weights, x) - y) ** 2).mean().backward()
    return [numbers(p.grad) for p in net.parameters()]


def running_averages(t):
    net = fill(t, t.nn.Sequential(t.nn.Linear(3, 2), t.nn.BatchNorm1d(2)))
    given = {name: value.clone() for name, value in net.named_buffers()}
    weights = {name: p.detach() * 2 for name, p in net.named_parameters()}
    out = t.func.functional_call(net, (weights, given), (drawn(t, 4, 3),), strict=True)
    inside, outside = given.values(), net.state_dict().values()
    return [numbers(each) for each in (out, *inside, *outside)]


def tied_weights(t):
    class Net(t.nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = t.nn.Linear(2, 2), t.nn.Linear(2, 2)
            self.b.weight = self.a.weight

        def forward(self, x, *, scale=1.0):
            return self.b(self.a(x)) * scale

    net, x, eye = fill(t, Net()), drawn(t, 3, 2), t.eye(2)
    given = [{"a.weight": eye}, {"b.weight": eye}, {"a.weight": eye, "b.weight": eye}, {}]
    outs = [t.func.functional_call(net, each, (x,), {"scale": 2.0}) for each in given]
    outs += [t.func.functional_call(net, each, (x,), tie_weights=False) for each in given]
    assert net.a.weight is net.b.weight is dict(net.named_parameters())["a.weight"]
    return [numbers(out) for out in outs]


def state_that_is_replaced(t):
    class Net(t.nn.Module):
        def __init__(self):
            super().__init__()
            self.w = t.nn.Parameter(t.ones(2))
            self.register_buffer("calls", t.zeros(1))

        def forward(self):
            self.calls = self.calls + 1
            if self.calls > 5:
                raise KeyError("late")
            return self.w * self.calls

    net, given = Net(), {"calls": t.ones(1), "w": t.ones(2) * 3}
    seen = [t.func.functional_call(net, given)]
    with pytest.raises(KeyError, match="late"):
        t.func.functional_call(net, {"calls": t.ones(1) * 5, "w": given["w"]})
    seen += [net.calls, net.w, given["calls"], given["w"], net()]
    return [numbers(each) for each in seen], list(net.state_dict())


@pytest.mark.parametrize(
    "function", [a_meta_step, running_averages, tied_weights, state_that_is_replaced]
)
def test_the_same_under_both(function):
    ours, theirs = function(tinytorch), function(torch)
    if isinstance(ours, tuple):
        assert ours[1] == theirs[1]
        ours, theirs = ours[0], theirs[0]
    for mine, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-4, atol=1e-5)


@LIBRARIES
def test_errors(library):
    net, x = library.nn.Linear(2, 2), library.ones(2, 2)
    call = library.func.functional_call
    for wrong, error in (
        (5, ValueError),
        ((5,), ValueError),
        (({"weight": x}, {"weight": x}), ValueError),
        ({"weight": 3}, TypeError),
    ):
        with pytest.raises(error):
            call(net, wrong, (x,))
    for wrong in ({"weight": x}, {"weight": x, "bias": x[0], "more": x}):
        with pytest.raises(RuntimeError):
            call(net, wrong, (x,), strict=True)
        assert call(net, wrong, (x,)).shape == (2, 2)
    assert list(net.state_dict()) == ["weight", "bias"] and not hasattr(net, "more")
    tied = library.nn.Sequential(net, net)
    with pytest.raises(ValueError, match="tied"):
        call(tied, {"0.weight": x, "1.weight": x * 2}, (x,))
