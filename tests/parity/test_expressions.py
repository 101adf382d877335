"""Single expressions under both libraries: `m` is the library, `x` and others are tensors of it.

What PyTorch answers, tinytorch answers, down to strides, dtypes and the names in what is printed;
what PyTorch refuses, tinytorch refuses with the same type of exception.
"""

import numpy as np
import pytest

import tinytorch

torch = pytest.importorskip("torch", reason="PyTorch is not installed", exc_type=ImportError)

LAYOUT = """
x.t().clone().stride()
x.t().clone().is_contiguous()
x.t().contiguous().stride()
x.t().double().stride()
x[:1].expand(3, 4).clone().view(-1)
x[:1].expand(3, 4).double().view(-1)
x[:, :1].expand(3, 4).double().view(-1)
m.zeros(0, 3).stride()
m.zeros(2, 0, 3).stride()
m.zeros(2, 0, 3).stride(0)
x[0].t() is x[0]
m.broadcast_shapes((2, 1), (3,)).numel()
x.to('cpu', m.float32, False, True) is x
x.to('cpu', m.float32, True) is x
m.cat([x.t(), x.t()]).view(-1)
m.cat([x.t(), x.t()], axis=1).stride()
m.stack([x.t(), x.t()]).stride()
m.stack([x.t(), x.t()], axis=-1).stride()
x.t().softmax(0).stride()
x.t().log_softmax(-1).stride()
x.t().cumsum(0).stride()
x.t().roll(1, 0).stride()
x.t().roll(1).view(-1)
m.tensor(3.0).roll(1)
m.tensor(3.0).softmax(0)
x.t()[[0, 2]].stride()
x.t().index_select(0, m.tensor([0, 2])).stride()
(1,) + x.shape
x.shape * 2
2 * x.shape
"""

NAMES = """
y.view(12)
y.reshape(4, 3)
y.flatten()
y.unsqueeze(0)
y[:1].squeeze()
y.t() @ y
y[0] @ y[0]
y @ y[0]
m.bmm(y[None], y.t()[None])
y[None] @ y.t()
y.cumsum(0)
y.amax(1)
y.amin(0)
y.logsumexp(0)
"""

REFUSED = """
m.tensor(1.0).permute()
x.permute()
x.softmax(None)
x.softmax(1.0)
x.sum(1.0)
x.prod("1")
m.tensor([True]) - m.tensor([True])
1 - m.tensor([True])
True - m.tensor([2])
m.tensor([m.tensor([1.0, 2.0])])
m.tensor([m.tensor([1, 2]), m.tensor([3, 4])])
m.tensor([m.tensor([])])
m.tensor(1.0).view()
x[0, :1].reshape()
m.reshape(x)
True << m.tensor(True)
m.tensor([True]) << m.tensor([True])
m.tensor([True]) >> True
m.bitwise_left_shift(m.tensor(True), True)
m.sub(1.5, m.tensor([True]))
"1" - m.tensor([2])
m.sub([1], m.tensor([2]))
-m.tensor([True])
m.tensor([True]) ** m.tensor([True])
m.remainder(2, 3)
m.pow(2, 3)
m.isclose(x, 2)
int(x)
float(x[:0])
x.item()
x['a']
m.tensor([True, False]).topk(1)
"""

VALUES = """
m.arange(end=3)
x.split(split_size=2)
x.sum(axis=0, keepdims=True)
reversed(x)
m.bernoulli(m.ones(2, 3), 0.0)
m.tensor([7.5, -7.5, 1.0, m.inf, m.nan, 0.0]).fmod(m.tensor([2.0, 2.0, m.inf, 2.0, 1.0, 0.0]))
m.tensor([7.5, -7.5, 1.0, 3.0]) % m.tensor([-2.0, 2.0, m.inf, 0.0])
m.tensor([1e9, -1e9, 123456792.0]) % 3
m.tensor([-4.0, 4.0]).fmod(2)
slope(lambda y: y % 2 + y.fmod(1.5) * y, [-3.5, 0.5, 4.0])
m.zeros(0) % 2
m.bernoulli(m.zeros(2, 3).long(), p=1.0)
reversed(m.tensor(1))
m.tensor([m.tensor([1.0])])
m.tensor([2, m.tensor([[1.5]])])
m.tensor([[m.tensor([1])], [True]])
m.tensor([np.array([1.0]), np.array([2.0])])
m.tensor([True, False]) << 1
m.tensor([2], dtype=m.int8) << m.tensor([True])
x[0, :1].view(())
slope(lambda y: y.bfloat16().logsumexp(0), [0.5, 1.5])
slope(lambda y: y.bfloat16().var(0, correction=1.3), [0.5, 1.5, 4.0])
slope(lambda y: y.half().std(), [0.5, 1.5, 4.0])
slope(lambda y: y.bfloat16().norm(0.5), [0.5, 1.5])
y_dtypes(lambda y: [y.logsumexp(0), y.var(correction=0.5), y.std(), y.norm(0.5), y.norm()])
m.tensor([-4.0, -0.0, 4.0, -m.inf]) ** -0.5
m.tensor([2.0, 0.5]) ** -1
m.tensor([2, 3]) ** m.tensor([True, False])
slope(lambda y: y.clamp(0, 1), [m.nan, -1.0, 0.0, 0.5, 1.0, 2.0])
slope(lambda y: y.clamp(min=0), [m.nan, -1.0, 0.0, 1.0])
slope(lambda y: m.tensor(-1.0).clamp(y, m.tensor(0.0)), [m.nan, -2.0, -0.5, 0.0, 1.0])
slope(lambda y: m.tensor(-1.0).clamp(m.tensor(0.0), y), [m.nan, -2.0, -0.5, 0.0, 1.0])
slope(lambda y: y.expand(1000, 2).to(m.float16).sum() + y.sum(), [0.1, 0.2])
slope(lambda y: (y.bfloat16() + m.zeros(1000, 2).bfloat16()), [0.1, 0.2])
"""

