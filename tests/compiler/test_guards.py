"""A change of what a function sees besides its arguments is noticed, or it runs in eager."""

import array
import collections
import cProfile
import functools
import random
import sys
import time
import types

import numpy as np
import pytest

import tinytorch
from tinytorch import nn
from tinytorch.compiler import compile
from tinytorch.compiler.guards import LARGE, Watch

settings = types.ModuleType("settings")
settings.scale = 1.0


class Slow:
    rate = 1.0


class Base:
    factor = 1.0

    def __mul__(self, x):
        return x * Slow.rate


class Owner(Base):
    @classmethod
    def scaled(cls, x):
        return x * cls.factor


def check_a_change(function, change):
    """Before and after `change`, twice each, the compiled function gives what eager gives."""
    x, compiled = tinytorch.ones(3), compile(function)
    for _ in range(2):
        for _ in range(2):
            assert compiled(x).tolist() == function(x).tolist()
        change()
    return compiled.compiled


CONTENTS = [
    (np.ones(3, "f"), lambda a: a.__setitem__(0, 5.0), lambda a: float(a[0])),
    (np.array([np.nan, 1.0]), lambda a: a.__setitem__(1, 2.0), lambda a: float(a[1])),
    ({1.0}, lambda s: s.add(2.0), sum),
    (collections.deque([1.0]), lambda d: d.append(2.0), sum),
    (bytearray(b"a"), lambda b: b.append(3), sum),
    (array.array("d", [1.0]), lambda a: a.__setitem__(0, 4.0), sum),
]


@pytest.mark.parametrize(("value", "change", "number"), CONTENTS, ids=lambda x: type(x).__name__)
def test_contents_that_change(value, change, number):
    compiled = check_a_change(lambda x: x * number(value), lambda: change(value))
    assert compiled.count == 2 and not compiled.breaks


def test_an_array_among_the_arguments_may_change():
    compiled, table = compile(lambda x, table: x * float(table.sum())), np.ones(2)
    assert compiled(tinytorch.ones(1), table).item() == 2
    table[0] = 3
    assert compiled(tinytorch.ones(1), table).item() == 4


def test_a_large_array_runs_in_eager():
    table = np.zeros(LARGE + 1, np.uint8)
    compiled = check_a_change(lambda x: x * int(table[0]), lambda: table.__setitem__(0, 2))
    assert "1,048,577 bytes" in compiled.log[0] and compiled.count == 0


def test_an_array_of_objects_runs_in_eager():
    table = np.array([1.0, [2.0]], dtype=object)
    compiled = check_a_change(lambda x: x * table[1][0], lambda: table[1].__setitem__(0, 5.0))
    assert compiled.count == 0


def test_attributes_of_modules_and_classes():
    def set_scale():
        settings.scale += 1

    def set_rate():
        Slow.rate += 1

    def set_factor():
        Base.factor += 1

    owner = Owner()
    for function, change in (
        (lambda x: x * settings.scale, set_scale),
        (functools.partial(lambda n, x: x * n * settings.scale, 2.0), set_scale),
        (lambda x: owner * x, set_rate),
        (lambda x: owner.scaled(x), set_factor),
        (lambda x: Owner.scaled(x), set_factor),
    ):
        compiled = check_a_change(function, change)
        assert compiled.count == 2 and not compiled.breaks


def test_an_attribute_is_not_the_global_of_the_same_name(monkeypatch):
    monkeypatch.setitem(globals(), "training", iter([1]))
    model = nn.Dropout(0.0)
    compiled = compile(lambda x: model(x) + model.training)
    compiled(tinytorch.ones(1))
    assert compiled.compiled.count == 1


def test_a_function_without_a_module_is_watched():
    namespace = {}
    exec("n = 1.0\ndef f(x): return x * n", namespace)
    namespace["f"].__module__ = None
    assert [key for _, key, _ in Watch(namespace["f"]).entries] == ["n"]


