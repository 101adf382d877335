"""Functions that users write: the examples of PyTorch's documentation, and PyTorch's rules."""

import gc
import weakref

import numpy as np
import pytest

import tinytorch
from tinytorch.autograd import Function, grad, gradcheck, gradgradcheck, once_differentiable


def leaf(data, device="cpu"):
    return tinytorch.tensor(data, dtype=tinytorch.float64, device=device, requires_grad=True)


def total(x):
    return (x * 1.0).sum()


# The functions of PyTorch's documentation.


class Exp(Function):
    @staticmethod
    def forward(ctx, i):
        result = i.exp()
        ctx.save_for_backward(result)
        return result

    @staticmethod
    def backward(ctx, grad_output):
        (result,) = ctx.saved_tensors
        return grad_output * result


class MulConstant(Function):
    @staticmethod
    def forward(tensor, constant):
        return tensor * constant

    @staticmethod
    def setup_context(ctx, inputs, output):
        _, constant = inputs
        ctx.set_materialize_grads(False)
        ctx.constant = constant

    @staticmethod
    def backward(ctx, grad_output):
        if grad_output is None:
            return None, None
        return grad_output * ctx.constant, None


class LinearFunction(Function):
    @staticmethod
    def forward(input, weight, bias):
        output = input.mm(weight.t())
        if bias is not None:
            output += bias.unsqueeze(0).expand_as(output)
        return output

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        input, weight, bias = ctx.saved_tensors
        grad_input = grad_weight = grad_bias = None
        if ctx.needs_input_grad[0]:
            grad_input = grad_output.mm(weight)
        if ctx.needs_input_grad[1]:
            grad_weight = grad_output.t().mm(input)
        if bias is not None and ctx.needs_input_grad[2]:
            grad_bias = grad_output.sum(0)
        return grad_input, grad_weight, grad_bias


class Sinh(Function):
    """Saves intermediate results as further outputs, so that it can be differentiated twice."""

    @staticmethod
    def forward(ctx, x):
        up, down = x.exp(), (-x).exp()
        ctx.save_for_backward(up, down)
        return (up - down) / 2, up, down

    @staticmethod
    def backward(ctx, grad_output, grad_up, grad_down):
        up, down = ctx.saved_tensors
        return grad_output * (up + down) / 2 + grad_up * up - grad_down * down


class AddOneInPlace(Function):
    @staticmethod
    def forward(ctx, x):
        x += 1.0
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output


class Sort(Function):
    @staticmethod
    def forward(ctx, x):
        values, index = x.sort()
        ctx.mark_non_differentiable(index)
        ctx.save_for_backward(values, index)
        return values, index

    @staticmethod
    def backward(ctx, grad_values, grad_index):
        _, index = ctx.saved_tensors
        return (grad_values * 0.0).index_add(0, index, grad_values)


def test_exp(device):
    x = leaf([0.5, 1.0], device)
    assert gradcheck(Exp.apply, x) and gradgradcheck(Exp.apply, x)
    assert Exp.apply(x).grad_fn.name() == "ExpBackward"


def test_mul_constant(device):
    x = leaf([0.5, 1.0], device)
    assert gradcheck(MulConstant.apply, (x, 3.0)) and gradgradcheck(MulConstant.apply, (x, 3.0))


def test_linear_function(device):
    rng = np.random.default_rng(0)
    x, w, b = (leaf(rng.standard_normal(shape), device) for shape in ((4, 3), (2, 3), (2,)))
    for inputs in ((x, w, b), (x, w, None), (x.detach(), w, b), (x, w.detach(), b.detach())):
        assert gradcheck(LinearFunction.apply, inputs)
        assert gradgradcheck(LinearFunction.apply, inputs)


def test_intermediate_results_as_outputs(device):
    x = leaf([0.5, 1.0], device)
    assert gradcheck(lambda x: Sinh.apply(x)[0], x)
    assert gradgradcheck(lambda x: Sinh.apply(x)[0], x)


# Contexts.


def test_forward_is_not_recorded_and_backward_only_with_create_graph(device):
    modes = []

    class Watch(Function):
        @staticmethod
        def forward(ctx, x):
            modes.append(tinytorch.is_grad_enabled())
            return x * 2.0

        @staticmethod
        def backward(ctx, g):
            modes.append(tinytorch.is_grad_enabled())
            return g * 2.0

    x = leaf(1.0, device)
    Watch.apply(x).backward()
    grad(Watch.apply(x), x, create_graph=True)
    assert modes == [False, False, False, True]


