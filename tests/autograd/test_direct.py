"""apply_directly does what Function.apply does."""

import pytest

import tinytorch
from tinytorch.autograd.direct import apply_directly
from tinytorch.autograd.modes import FunctionMode
from tinytorch.autograd.node import Function
from tinytorch.ops.arithmetic import Add, Mul, Neg


@pytest.fixture
def operands(device):
    a = tinytorch.tensor([[1.0, 2.0, 3.0]], device=device, requires_grad=True)
    b = tinytorch.tensor([[4.0], [5.0]], device=device, requires_grad=True)
    return a, b


def both_ways(function, *inputs):
    for way in (function.apply, lambda *args: apply_directly(function, *args)):
        for x in inputs:
            x.grad = None
        y = way(*inputs)
        y.sum().backward()
        yield (
            y.tolist(),
            [x.grad.tolist() for x in inputs],
            y.grad_fn.name(),
            y.grad_fn.outputs[0][:2],
        )


def test_the_same_values_gradients_and_nodes(operands):
    straight, long = both_ways(Mul, *operands)
    assert straight == long
    assert straight[1] == [[[9.0, 9.0, 9.0]], [[6.0], [6.0]]]
    straight, long = both_ways(Neg, operands[0])
    assert straight == long


class SumAndDifference(Function):
    """s = a + b, d = a - b."""

    def forward(ctx, a, b):
        return a + b, a - b

    def backward(ctx, gs, gd):
        return gs + gd, gs - gd


def test_edges_name_the_result_that_is_meant(operands):
    a, b = operands
    total, difference = SumAndDifference.apply(a.expand(2, 3), b.expand(2, 3))
    y = apply_directly(Mul, difference, total)  # a^2 - b^2
    assert y.grad_fn.edges == ((total.grad_fn, 1), (total.grad_fn, 0))
    y.sum().backward()
    assert a.grad.tolist() == [[4.0, 8.0, 12.0]] and b.grad.tolist() == [[-24.0], [-30.0]]


def test_a_view_takes_the_history_of_its_base(device):
    x = tinytorch.tensor([1.0, 2.0], device=device, requires_grad=True)
    base = x * 1.0
    view = base[:1]
    base.mul_(10.0)
    for y in (apply_directly(Neg, view), apply_directly(Add, view, view)):
        x.grad = None
        y.sum().backward(retain_graph=True)
        assert x.grad.tolist() == [-10.0 if len(y.grad_fn.edges) == 1 else 20.0, 0.0]


def test_a_number_is_no_tensor(operands):
    a, _ = operands
    for function, number in ((Mul, 2.0), (Mul, 3), (Add, 2.0), (Add, 3)):
        straight, long = apply_directly(function, a, number), function.apply(a, number)
        assert straight.tolist() == long.tolist() and straight.dtype is long.dtype
        assert tuple(straight.grad_fn.edges) == tuple(long.grad_fn.edges) == (a, None)
    a.grad = None
    apply_directly(Mul, a, 2.0).sum().backward()
    assert a.grad.tolist() == [[2.0, 2.0, 2.0]]
    assert apply_directly(Mul, 2.0, a).tolist() == [[2.0, 4.0, 6.0]]


def test_a_parameter_goes_the_long_way(operands):
    a, _ = operands
    weight = tinytorch.nn.Parameter(tinytorch.ones(3, device=a.device))
    y = apply_directly(Mul, a, weight)
    y.sum().backward()
    assert weight.grad.tolist() == [1.0, 2.0, 3.0] and y.grad_fn.edges[1] is weight


def test_nothing_is_recorded_where_nothing_is_wanted(operands):
    a, b = operands
    with tinytorch.no_grad():
        y = apply_directly(Mul, a, b)
    assert y.grad_fn is None and not y.requires_grad
    y = apply_directly(Mul, a.detach(), b.detach())
    assert y.grad_fn is None and not y.requires_grad


def test_a_mode_sees_the_call(operands):
    seen = []

    class Watch(FunctionMode):
        def call(self, function, args):
            seen.append(function)
            return function.apply(*args)

    with Watch():
        apply_directly(Mul, *operands)
        apply_directly(Neg, operands[0])
    assert seen == [Mul, Neg]


def test_inference_tensors_stay_outside_of_graphs(operands):
    a, _ = operands
    with tinytorch.inference_mode():
        made = apply_directly(Neg, a)
    assert made.is_inference()
    with pytest.raises(RuntimeError, match="Inference tensors cannot be saved for backward"):
        apply_directly(Mul, a, made)


def test_errors_are_those_of_the_long_way(operands):
    a, _ = operands
    other = tinytorch.ones(2, 4, device=a.device)
    with pytest.raises(RuntimeError, match=r"size of tensor a \(3\) must match .* b \(4\)"):
        apply_directly(Add, a, other)


def test_a_number_on_the_cpu_joins_the_other_device():
    a = tinytorch.tensor([1.0, 2.0], device="strict", requires_grad=True)
    scalar = tinytorch.tensor(3.0, requires_grad=True)
    y = apply_directly(Mul, a, scalar)
    assert str(y.device) == "strict"
    y.sum().backward()
    assert scalar.grad.item() == 3.0 and str(scalar.grad.device) == "cpu"
    with pytest.raises(RuntimeError, match="same device"):
        apply_directly(Mul, a, tinytorch.ones(2))
