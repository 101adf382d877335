"""Modes: recording on and off, inference, and those who stand between a call and its Function."""

import threading

import numpy as np
import pytest

import tinytorch
from tinytorch.autograd import grad
from tinytorch.autograd.modes import FunctionMode
from tinytorch.core.state import state


def leaf(data, device="cpu"):
    return tinytorch.tensor(data, device=device, requires_grad=True)


# Recording.


def test_no_grad_and_enable_grad(device):
    x = leaf(2.0, device)
    with tinytorch.no_grad():
        assert not tinytorch.is_grad_enabled()
        assert not (x * x).requires_grad
        with tinytorch.enable_grad():
            y = x * x
        assert not tinytorch.is_grad_enabled()
    assert tinytorch.is_grad_enabled()
    y.backward()
    assert x.grad.item() == 4.0


def test_a_leaf_made_under_no_grad_may_require_grad():
    with tinytorch.no_grad():
        x = leaf(1.0)
    assert x.requires_grad and (x * 2.0).requires_grad


def test_set_grad_enabled_as_a_statement_and_as_a_context():
    try:
        tinytorch.set_grad_enabled(False)
        assert not tinytorch.is_grad_enabled()
        with tinytorch.set_grad_enabled(True):
            assert tinytorch.is_grad_enabled()
        assert not tinytorch.is_grad_enabled()
    finally:
        tinytorch.set_grad_enabled(True)
    with tinytorch.set_grad_enabled(False):
        assert not tinytorch.is_grad_enabled()
    assert tinytorch.is_grad_enabled()


@pytest.mark.parametrize(
    "decorate, inside",
    [
        (tinytorch.no_grad(), False),
        (tinytorch.no_grad, False),
        (tinytorch.inference_mode(), False),
        (tinytorch.inference_mode, False),
        (tinytorch.enable_grad(), True),
        (tinytorch.enable_grad, True),
    ],
)
def test_decorators(decorate, inside):
    @decorate
    def enabled(flag, deeper=0):
        """What it says."""
        return enabled(flag, deeper - 1) if deeper else (flag, tinytorch.is_grad_enabled())

    for outside in (True, False):
        with tinytorch.set_grad_enabled(outside):
            assert enabled("a", deeper=3) == ("a", inside)
            assert tinytorch.is_grad_enabled() == outside
    assert (enabled.__name__, enabled.__doc__) == ("enabled", "What it says.")


def test_set_grad_enabled_as_a_decorator():
    @tinytorch.set_grad_enabled(False)
    def enabled():
        return tinytorch.is_grad_enabled()

    assert tinytorch.is_grad_enabled()
    assert not enabled()
    assert tinytorch.is_grad_enabled()
    with tinytorch.no_grad():
        assert not enabled()
        assert not tinytorch.is_grad_enabled()  # as it was at the call, not at the decoration


def test_a_mode_ends_with_an_exception():
    for switch in (tinytorch.no_grad(), tinytorch.inference_mode()):
        with pytest.raises(KeyError):
            with switch:
                raise KeyError
        assert tinytorch.is_grad_enabled()
        assert not tinytorch.is_inference_mode_enabled()


def test_one_object_may_be_entered_inside_itself():
    switch = tinytorch.no_grad()
    with switch:
        with tinytorch.enable_grad():
            with switch:
                assert not tinytorch.is_grad_enabled()
            assert tinytorch.is_grad_enabled()
        assert not tinytorch.is_grad_enabled()
    assert tinytorch.is_grad_enabled()


def test_grad_mode_and_modes_belong_to_one_thread():
    seen = []
    started, finish = threading.Event(), threading.Event()

    def other():
        seen.append((tinytorch.is_grad_enabled(), state.modes))
        with tinytorch.no_grad(), FunctionMode():
            started.set()
            finish.wait(10)

    with tinytorch.no_grad(), FunctionMode():
        worker = threading.Thread(target=other)
        worker.start()
        started.wait(10)
    assert tinytorch.is_grad_enabled() and state.modes == ()  # while the other is inside its own
    finish.set()
    worker.join()
    assert seen == [(True, ())]


def test_threads_in_one_decorated_function_do_not_mix():
    first, second = threading.Event(), threading.Event()

    @tinytorch.no_grad()
    def enter(mine, other):
        mine.set()
        other.wait(10)

    seen = []

    def other():
        tinytorch.set_grad_enabled(False)
        first.wait(10)
        enter(second, first)
        seen.append(tinytorch.is_grad_enabled())

    worker = threading.Thread(target=other)
    worker.start()
    enter(first, second)
    worker.join()
    assert tinytorch.is_grad_enabled() and seen == [False]


