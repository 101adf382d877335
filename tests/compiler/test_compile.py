"""compile() against eager: values, gradients, state, random numbers, guards and breaks."""

import copy
import io
import pickle
import shutil
import subprocess
import sys
import threading

import numpy as np
import pytest

import tinytorch
from tinytorch import nn
from tinytorch.compiler import Unsupported, compile
from tinytorch.compiler.capture import tracing_lock
from tinytorch.compiler.compiled import Compiled
from tinytorch.compiler.product_code import ProductKernel
from tinytorch.ops.random import Generator


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(5, 8, bias=False), nn.Linear(8, 3)
        self.norm = nn.BatchNorm1d(8)
        self.drop = nn.Dropout(0.3)

    def forward(self, x):
        return self.b(self.drop(tinytorch.relu(self.norm(self.a(x)))))


def train(model, network, step_of=lambda step: step, steps=10):
    tinytorch.manual_seed(3)
    x, y = tinytorch.randn(16, 5), tinytorch.randint(3, (16,))
    optimizer = tinytorch.optim.Adam(model.parameters(), 1e-2)
    step, losses = step_of(optimizer.step), []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(network(x), y)
        loss.backward()
        step()
        losses.append(loss.item())
    return losses


def test_training_with_dropout_running_averages_and_a_compiled_step():
    model = Net()
    twin = copy.deepcopy(model)
    network = compile(twin, fullgraph=True)
    expected, found = train(model, model), train(twin, network, compile)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    for name, value in model.state_dict().items():
        other = twin.state_dict()[name]
        np.testing.assert_allclose(other.numpy(), value.numpy(), rtol=1e-4, atol=1e-6)
    assert list(network.state_dict()) == [f"_orig_mod.{name}" for name in model.state_dict()]
    model.eval(), network.eval()
    x = tinytorch.randn(4, 5)
    np.testing.assert_allclose(network(x).detach(), model(x).detach(), rtol=1e-5, atol=1e-6)
    assert network.compiled.count == 2  # training and evaluation are two graphs


def test_copies_of_a_compiled_network():
    network, x = compile(nn.Linear(3, 2), fullgraph=True), tinytorch.randn(4, 3)
    network(x)
    for twin in (copy.deepcopy(network), pickle.loads(pickle.dumps(network))):
        assert twin._orig_mod is not network._orig_mod and twin.compiled.count == 0
        assert twin(x).tolist() == network(x).tolist()
    with pytest.raises(AttributeError, match="missing"):
        network.missing  # noqa: B018


def test_a_decision_that_depends_on_data_runs_in_eager_or_raises_with_its_line():
    def f(x):
        if x.sum() > 0:
            return x * 2
        return x - 1

    compiled = compile(f)
    for x in (tinytorch.ones(3), -tinytorch.ones(3)):
        assert compiled(x).tolist() == f(x).tolist()
    assert "test_compile.py" in compiled.compiled.log[0]
    with pytest.raises(Unsupported, match="test_compile.py:"):
        compile(f, fullgraph=True)(tinytorch.ones(3))


def test_second_gradients():
    @compile
    def f(x):
        return (x**3).sin()

    x = tinytorch.randn(4, dtype=tinytorch.float64, requires_grad=True)
    assert tinytorch.autograd.gradcheck(f, (x,))
    assert tinytorch.autograd.gradgradcheck(f, (x,))


SCALE = 2.0


def test_guards_on_shapes_numbers_globals_and_attributes(monkeypatch):
    class Scale(nn.Module):
        factor = 3.0

        def __init__(self):
            super().__init__()
            self.shift = 1.0

        def forward(self, x, n=1):
            return x * SCALE * n + self.shift

    module = Scale()
    compiled = compile(module, fullgraph=True)
    x = tinytorch.ones(3)
    assert compiled(x).tolist() == [3.0] * 3
    assert compiled(x, 2).tolist() == [5.0] * 3
    assert compiled(tinytorch.ones(2, 2)).tolist() == [[3.0] * 2] * 2
    assert compiled(x.double()).dtype is tinytorch.float64
    module.shift = 0.5
    assert compiled(x).tolist() == [2.5] * 3
    monkeypatch.setitem(globals(), "SCALE", 4.0)
    assert compiled(x).tolist() == [4.5] * 3
    assert not compiled(x).requires_grad
    assert compiled(x.clone().requires_grad_()).requires_grad


