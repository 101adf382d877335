"""Function.apply: one or two operands are handled in straight lines, more of them in a loop."""

import pytest

import tinytorch
from tinytorch.autograd.node import Function
from tinytorch.ops.arithmetic import Add, Mul, Neg


@pytest.fixture
def operands(device):
    a = tinytorch.tensor([[1.0, 2.0, 3.0]], device=device, requires_grad=True)
    b = tinytorch.tensor([[4.0], [5.0]], device=device, requires_grad=True)
    return a, b


class Product(Function):
    """a * b, with a third argument that changes nothing: it goes through the loop."""

    elementwise = True

    def forward(ctx, a, b, _):
        ctx.saved = a, b
        return a * b

    def backward(ctx, g):
        a, b = ctx.saved
        return g * b, g * a


def both_ways(a, b):
    for y in (Mul.apply(a, b), Product.apply(a, b, None)):
        a.grad = b.grad = None
        y.sum().backward()
        yield y.tolist(), a.grad.tolist(), b.grad.tolist(), y.grad_fn.edges[:2], y.grad_fn.outputs


def test_both_ways_give_the_same_values_gradients_and_nodes(operands):
    straight, loop = both_ways(*operands)
    assert straight == (*loop[:3], tuple(loop[3]), loop[4])
    assert straight[1:3] == ([[9.0, 9.0, 9.0]], [[6.0], [6.0]])


class SumAndDifference(Function):
    """s = a + b, d = a - b."""

    def forward(ctx, a, b):
        return a + b, a - b

    def backward(ctx, gs, gd):
        return gs + gd, gs - gd


def test_edges_name_the_result_that_is_meant(operands):
    a, b = operands
    total, difference = SumAndDifference.apply(a.expand(2, 3), b.expand(2, 3))
    y = Mul.apply(difference, total)  # a^2 - b^2
    assert y.grad_fn.edges == ((total.grad_fn, 1), (total.grad_fn, 0))
    y.sum().backward()
    assert a.grad.tolist() == [[4.0, 8.0, 12.0]] and b.grad.tolist() == [[-24.0], [-30.0]]


def test_a_view_takes_the_history_of_its_base(device):
    x = tinytorch.tensor([1.0, 2.0], device=device, requires_grad=True)
    base = x * 1.0
    view = base[:1]
    base.mul_(10.0)
    for y in (Neg.apply(view), Add.apply(view, view)):
        x.grad = None
        y.sum().backward(retain_graph=True)
        assert x.grad.tolist() == [-10.0 if len(y.grad_fn.edges) == 1 else 20.0, 0.0]


def test_a_number_gets_no_edge(operands):
    a, _ = operands
    y = Mul.apply(a, 2.0)
    assert y.grad_fn.edges == ((a, 0), None)
    y.sum().backward()
    assert a.grad.tolist() == [[2.0, 2.0, 2.0]]
    assert Mul.apply(2.0, a).tolist() == [[2.0, 4.0, 6.0]]


def test_a_parameter_is_a_tensor(operands):
    a, _ = operands
    weight = tinytorch.nn.Parameter(tinytorch.ones(3, device=a.device))
    y = Mul.apply(a, weight)
    y.sum().backward()
    assert weight.grad.tolist() == [1.0, 2.0, 3.0] and y.grad_fn.edges[1][0] is weight


def test_nothing_is_recorded_where_nothing_is_wanted(operands):
    a, b = operands
    with tinytorch.no_grad():
        y = Mul.apply(a, b)
    assert y.grad_fn is None and not y.requires_grad
    y = Mul.apply(a.detach(), b.detach())
    assert y.grad_fn is None and not y.requires_grad


def test_shapes_that_do_not_broadcast(operands):
    a, _ = operands
    other = tinytorch.ones(2, 4, device=a.device)
    with pytest.raises(RuntimeError, match=r"size of tensor a \(3\) must match .* b \(4\)"):
        Add.apply(a, other)


def test_a_number_on_the_cpu_joins_the_other_device():
    a = tinytorch.tensor([1.0, 2.0], device="strict", requires_grad=True)
    scalar = tinytorch.tensor(3.0, requires_grad=True)
    y = Mul.apply(a, scalar)
    assert str(y.device) == "strict"
    y.sum().backward()
    assert scalar.grad.item() == 3.0 and str(scalar.grad.device) == "cpu"
    with pytest.raises(RuntimeError, match="same device"):
        Mul.apply(a, tinytorch.ones(2))