def test_division_by_zero_is_silent_on_every_thread():
    results = []

    def divide():
        results.append((tinytorch.tensor(1.0) / tinytorch.tensor(0.0)).item())

    worker = threading.Thread(target=divide)
    worker.start()
    worker.join()
    assert results == [float("inf")]


# Inference.


def test_inference_mode_records_nothing(device):
    x = leaf([1.0, 2.0], device)
    with tinytorch.inference_mode():
        assert tinytorch.is_inference_mode_enabled()
        y = x * 2.0
    assert not y.requires_grad and not tinytorch.is_inference_mode_enabled()
    assert (x * 2.0).requires_grad


def test_inference_mode_false_is_the_normal_mode():
    x = leaf(1.0)
    for outside in (tinytorch.enable_grad(), tinytorch.no_grad(), tinytorch.inference_mode()):
        with outside, tinytorch.inference_mode(False):
            assert (x * 2.0).requires_grad


def test_set_grad_enabled_as_a_statement_does_not_record_in_inference_mode():
    x = tinytorch.tensor([1.0], requires_grad=True)
    with tinytorch.inference_mode():
        tinytorch.set_grad_enabled(True)
        assert not (x * x).requires_grad
    assert (x * x).requires_grad


def test_enable_grad_does_not_record_in_inference_mode():
    x = leaf(1.0)
    with tinytorch.inference_mode(), tinytorch.enable_grad():
        assert not (x * 2.0).requires_grad


# Function modes.


class Record(FunctionMode):
    """Notes the name of each function that is called."""

    def __init__(self):
        self.names = []

    def call(self, function, args):
        self.names.append(function.__name__)
        return function.apply(*args)


def test_a_mode_sees_each_call_forward_and_backward(device):
    x = leaf([2.0, 3.0], device)
    ones = tinytorch.tensor([1.0, 1.0], device=device)
    with Record() as mode:
        y = x * x + x
        assert mode.names == ["Mul", "Add"]
        mode.names.clear()
        y.backward(ones)
    assert mode.names.count("Mul") == 2 and "Add" in mode.names
    assert x.grad.tolist() == [5.0, 7.0] and not x.grad.requires_grad
    seen = len(mode.names)
    x * x
    assert len(mode.names) == seen and state.modes == ()


def test_gradients_with_and_without_a_mode_are_equal(device):
    def gradient(x):
        y = x / (x * x + 2.0) - x * tinytorch.tensor([[1.0], [2.0]], device=device)
        return grad(y, x, tinytorch.tensor([[1.0, 2.0]] * 2, device=device))[0].tolist()

    x = leaf([0.5, 1.5], device)
    plain = gradient(x)
    with FunctionMode():
        assert gradient(x) == plain


def test_modes_are_asked_from_the_inside_out():
    log = []

    class Named(FunctionMode):
        def __init__(self, name):
            self.name = name

        def call(self, function, args):
            log.append(self.name)
            return function.apply(*args)

    with Named("outer"), Named("inner"):
        leaf(1.0) + 1.0
    assert log == ["inner", "outer"]


def test_a_mode_may_change_arguments_or_answer_itself():
    class Double(FunctionMode):
        def call(self, function, args):
            return function.apply(*(2.0 * x if isinstance(x, float) else x for x in args))

    class Answer(FunctionMode):
        def call(self, function, args):
            return "mine"

    x = leaf(3.0)
    with Double():
        assert (x * 5.0).item() == 30.0
    with Answer():
        assert x * 5.0 == "mine"


def test_what_a_mode_itself_computes_does_not_reach_it():
    class Careful(FunctionMode):
        calls = 0

        def call(self, function, args):
            Careful.calls += 1
            result = function.apply(*args)
            result.detach() * 2.0
            return result

    with Careful():
        leaf(1.0) * 2.0
    assert Careful.calls == 1


def test_a_mode_ends_with_an_exception_inside_a_call():
    class Broken(FunctionMode):
        def call(self, function, args):
            raise KeyError

    with pytest.raises(KeyError):
        with Broken():
            leaf(1.0) * 2.0
    assert state.modes == ()
    assert (leaf(1.0) * 2.0).item() == 2.0


def test_numpy_shares_memory_where_no_graph_watches():
    w = tinytorch.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="requires grad"):
        w.numpy()
    with tinytorch.no_grad():
        array = w.numpy()
        assert np.asarray(w).tolist() == [1.0, 1.0]
    array[0] = 5.0
    assert w.tolist() == [5.0, 1.0]