def test_guards_on_objects_and_on_the_sign_of_zero():
    class Options:
        scale = 2.0

    options = Options()
    options.scale = 3.0
    compiled = compile(lambda x, options: x * options.scale, fullgraph=True)
    x = tinytorch.ones(1)
    assert compiled(x, options).item() == 3
    options.scale = 4.0
    assert compiled(x, options).item() == 4
    divide = compile(lambda x, y: x / (x * y), fullgraph=True)
    assert divide(x, 0.0).item() == float("inf") and divide(x, -0.0).item() == -float("inf")


def test_writes_into_arguments_and_returned_arguments():
    @compile(fullgraph=True)
    def f(x, y):
        x.add_(y)
        x[1] = 0
        return x, {"sum": x + y}

    x, y = tinytorch.arange(3.0), tinytorch.ones(3)
    same, named = f(x, y)
    assert same is x and x.tolist() == [1.0, 0.0, 3.0] and x._version
    assert named["sum"].tolist() == [2.0, 1.0, 4.0]


def test_backward_gets_what_an_argument_was_before_it_was_written():
    @compile(fullgraph=True)
    def f(w, x):
        y = w * (x * 1).reshape(3, 1)
        x.add_(1)
        return y.sum()

    w, x = tinytorch.ones(3, 1, requires_grad=True), tinytorch.arange(3.0)
    for number in range(2):
        f(w, x).backward()
        assert w.grad.reshape(-1).tolist() == [number, 1 + number, 2 + number]
        w.grad = None


def test_what_shares_memory_with_an_argument_is_not_returned():
    for f in (lambda x: x.detach(), lambda x: x[1:], lambda x: (x * 1, x.reshape(-1, 1))):
        compiled, x = compile(f), tinytorch.ones(3)
        found = compiled(x)
        found = found[1] if isinstance(found, tuple) else found
        found.add_(1)
        assert x.tolist()[1:] == [2.0, 2.0] and compiled.compiled.breaks


def test_random_numbers_are_those_of_eager():
    def f(x):
        return nn.functional.dropout(x, 0.5) + tinytorch.rand(3)

    compiled, x = compile(f, fullgraph=True), tinytorch.ones(3)
    tinytorch.manual_seed(0)
    expected = [f(x).tolist() for _ in range(3)]
    tinytorch.manual_seed(0)
    assert [compiled(x).tolist() for _ in range(3)] == expected


def test_too_many_graphs_end_in_eager():
    compiled = compile(lambda x, n: x + n, dynamic=False)
    for n in range(12):
        assert compiled(tinytorch.ones(1), n).item() == 1 + n
    assert compiled.compiled.count == 8 and "8 times" in compiled.compiled.log[-1]


def test_a_tensor_that_the_program_keeps_is_a_real_one():
    kept = []

    def f(x):
        kept.append(x * 2)
        return x + 1

    assert compile(f)(tinytorch.ones(2)).tolist() == [2.0, 2.0]
    assert [x.tolist() for x in kept][-1] == [2.0, 2.0]
    assert type(kept[0].array) is np.ndarray


def test_arguments():
    with pytest.raises(RuntimeError, match="Invalid backend"):
        compile(lambda x: x, backend="fortran")
    with pytest.raises(RuntimeError, match="Unrecognized mode"):
        compile(lambda x: x, mode="fast")
    with pytest.raises(TypeError, match="callable"):
        compile(3)

    def f(x):
        return x

    assert compile(f, disable=True) is f


def test_autocast_is_part_of_the_graph():
    layer, x = nn.Linear(4, 4), tinytorch.randn(2, 4)
    compiled = compile(layer, fullgraph=True)
    with tinytorch.autocast("cpu", tinytorch.float16):
        expected, found = layer(x), compiled(x)
    assert found.dtype is expected.dtype is tinytorch.float16
    assert found.tolist() == expected.tolist()
    assert compiled(x).dtype is tinytorch.float32


def test_explain_disable_and_reset():
    @tinytorch.compiler.disable
    def loose(x):
        return x + 1

    f = compile(lambda x: loose(x) * 2)
    explanation = tinytorch.compiler.explain(f)(tinytorch.ones(2))
    assert explanation.graphs == 0 and ": loose is disabled, in `f = " in explanation.breaks[0]
    g = tinytorch.compile(lambda x: (x * 2).sum())
    explanation = tinytorch.compiler.explain(g)(tinytorch.ones(2))
    assert explanation.graphs == 1 and explanation.calls == 2 and "graphs: 1" in str(explanation)
    tinytorch.compiler.reset()
    assert g.compiled.count == 0 and g(tinytorch.ones(2)).item() == 4