@pytest.mark.parametrize(
    "make",
    [
        lambda: np.random.default_rng(0),
        lambda: np.random.RandomState(0),
        lambda: random.Random(0),
        lambda: np.random.Generator(np.random.MT19937(0)),
    ],
)
def test_other_random_numbers_are_those_of_eager(make):
    def draws(x):
        return x * stream.random() if hasattr(stream, "random") else x * stream.rand()

    stream = make()
    expected = [draws(tinytorch.ones(1)).item() for _ in range(3)]
    stream = make()
    compiled = compile(draws)
    assert [compiled(tinytorch.ones(1)).item() for _ in range(3)] == expected
    assert compiled.compiled.count == 0


def test_the_global_streams_are_those_of_eager():
    def draws(x):
        return x * random.random() * np.random.rand()  # noqa: NPY002

    found = []
    for function in (draws, compile(draws)):
        random.seed(0)
        np.random.seed(0)  # noqa: NPY002
        found.append([function(tinytorch.ones(1)).item() for _ in range(3)])
    assert found[0] == found[1]


def test_iterators_prints_and_clocks_run_in_eager(capsys):
    numbers = iter([1.0, 2.0, 3.0])
    taken = compile(lambda x: x * next(numbers))
    assert [taken(tinytorch.ones(1)).item() for _ in range(3)] == [1, 2, 3]

    def prints(x):
        print("hello")
        return x + 1

    compiled = compile(prints)
    for _ in range(3):
        compiled(tinytorch.ones(1))
    assert capsys.readouterr().out == "hello\n" * 3
    for read in (time.perf_counter, time.monotonic, time.process_time):
        clock = compile(lambda x, read=read: x * read())
        clock(tinytorch.ones(1))
        assert clock.compiled.count == 0
        assert f"{read.__name__}() is not part of a graph" in clock.compiled.log[0]
    assert sys.getprofile() is None


def test_a_graph_stays_in_use_after_the_limit():
    model = types.SimpleNamespace(n=0)
    compiled = compile(lambda x: x + model.n)
    for n in [*range(12), 0]:
        model.n = n
        assert compiled(tinytorch.ones(1)).item() == 1 + n
    assert compiled.compiled.count == 8 and not compiled.compiled.breaks
    assert compiled.compiled.log[-1].endswith("traced 8 times: other kinds of calls run in eager")


def test_checks_that_fail_now_and_then_do_not_end_a_graph():
    loss, x = compile(nn.functional.cross_entropy), tinytorch.randn(2, 3)
    target, ignoring = tinytorch.tensor([0, 1]), tinytorch.tensor([0, -100])
    for number in range(30):
        loss(x, ignoring if number % 2 else target)
    assert not loss.compiled.breaks


def test_a_backend_gets_none_for_an_input_that_is_no_array():
    examples = []

    def backend(graph, inputs):
        examples.append(inputs)
        return functools.partial(graph.run, np)

    model = nn.Embedding(3, 2)
    compile(model, backend=backend)(tinytorch.tensor([1, 2])).sum().backward()
    assert sorted(sum(x is None for x in inputs) for inputs in examples) == [0, 1]
    assert model.weight.grad is not None


def test_a_profiler_goes_on():
    compiled, profiler = compile(lambda x: x * 2), cProfile.Profile()
    with profiler:
        assert compiled(tinytorch.ones(1)).item() == 2
    assert not compiled.compiled.breaks and profiler.getstats()


def test_a_failed_trace_leaves_nothing_behind():
    """Side effects happen once for each call: before a break, after it, and without one."""

    class Counter:
        def __init__(self):
            self.calls, self.seen, self.names, self.queue = 0, [], {"old": 0}, [1, 2, 3]
            self.table, self.done = np.zeros(2), {0}
            self.deque, self.bytes = collections.deque([1]), bytearray(b"a")

        def count(self, x):
            self.calls += 1
            self.seen.append(self.calls)
            self.names[str(self.calls)] = self.names.pop("old", None)
            self.queue.pop(0)
            self.table[0] += 1
            self.done.add(self.calls)
            self.deque.append(2)
            self.bytes.append(98)

        def broken(self, x):
            self.count(x)
            return x if x.sum() > 0 else -x

        def whole(self, x):
            self.count(x)
            return x + 1

        def wrong(self, x):
            self.count(x)
            return x @ tinytorch.ones(7, 7)

    def state(counter):
        values = dict(vars(counter))
        values["table"] = values["table"].tolist()
        return values

    for name in ("broken", "whole", "wrong"):
        eager, compiled = Counter(), Counter()
        function = compile(getattr(compiled, name))
        for _ in range(2):
            for call in (getattr(eager, name), function):
                try:
                    call(tinytorch.ones(2))
                except RuntimeError:
                    assert name == "wrong"
            assert state(eager) == state(compiled)


