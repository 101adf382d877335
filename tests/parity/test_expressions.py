"""Single expressions under both libraries: `m` is the library, `x` and others are tensors of it.

What PyTorch answers, tinytorch answers, down to strides, dtypes and the names in what is printed;
what PyTorch refuses, tinytorch refuses with the same type of exception.
"""

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
"""

REFUSED = """
m.tensor([True]) - m.tensor([True])
-m.tensor([True])
m.tensor([True]) << m.tensor([True])
m.tensor([True]) ** m.tensor([True])
m.tensor([1.0]) << 1
m.remainder(2, 3)
m.pow(2, 3)
m.isclose(x, 2)
"""

VALUES = """
2 << m.tensor([1, 2])
-2 >> m.tensor([1, 2])
m.tensor([True]) << 2
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


def answer(library, expression):
    """What an expression gives, as text, or the type of its error."""

    def slope(function, values):
        x = library.tensor(values, requires_grad=True)
        return library.autograd.grad(function(x).sum(), x)[0]

    names = {"m": library, "slope": slope, "x": library.arange(12.0).reshape(3, 4)}
    try:
        text = repr(eval(expression, names)).replace("tinytorch", "torch")
        return " ".join(text.split())  # the longer name may break a line earlier
    except Exception as error:
        return type(error)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("expression", (LAYOUT.strip() + VALUES.rstrip()).splitlines())
def test_answers(expression):
    expected = answer(torch, expression)
    assert isinstance(expected, str), expected
    assert answer(tinytorch, expression) == expected


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("expression", REFUSED.strip().splitlines())
def test_refused(expression):
    expected = answer(torch, expression)
    assert isinstance(expected, type), expected
    assert answer(tinytorch, expression) is expected