def test_the_compiler_is_imported_when_it_is_asked_for():
    code = (
        "import sys, tinytorch; assert 'tinytorch.compiler' not in sys.modules; tinytorch.compile"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_no_generator_of_a_trace_is_left():
    compile(lambda x: x + tinytorch.rand(2))(tinytorch.ones(2))
    with tinytorch.random.fork_rng():
        tinytorch.manual_seed(3)
    assert {device.type for device in Generator.default} <= {"cpu", "strict", "cuda"}


class Broken(nn.Module):
    """A network whose forward needs a value in its middle."""

    def __init__(self):
        super().__init__()
        self.first = self.block()
        self.others = nn.ModuleList([self.block(), self.block()])
        self.last = nn.Linear(6, 2)

    def block(self):
        return nn.Sequential(nn.Linear(6, 6), nn.LayerNorm(6), nn.GELU(), nn.Dropout(0.1))

    def forward(self, x):
        x = self.first(x)
        if x.abs().max().item() > 2:
            x = x / 2
        for block in self.others:
            x = x + block(x)
        return self.last(x)


def gradients_of(call, module):
    module.zero_grad()
    tinytorch.manual_seed(5)
    y = call(tinytorch.arange(24.0).reshape(4, 6))
    y.square().sum().backward()
    return [y.detach(), *(parameter.grad for parameter in module.parameters())]


def test_the_parts_of_a_network_that_breaks_are_compiled():
    model = Broken()
    compiled = compile(model)
    expected = gradients_of(model, model)
    for _ in range(2):
        for a, b in zip(gradients_of(compiled, model), expected, strict=True):
            np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-4, atol=1e-5)
    assert compiled.compiled.count == 0
    parts = compiled.compiled.parts
    assert list(parts) == [model.first, *model.others] and {p.count for p in parts.values()} == {1}
    assert not any("forward" in vars(module) for module in model.modules())
    explanation = tinytorch.compiler.explain(compiled)(tinytorch.ones(4, 6))
    paths = ["first Sequential", "others.0 Sequential", "others.1 Sequential"]
    assert [name for name, _ in explanation.parts] == paths
    assert str(explanation).count("compiled instead: ") == 3
    with pytest.raises(Unsupported, match="test_compile.py:"):
        compile(model, fullgraph=True)(tinytorch.ones(4, 6))


def test_the_parts_of_a_training_step_are_compiled_and_removed_after_an_error():
    model = Broken()

    def step(x, fail=False):
        y = model(x).sum()
        if fail:
            raise KeyError("a fault of the program")
        return y.item()

    compiled, x = compile(step), tinytorch.ones(4, 6)
    model.eval()
    assert abs(compiled(x) - step(x)) < 1e-5
    (part,) = compiled.compiled.parts.values()
    assert part.count == 0 and [p.count for p in part.parts.values()] == [1, 1, 1]
    with pytest.raises(KeyError, match="a fault"):
        compiled(x, True)
    assert not any("forward" in vars(module) for module in model.modules())


