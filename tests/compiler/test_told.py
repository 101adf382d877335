"""What cannot be compiled is told: with the line of the program, in `explain` and in the log."""

import pytest

import tinytorch
from tinytorch import compile, nn
from tinytorch.compiler import explain
from tinytorch.nn import functional as F

count = 0


def why(function, *args):
    """(the line, counted from the function's first; the reason) of the break of a function."""
    (text,) = explain(compile(function))(*args).breaks
    place, _, reason = text.partition(": ")
    name, _, line = place.partition(":")
    assert name == "test_told.py", text
    return int(line) - function.__code__.co_firstlineno, reason


def backward_inside(x):
    loss = (x * x).sum()
    loss.backward()
    return loss


def branch(x):
    y = x * 2
    if y.sum() > 0:
        return y
    return -y


def number(x):
    return x * x.sum().item()


def to_numpy(x):
    return tinytorch.from_numpy(x.numpy())


def mask(x):
    return x[x > 0]


def view(x):
    return x[0]


def wrong(x):
    y = x * 2
    return y @ tinytorch.ones(7, 2)


@pytest.mark.parametrize(
    "function, line, reason",
    [
        (backward_inside, 2, "backward() is not part of a graph"),
        (branch, 2, "the value of an element is needed while the function is traced, in `if y.s"),
        (number, 1, "the value of an element is needed while the function is traced, in `return "),
        (to_numpy, 1, "numpy() is not part of a graph"),
        (mask, 1, "Nonzero: the shape of its result depends on values, in `return x[x > 0]`"),
        (view, 0, "the function returns a view of a tensor that was made outside"),
    ],
)
def test_breaks_name_the_line(function, line, reason):
    x = tinytorch.ones(3, requires_grad=function is backward_inside)
    found = why(function, x)
    assert found[0] == line and found[1].startswith(reason)


def test_errors_name_the_line():
    f = compile(wrong)
    with pytest.raises(RuntimeError, match="mat1"):
        f(tinytorch.ones(2, 3))
    (text,) = f.compiled.breaks.values()
    line = wrong.__code__.co_firstlineno + 2
    assert text.startswith(f"test_told.py:{line}: RuntimeError: mat1 and mat2")


def test_changed_variables_name_the_line():
    def counts(x):
        global count
        y = x + 1
        count += 1
        return y * count

    f = compile(counts)
    assert [f(tinytorch.ones(1)).item() for _ in range(3)] == [2.0, 4.0, 6.0] and count == 3
    (text,) = f.compiled.breaks.values()
    line = counts.__code__.co_firstlineno + 3
    assert text.startswith(f"test_told.py:{line}: the function changes a variable of the program")

    class Counting(nn.Module):
        calls = 0

        def forward(self, x):
            self.calls += 1
            return F.relu(x) * self.calls

    f = compile(Counting())
    assert [f(tinytorch.ones(1)).item() for _ in range(3)] == [1.0, 2.0, 3.0]
    (text,) = f.compiled.breaks.values()
    line = Counting.forward.__code__.co_firstlineno + 1
    assert text.startswith(f"test_told.py:{line}: the function changes a variable of the program")


def test_a_third_size_is_told():
    f = compile(lambda x: x * 2)
    for size in (1, 2, 12, 13):
        f(tinytorch.ones(size))
    explanation = explain(f)(tinytorch.ones(14))
    assert explanation.graphs == 2 and len(explanation.breaks) == 1
    assert explanation.breaks[0].startswith("test_told.py:")
    assert "its graphs are for other sizes or numbers" in explanation.breaks[0]
    assert sum("other sizes" in line for line in explanation.log) == 1


def test_the_limit_is_told():
    f = compile(lambda x, n: x * n, dynamic=False)
    for n in range(12):
        f(tinytorch.ones(1), n)
    (text,) = explain(f)(tinytorch.ones(1), 13).breaks
    assert text.startswith("test_told.py:") and "traced 8 times" in text
    tinytorch.compiler.reset()
    assert explain(f)(tinytorch.ones(1), 13).breaks == []


def test_unknown_words_in_logs_are_told(monkeypatch, capsys):
    monkeypatch.setenv("TINYTORCH_LOGS", "graphs, recompiles")
    with pytest.warns(UserWarning, match="graphs is unknown; known are graph, code"):
        compile(lambda x: x + 1)(tinytorch.ones(1))
    assert "compiled in" in capsys.readouterr().err


def test_explain_names_modules_by_their_paths():
    net = nn.Sequential(nn.Linear(3, 3), nn.Sequential(nn.Linear(3, 2), nn.ReLU()))
    guards = explain(net)(tinytorch.ones(2, 3)).guards
    assert {"0.in_features == 3", "1.0.out_features == 2", "training == True"} <= {*guards}

    def loss(x):
        return net(x).sum()

    assert "net.1.0.out_features == 2" in explain(loss)(tinytorch.ones(2, 3)).guards

    class Parts(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Sequential(nn.Linear(3, 2), nn.ReLU())

        def forward(self, x):
            return self.head(x * x.sum().item())

    explanation = explain(Parts())(tinytorch.ones(2, 3))
    assert [name for name, _ in explanation.parts] == ["head Sequential"]
    assert "calls: 0" not in str(explanation)
