"""The passes of the compiler: the same results from fewer nodes."""

import numpy as np
import pytest

import tinytorch as tt
from tests.compiler.compare import run_checked
from tinytorch.compiler.capture import capture
from tinytorch.compiler.simplify import simplify

X = tt.tensor([[0.0, -0.0, 1.5], [-2.0, np.inf, np.nan]])


# A function of x, and the operations that are left of it.
RULES = {
    "x * 1": (lambda x: (x * 1).exp(), "exp"),
    "1 * x / 1": (lambda x: (1 * x / 1).exp(), "exp"),
    "x - 0": (lambda x: (x - 0).exp(), "exp"),
    "x + 0, for -0.0 is no 0.0": (lambda x: (x + 0).exp(), "add exp"),
    "exp(x) + 0": (lambda x: x.exp() + 0, "exp"),
    "x * x + 0": (lambda x: x * x + 0, "multiply"),
    "-(-x)": (lambda x: x.neg().neg().exp(), "exp"),
    "-x + y": (lambda x: -x + x.exp(), "exp subtract"),
    "x - -y": (lambda x: x - -x.exp(), "exp add"),
    "-x * -y": (lambda x: -x * -x.exp(), "exp multiply"),
    "x / 4": (lambda x: x / 4, "multiply"),
    "x / 3": (lambda x: x / 3, "divide"),
    "transposed twice": (lambda x: x.T.T.exp(), "exp"),
    "two reshapes": (lambda x: x.reshape(6).reshape(3, 2).exp(), "reshape exp"),
    "there and back": (lambda x: x.reshape(6).reshape(2, 3).exp(), "exp"),
    "sizes of 1": (lambda x: x[None].transpose(0, 1).squeeze().exp(), "exp"),
    "a copy": (lambda x: x.clone().exp(), "exp"),
    "a wider type": (lambda x: x.double().float().exp(), "exp"),
    "a narrower type": (lambda x: x.half().float().exp(), "astype astype exp"),
    "ones": (lambda x: (x * tt.ones(2, 3)).exp(), "exp"),
    "a number for an array": (lambda x: x + tt.full((2, 3), 2.0), "add"),
    "constants": (lambda x: x * (tt.arange(3) + 1).float(), "constant multiply"),
    "broadcast": (lambda x: x.sum(0).expand(2, 3) * x, "sum multiply"),
    "the whole is written": (lambda x: tt.zeros(2, 3).copy_(x).exp(), "exp"),
    "twice the same": (lambda x: x.exp() * x.exp(), "exp multiply"),
    "x * y and y * x": (lambda x: x.exp() * x + x * x.exp(), "exp multiply add"),
    "what is not needed": (lambda x: (x.log(), x.exp())[1], "exp"),
    "two results": (lambda x: (x.exp(), x.exp()), "exp copy"),
    "a result that is the input": (lambda x: x * 1, "copy"),
    "copies as results": (lambda x: (x.clone(), x.clone()), "copy copy"),
    "a constant as a result": (lambda x: tt.ones(2, 3) + 0, "constant copy"),
    "random numbers": (lambda x: tt.rand(3) + tt.rand(3), "random random add"),
}


@pytest.mark.parametrize("name", RULES)
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
@pytest.mark.filterwarnings("ignore:divide by zero:RuntimeWarning")
def test_rules(name):
    function, expected = RULES[name]
    graph = capture(function, (X,), {}, [X]).graph
    simple = simplify(graph)
    assert " ".join(node.op for node in simple.nodes) == expected
    arrays = [X.numpy()] if graph.inputs else []
    tt.manual_seed(0)
    before = run_checked(graph, arrays)
    tt.manual_seed(0)
    for x, y in zip(before, run_checked(simple, arrays), strict=True):
        np.testing.assert_array_equal(x, y)
        numbers = ~np.isnan(x)
        np.testing.assert_array_equal(np.signbit(x)[numbers], np.signbit(y)[numbers])
        assert not np.may_share_memory(y, X.numpy())


def test_a_sum_of_equal_numbers_is_a_product():
    graph = simplify(capture(lambda x: x.sum(0).expand(40, 3).sum(0), (X,), {}, [X]).graph)
    assert [node.op for node in graph.nodes if node.op in ("sum", "multiply")] == [
        "sum",
        "multiply",
    ]
    x = np.array([[1.0, 2.0, 3.0], [0.5, 0.25, 0.0]], "f")
    np.testing.assert_array_equal(graph.run(np, [x])[0], x.sum(0) * 40)