def test_threads_in_the_parts_of_one_function():
    model = Broken().eval()
    compiled, x = compile(model), tinytorch.arange(24.0).reshape(4, 6)
    expected, found = model(x).tolist(), []
    threads = [
        threading.Thread(target=lambda: found.extend(compiled(x).tolist() for _ in range(20)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(found) == 80
    for each in found:
        np.testing.assert_allclose(each, expected, rtol=1e-4, atol=1e-5)
    assert {part.count for part in compiled.compiled.parts.values()} == {1}
    assert not any("forward" in vars(module) for module in model.modules())


def test_a_module_that_is_compiled_in_place():
    model, calls = Net().eval(), []
    keys, x = list(model.state_dict()), tinytorch.randn(4, 5)
    expected = model(x)
    assert model.compile(fullgraph=True) is None
    model.register_forward_hook(lambda module, args, output: calls.append(output.shape))
    np.testing.assert_allclose(model(x).detach(), expected.detach(), rtol=1e-5, atol=1e-6)
    assert model.forward.compiled.count == 1 and calls == [(4, 3)]
    assert list(model.state_dict()) == keys
    file = io.BytesIO()
    tinytorch.save(model.state_dict(), file)
    copies = copy.deepcopy(model), pickle.loads(pickle.dumps(Scaled().compiled()))
    assert not any("forward" in vars(each) for each in copies)
    with tinytorch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    np.testing.assert_allclose(copies[0](x).detach(), expected.detach(), rtol=1e-5, atol=1e-6)
    assert not model(x).any()
    model.compile(backend="eager")
    assert model.forward.compiled.backend == "eager" and model.forward.compiled.count == 0
    assert not model(x).any()


class Scaled(nn.Linear):
    def __init__(self):
        super().__init__(2, 2)

    def compiled(self):
        self.compile()
        self(tinytorch.ones(1, 2))
        return self


def test_a_module_compiled_in_place_trains_as_in_eager():
    model = Net()
    twin = copy.deepcopy(model)
    twin.compile(fullgraph=True)
    np.testing.assert_allclose(train(twin, twin), train(model, model), rtol=1e-5)


def test_sizes_that_vary():
    def double(x):
        return x * 2

    compiled, fixed = compile(double), compile(double, dynamic=False)
    for size in range(1, 7):
        for function in (compiled, fixed):
            assert function(tinytorch.ones(size)).tolist() == [2.0] * size
    assert compiled.compiled.count == 2 and fixed.compiled.count == 6
    for _ in range(2):
        compiled(tinytorch.ones(6))
    assert compiled.compiled.count == 3  # this size has come back
    assert compiled(tinytorch.ones(6)).tolist() == [2.0] * 6
    compiled(tinytorch.ones(6, dtype=tinytorch.float64))  # another kind of call
    assert compiled.compiled.count == 4


def test_breaks_count_for_the_limit_and_a_search_in_vain_is_seldom():
    traces = []

    def f(x):
        traces.append(tinytorch.compiler.is_compiling())
        return x * x.sum().item()

    compiled = compile(f, dynamic=False)
    for size in range(1, 60):
        assert compiled(tinytorch.ones(size)).tolist() == [float(size)] * size
    assert len(compiled.compiled.breaks.keys() | compiled.compiled.effects) == 8
    good = compile(lambda x: x + 1, dynamic=False)
    for size in range(1, 60):
        assert good(tinytorch.ones(size)).tolist() == [2.0] * size
    for _ in range(20):  # within so many calls, one finds the graph that is there
        good(tinytorch.ones(3))
    assert good.compiled.misses == 0 and good.compiled.count == 8


def test_other_functions_run_while_code_is_generated():
    started, finish = threading.Event(), threading.Event()

    def slow(graph, examples):
        started.set()
        assert finish.wait(30)
        return lambda arrays: graph.run(np, arrays)

    waiting, other = compile(lambda x: x + 1, backend=slow), compile(lambda x: x * 2)
    results = []
    threads = [
        threading.Thread(target=lambda: results.append(waiting(tinytorch.ones(2)).tolist()))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    assert started.wait(30)
    assert other(tinytorch.ones(1)).item() == 2 and not results
    finish.set()
    for thread in threads:
        thread.join(30)
    assert results == [[2.0, 2.0]] * 3 and waiting.compiled.count == 1


def test_modes_are_accepted():
    for mode in ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"):
        layer = nn.Linear(2, 2)
        x = tinytorch.ones(1, 2)
        np.testing.assert_allclose(compile(layer, mode=mode)(x).detach(), layer(x).detach(), 1e-5)


def test_a_whole_training_step_compiles_the_network_in_it():
    def steps_of(compiled):
        tinytorch.manual_seed(2)
        model = Net().eval()
        optimizer = tinytorch.optim.Adam(model.parameters(), 1e-2)

        @compiled
        def step(x, y):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            return loss.item()

        return step

    x, y = tinytorch.randn(16, 5), tinytorch.randint(3, (16,))
    step, compiled = steps_of(lambda f: f), steps_of(compile)
    expected = [step(x, y) for _ in range(5)]
    np.testing.assert_allclose([compiled(x, y) for _ in range(5)], expected, rtol=1e-4)
    (part,) = compiled.compiled.parts.values()
    assert part.count == 1 and not part.breaks


def test_parts_are_found_while_another_thread_runs_the_parts():
    """A dict must not grow while a loop goes through it: such loops hold tracing_lock."""
    net = nn.Sequential(nn.Sequential(nn.Linear(2, 2), nn.ReLU()), nn.Linear(2, 2))
    compiled = Compiled(net)
    thread = threading.Thread(target=compiled.compile_parts, args=([],))
    with tracing_lock:
        thread.start()
        thread.join(0.2)
        assert not compiled.parts
    thread.join()
    assert list(compiled.parts) == [net[0]]


@pytest.mark.skipif(not shutil.which("cc"), reason="no C compiler")
def test_an_option_decides_whether_products_are_generated():
    model, x = nn.Sequential(nn.Linear(64, 64), nn.ReLU()), tinytorch.randn(64, 64)
    for options in (None, {}, {"max_autotune": True}, {"max_autotune": False}):
        network = compile(model, options=options)
        np.testing.assert_allclose(
            network(x).numpy(force=True), model(x).numpy(force=True), 0, 1e-5
        )
        ((entry,),) = network.compiled.entries.values()
        for program in (entry.forward, entry.backward):
            products = any(isinstance(step, ProductKernel) for step in program.schedule)
            assert products == (options or {}).get("max_autotune", True), options