# Dimensions, sizes and indices that are integers of NumPy's.
NUMPY_INTEGERS = """
x.sum(i), x.mean(i), x.amax(i), x.prod(i), x.cumsum(i), x.logsumexp(i), x.norm(2, i)
x.std(i), x.var((i, np.int64(0))), x.softmax(i), x.log_softmax(i), x.all(i), x.any(i)
x.max(i), x.argmin(i), x.sort(i), x.topk(np.int64(2), i), x.count_nonzero(i), x.size(i)
x.reshape(np.int64(12)), x.view(np.int64(-1)), x.reshape(np.int64(6), 2), x.reshape((i, 12))
x.transpose(i, np.int32(0)).stride(), x.permute(i, np.int64(0)).stride(), x.unsqueeze(i).shape
x.chunk(np.int64(2), i), x.split([i, np.int64(3)], i), x.unbind(i), m.cat([x, x], i).shape
x.select(i, np.int64(2)), x.narrow(i, i, np.int64(2)), x[i], x[:i], x[0, i], x.flip(i), x.roll(i)
x.repeat(i, np.int64(2)).shape, x[:1].expand(np.int64(2), 4), x.diagonal(i), x.tril(i)
x.unfold(i, np.int64(2), i).stride(), m.zeros(np.int64(2), i), m.full((i,), 2.0), m.eye(i)
m.arange(np.int64(3)), m.linspace(0, 1, np.int64(3)), x.flatten(np.int64(0), i)
x.gather(i, m.zeros(3, 1).long()), x.index_select(i, m.tensor([2])), x.repeat_interleave(i, i)
"""
# Gradients in corners: too few numbers for a variance, 0 to a power below 0, a place written twice.
CORNERS = """
slope(lambda y: y.var(0, correction=0), [3.0])
slope(lambda y: y.var(0), [3.0])
slope(lambda y: y.var(0, correction=2), [3.0])
slope(lambda y: y.var(0, correction=3), [3.0, 4.0])
slope(lambda y: y.std(0, correction=3), [3.0, 4.0])
slope(lambda y: y.std(correction=0), [3.0])
slope(lambda y: 0**y, [-1.0, -2.5, 0.0, 2.0])
slope(lambda y: 0.0**y, [-1.0, 0.0, 2.0])
slope(lambda y: m.zeros(4) ** y, [-1.0, -2.5, 0.0, 2.0])
slope(lambda y: (-2.0) ** y, [1.0, 2.0])
slope(lambda y: x[0, :3].scatter(0, m.tensor([1, 1, 0]), y) * m.arange(3), [1.0, 2.0, 3.0])
slope(lambda y: y.scatter(0, m.tensor([1, 1, 0]), x[0, :3]) * m.arange(1, 4), [1.0, 2.0, 3.0])
slope(lambda y: y.scatter_add(0, m.tensor([1, 1, 0]), y) * m.arange(1, 4), [1.0, 2.0, 3.0])
overwritten(lambda y: y.sign() * 3)
overwritten(lambda y: 3 * y.floor() + y.ceil() / 2 + y.trunc() + y.round())
overwritten(lambda y: y.frac())
"""


def answer(library, expression):
    """What an expression gives, as text, or the type of its error."""

    def slope(function, values):
        x = library.tensor(values, requires_grad=True)
        return library.autograd.grad(function(x).sum(), x)[0]

    def y_dtypes(function):
        """The types of the gradients of a bfloat16 tensor."""
        y = library.tensor([0.5, 1.5]).bfloat16().requires_grad_()
        return [library.autograd.grad(z, y)[0].dtype for z in function(y)]

    def overwritten(function):
        """The gradient of function(y), where y is written in place before backward."""
        x = library.tensor([1.5, -2.5, 0.5], requires_grad=True)
        y = x * 1
        z = function(y).sum()
        y.zero_()
        return library.autograd.grad(z, x)[0]

    names = {
        "m": library,
        "np": np,
        "i": np.int64(1),
        "overwritten": overwritten,
        "slope": slope,
        "y_dtypes": y_dtypes,
        "x": library.arange(12.0).reshape(3, 4),
    }
    try:
        text = repr(eval(expression, names)).replace("tinytorch", "torch")
        return " ".join(text.split())  # the longer name may break a line earlier
    except Exception as error:
        return type(error)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "expression",
    (LAYOUT + VALUES + NUMPY_INTEGERS + CORNERS).replace("\n\n", "\n").strip().splitlines(),
)
def test_answers(expression):
    expected = answer(torch, expression)
    assert isinstance(expected, str), expected
    assert answer(tinytorch, expression) == expected


@pytest.mark.parametrize("expression", NAMES.strip().splitlines())
def test_names_in_the_graph(expression):
    name = f"({expression}).grad_fn.name()"
    assert answer(tinytorch, name) == answer(torch, name)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("expression", REFUSED.strip().splitlines())
def test_refused(expression):
    expected = answer(torch, expression)
    assert isinstance(expected, type), expected
    assert answer(tinytorch, expression) is expected