def test_saved_inputs_are_the_very_tensors(device):
    seen = []

    class Product(Function):
        @staticmethod
        def forward(ctx, x, y):
            ctx.save_for_backward(x, None, y)
            return x * y

        @staticmethod
        def backward(ctx, g):
            x, nothing, y = ctx.saved_tensors
            seen.append((x, nothing, y))
            return g * y, g * x

    x, y = leaf(3.0, device), leaf(4.0, device)
    z = Product.apply(x, y)
    z.backward()
    assert seen[0][0] is x and seen[0][1] is None and seen[0][2] is y
    assert (x.grad.item(), y.grad.item()) == (4.0, 3.0)
    with pytest.raises(RuntimeError, match="second time"):
        z.backward()


def test_a_saved_output_makes_no_cycle():
    gc.collect()
    gc.disable()
    try:
        y = Exp.apply(leaf([1.0]))
        watch = weakref.ref(y.grad_fn)
        del y
        assert watch() is None
    finally:
        gc.enable()


def test_only_tensors_are_saved():
    class Number(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(3)

    with pytest.raises(TypeError, match="can only save variables.*int"):
        Number.apply(leaf(1.0))


def test_a_saved_tensor_that_was_changed(device):
    x = leaf([1.0], device) * 1.0
    y = x.clone()
    z = LinearFunction.apply(x.reshape(1, 1), y.reshape(1, 1), None)
    y += 1.0
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.backward()


# Outputs.


def test_outputs_are_tensors_of_their_own(device):
    class First(Function):
        @staticmethod
        def forward(ctx, x, y):
            return x

        @staticmethod
        def backward(ctx, g):
            return g, None

    x, y = leaf([1.0], device), leaf([2.0], device)
    out = First.apply(x, y)
    assert out is not x and out.requires_grad and x.is_leaf
    out.backward()
    assert x.grad.tolist() == [1.0] and y.grad is None


def test_without_gradients_nothing_is_recorded(device):
    x = tinytorch.tensor([1.0], device=device)
    assert not MulConstant.apply(x, 2.0).requires_grad
    with tinytorch.no_grad():
        assert not MulConstant.apply(leaf([1.0], device), 2.0).requires_grad


def test_non_differentiable_and_integer_outputs(device):
    x = leaf([3.0, 1.0, 2.0], device)
    values, index = Sort.apply(x)
    assert values.requires_grad and not index.requires_grad
    assert index.tolist() == [1, 2, 0]
    values.backward(tinytorch.tensor([1.0, 10.0, 100.0], dtype=tinytorch.float64, device=device))
    assert x.grad.tolist() == [100.0, 1.0, 10.0]


@pytest.mark.parametrize("materialize, expected", [(True, [0.0]), (False, None)])
def test_the_gradient_of_an_unused_output(materialize, expected, device):
    seen = []

    class Two(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.set_materialize_grads(materialize)
            return x * 1.0, x * 2.0

        @staticmethod
        def backward(ctx, first, second):
            seen.append(None if second is None else second.tolist())
            return first

    x = leaf([3.0], device)
    Two.apply(x)[0].backward()
    assert seen == [expected] and x.grad.tolist() == [1.0]


def test_outputs_that_are_no_tensors():
    class Named(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2.0, "text"

        @staticmethod
        def backward(ctx, g, nothing):
            assert nothing is None
            return g * 2.0

    x = leaf([3.0])
    y, name = Named.apply(x)
    y.backward()
    assert name == "text" and x.grad.tolist() == [2.0]


def test_forward_gets_its_arguments_as_they_are(device):
    """As in PyTorch. It is why apply is not Function.apply, which gives arrays to forward."""

    class Looks(Function):
        @staticmethod
        def forward(ctx, *args):
            seen.extend([*args, tinytorch.is_grad_enabled()])
            if isinstance(args[0], str):
                raise ValueError(args[0])
            return args[0] * 2.0

        @staticmethod
        def backward(ctx, *grads):
            return grads * 2

    seen, x, other = [], leaf([3.0]), tinytorch.zeros(1, device=device)
    assert Looks.apply(x, other).requires_grad  # of two devices, too
    assert seen[0] is x and seen[0].requires_grad and seen[1] is other and not seen[2]
    assert Looks.apply(3.0) == 6.0  # without a tensor
    words = "operands could not be broadcast together with shapes (2,) (3,) "
    with pytest.raises(ValueError, match="operands could not be broadcast"):  # not translated
        Looks.apply(words)


def test_a_view_from_forward_cannot_be_written(device):
    class Column(Function):
        @staticmethod
        def forward(ctx, x):
            return x.reshape(2, 1)

        @staticmethod
        def backward(ctx, g):
            return g.reshape(2)

    x = leaf([1.0, 2.0], device)
    base = x * 1.0
    y = Column.apply(base)
    total(y).backward()
    assert x.grad.tolist() == [1.0, 1.0]
    with pytest.raises(RuntimeError, match="is a view and is being modified inplace"):
        y += 1.0
    base += 1.0
    with pytest.raises(RuntimeError, match="base of a view"):
        total(y)


# mark_dirty.


def test_mark_dirty(device):
    x = leaf([1.0, 2.0], device)
    y = x * 3.0
    z = AddOneInPlace.apply(y)
    assert z is y and y.tolist() == [4.0, 7.0] and y._version > 0
    total(y).backward()
    assert x.grad.tolist() == [3.0, 3.0]


def test_what_is_saved_is_as_forward_leaves_it(device):
    class InPlaceExp(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            x.exp_()
            ctx.mark_dirty(x)  # a write after saving, and before the call ends: no error
            return x

        @staticmethod
        def backward(ctx, g):
            (y,) = ctx.saved_tensors
            return g * y

    x = leaf([0.0, 1.0], device)
    InPlaceExp.apply(x * 1.0).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(force=True), [1.0, np.e], rtol=1e-6)
    y = InPlaceExp.apply(x * 1.0)
    y.detach().add_(1.0)  # a write after the call: it is noticed
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_mark_dirty_refuses_what_cannot_be_right(device):
    with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
        AddOneInPlace.apply(leaf([1.0], device))
    y = leaf([1.0], device) * 1.0
    square = y * y
    AddOneInPlace.apply(y)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        square.backward()
    with pytest.raises(RuntimeError, match="view"):
        AddOneInPlace.apply((leaf([1.0, 2.0], device) * 1.0)[0])


def test_what_is_dirty_has_to_be_returned():
    class Forgets(Function):
        @staticmethod
        def forward(ctx, x):
            x += 1.0
            ctx.mark_dirty(x)
            return x * 2.0

    with pytest.raises(RuntimeError, match="marked as dirty"):
        Forgets.apply(leaf([1.0]) * 1.0)


# What backward returns.


def product_with(backward_rule):
    class Product(Function):
        @staticmethod
        def forward(ctx, x, y):
            return x * y

        backward = staticmethod(backward_rule)

    x, y = leaf([3.0, 5.0]), leaf([4.0, 6.0])
    Product.apply(x, y).backward(leaf([1.0, 2.0]).detach())
    return [None if t.grad is None else t.grad.tolist() for t in (x, y)]


def test_the_number_of_gradients():
    assert product_with(lambda ctx, g: (g, None)) == [[1.0, 2.0], None]
    assert product_with(lambda ctx, g: (g, g, None, None)) == [[1.0, 2.0], [1.0, 2.0]]
    for wrong in (lambda ctx, g: g, lambda ctx, g: (g, g, g)):
        with pytest.raises(RuntimeError, match="incorrect number of gradients .expected 2, got"):
            product_with(wrong)


def test_what_is_no_gradient_is_refused():
    with pytest.raises(RuntimeError, match="returned a float as gradient 1"):
        product_with(lambda ctx, g: (g, 3.0))
    with pytest.raises(RuntimeError, match=r"invalid gradient at index 0 - got \[1\].*\[2\]"):
        product_with(lambda ctx, g: (g[:1], g))


def test_gradients_are_brought_to_shape_and_type_of_the_input():
    tall = tinytorch.tensor([[1.0, 2.0], [3.0, 4.0]])  # float32, and one dimension more
    assert product_with(lambda ctx, g: (g, tall)) == [[1.0, 2.0], [4.0, 6.0]]


# once_differentiable.


def test_once_differentiable(device):
    class Square(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        @once_differentiable
        def backward(ctx, g):
            assert not tinytorch.is_grad_enabled()
            (x,) = ctx.saved_tensors
            return 2.0 * x * g

    x = leaf([3.0], device)
    Square.apply(x).backward()
    assert x.grad.tolist() == [6.0] and not x.grad.requires_grad
    (g,) = grad(Square.apply(x), x, create_graph=True)
    assert g.tolist() == [6.0]
    with pytest.raises(RuntimeError, match="differentiate twice.*once_differentiable"):
        g.backward()


def test_custom_functions_meet_the_others(device):
    x = leaf([0.5, 1.0], device)
    assert gradcheck(lambda x: Exp.apply(x * x) / MulConstant.apply(Exp.apply(x), 2.0), x)
    assert gradgradcheck(lambda x: Exp.apply(x * x) / MulConstant.apply(x, 2.0), x)


def test_the_module_function_holds_what_pytorch_has_there(device):
    from tinytorch.autograd.function import Function as User
    from tinytorch.autograd.function import FunctionCtx, once_differentiable

    assert User is Function and tinytorch.autograd.function.once_differentiable is (
        once_differentiable
    )

    class Double(User):
        @staticmethod
        def forward(ctx: FunctionCtx, x):
            assert isinstance(ctx, FunctionCtx)
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 2

    x = leaf([3.0], device)
    Double.apply(x).backward()
    assert x.grad.tolist() == [2.0]