class Counter(nn.Module):
    total = 0

    def forward(self, x):
        Counter.total += 1
        Counter.last = x.shape[0]
        return x if x.sum() > 0 else -x


def test_attributes_of_a_class_are_put_back():
    compiled = compile(Counter())
    for calls in (1, 2):
        compiled(tinytorch.ones(3))
        assert Counter.total == calls and Counter.last == 3
    del Counter.last
    Counter.total = 0


STORED = 0


def test_what_is_only_set_is_an_effect():
    class Options:
        last = 0

    def f(x):
        global STORED
        STORED = Options.last = x.shape[0]
        return x * 2

    global STORED
    compiled = compile(f)
    for _ in range(2):
        STORED = Options.last = 0
        compiled(tinytorch.ones(3))
        assert STORED == Options.last == 3


def test_a_compiled_function_inside_another_one_is_no_reason_to_compile_anew():
    inner = compile(lambda x: x + 1)
    outer, x = compile(lambda x: inner(x) * 2, fullgraph=True), tinytorch.ones(2)
    for size in (2, 3):
        inner(tinytorch.ones(size))
        assert outer(x).tolist() == [4.0, 4.0]
    assert outer.compiled.count == 1


def test_large_arrays():
    table = np.arange(300_000.0)
    view = table[:]
    view.flags.writeable = False  # the memory can still change

    def f(x, values):
        return x * float(values[1])

    for values in (table, view):
        compiled = compile(functools.partial(f, values=values))
        assert compiled(tinytorch.ones(1)).item() == table[1]
        assert "make it a tensor, or read-only" in compiled.compiled.log[0]
    table[1] = 5
    table.flags.writeable = False
    for values in (table, table[:], np.frombuffer(table.tobytes())):
        compiled = compile(functools.partial(f, values=values), fullgraph=True)
        assert compiled(tinytorch.ones(1)).item() == 5 and compiled.compiled.count == 1


def test_a_large_array_of_a_network_leaves_its_parts_compiled():
    model = nn.Sequential(nn.Sequential(nn.Linear(2, 2), nn.ReLU()), nn.ReLU())
    model.data = np.zeros(300_000)
    compiled = compile(model)
    compiled(tinytorch.ones(1, 2))
    assert [part.count for part in compiled.compiled.parts.values()] == [1]


def test_a_function_that_fills_a_cache_runs_in_eager_once_and_is_then_compiled():
    kept = {}

    def place(x):
        if len(x) not in kept:
            kept[len(x)] = tinytorch.arange(len(x)) * 2.0  # a tensor made inside the function
        return x * kept[len(x)]

    compiled = compile(place, fullgraph=True)
    for n in (3, 4):
        x = tinytorch.ones(n, requires_grad=True)
        for _ in range(3):
            y = compiled(x)
            assert y.tolist() == [2.0 * i for i in range(n)]
            (grad,) = tinytorch.autograd.grad(y.sum(), x)
            assert grad.tolist() == kept[n].tolist()
    assert compiled.compiled.count == 2 and not compiled.compiled.breaks
    kept[3] = tinytorch.zeros(3)  # another tensor in the cache: the guards see it
    assert compiled(tinytorch.ones(3)).tolist() == [0.0] * 3


def test_what_changes_at_each_call_is_counted_once_for_each():
    calls = []

    def f(x):
        calls.append(len(calls))
        return x * 2

    compiled, x = compile(f), tinytorch.ones(2)
    for _ in range(4):
        assert compiled(x).tolist() == [2.0, 2.0]
    assert calls == [0, 1, 2, 3]
    assert len(compiled.compiled.log) == 2 and len(compiled.compiled.breaks) == 1
    strict = compile(f, fullgraph=True)
    strict(x)  # it might fill a cache
    with pytest.raises(RuntimeError, match="changes a variable of the program"):
        strict(x)
    assert calls == [0, 1, 2, 3, 4]
