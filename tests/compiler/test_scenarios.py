"""Programs whose state changes between the calls: the compiled function gives what eager gives.

A scenario is a generator that is given `c`: at first a function that returns its argument, then
`compile`. It yields results, and changes something between the calls. Both runs yield the same.
"""

import array
import collections
import contextvars
import copy
import dataclasses
import enum
import functools
import io
import itertools
import math
import os
import pathlib
import random
import sys
import threading
import time
import types
import warnings

import numpy as np
import pytest

import tinytorch as T
import tinytorch.nn.functional as F
from tinytorch import nn
from tinytorch.nn.functional import silu

SCENARIOS, IN_EAGER = {}, set()


def scenario(function):
    """A scenario for which at least one graph has to be made."""
    SCENARIOS[function.__name__] = function
    return function


def in_eager(function):
    """A scenario that no graph can hold."""
    IN_EAGER.add(function.__name__)
    return scenario(function)


def plain(value):
    """What there is to compare of a result, as it is now."""
    if isinstance(value, T.Tensor):
        return "tensor", str(value.dtype), value.requires_grad, value.tolist()
    if isinstance(value, (tuple, list)):
        return type(value).__name__, [plain(item) for item in value]
    if isinstance(value, dict):
        return type(value).__name__, {name: plain(item) for name, item in value.items()}
    return value


def outcomes(function, c):
    """What a scenario yields, and with which error it ends."""
    found = []
    T.manual_seed(1), random.seed(1), np.random.seed(1)  # noqa: NPY002
    try:
        for result in function(c):
            found.append(plain(result))
    except Exception as error:
        found.append(type(error).__name__)
    return found


def pairs(c, function, change, times=2):
    """For results that may share memory: changes one after each call, and yields all."""
    compiled = c(function)
    for number in range(times):
        results = compiled(T.arange(4.0).reshape(2, 2) + number)
        yield results
        change(results)
        yield results


def around(function, change, *args):
    """Two calls, a change of the program's state, and two calls."""
    args = args or (T.ones(3),)
    for _ in range(2):
        yield function(*args)
    change()
    for _ in range(2):
        yield function(*args)


# Results that share memory.


def returning(result, change=lambda rs: rs[0].add_(5.0), name=""):
    """A scenario about a function that computes y = x * 2 and returns result(y)."""

    def run(c):
        return pairs(c, lambda x: result(x * 2), change)

    run.__name__ = name
    return run


SHARED = {
    "result_and_flat": lambda y: (y, y.view(-1)),
    "flat_and_result": lambda y: (y.view(-1), y),
    "result_and_transpose": lambda y: (y, y.t()),
    "one_row_twice": lambda y: (y[0], y[0]),
    "rows_that_overlap": lambda y: (y[:, :1], y[0]),
    "result_and_detached": lambda y: (y, y.detach()),
    "result_and_data": lambda y: (y.data, y),
    "two_detached": lambda y: (y.detach(), y.detach()),
    "detached_row": lambda y: (y, y[1].detach()),
    "row_of_detached": lambda y: (y, y.detach()[1]),
    "result_and_unsqueezed": lambda y: (y, y.unsqueeze(0)),
    "result_twice": lambda y: (y, y),
    "view_twice": lambda y: [y.view(-1)] * 2,
    "chunks_and_whole": lambda y: (y, *y.chunk(2)),
    "unbound": lambda y: (y, *y.unbind(1)),
    "splits_alone": lambda y: y.split(1),
    "expanded": lambda y: (y, y[:1].expand(2, 2).narrow(0, 0, 1)),
    "view_of_view": lambda y: (y, y.view(-1)[1:][::1].view(3, 1)),
    "in_a_dict": lambda y: {0: y, "flat": y.flatten(), "copy": y.clone()},
    "nested": lambda y: (y, [(y[0],), {"a": y[1]}]),
    "reshaped_copy": lambda y: (y, y.t().reshape(-1)),
    "result_and_copy": lambda y: (y, y.clone(), y + 0),
    "diagonal": lambda y: (y, y.diagonal()),
    "squeezed": lambda y: (y.unsqueeze(1), y.unsqueeze(1).squeeze(1)),
    "two_groups": lambda y: (y, (z := y * 3), z[0], y[0]),
}
for name, result in SHARED.items():
    detached = "detached" in name or "data" in name  # they have no common base
    (in_eager if detached else scenario)(returning(result, name=name))


@scenario
def buffer_and_its_part(c):
    def kv(x):
        buffer = T.zeros(4, 2)
        part = buffer[:2]
        part.copy_(x)
        return buffer, part

    return pairs(c, kv, lambda rs: rs[1].add_(5.0))


@scenario
def shared_results_with_gradients(c):
    def double(x):
        y = x * 2
        return y, y.unsqueeze(0), y[0], y[0]

    f = c(double)
    for _ in range(2):
        x = T.ones(2, 2, requires_grad=True)
        a, b, r, d = f(x)
        (a.sum() + (b * b).sum() + r.sum() * 3).backward()
        yield x.grad
        d.detach().add_(1.0)
        yield a, b, r, d


@scenario
def change_of_a_shared_result_in_autograd(c):
    f = c(lambda x: (lambda y: (y, y.view(-1)))(x * 2))
    for _ in range(2):
        x, w = T.ones(2, 2, requires_grad=True), T.tensor(3.0, requires_grad=True)
        y, flat = f(x)
        y.mul_(w)
        flat.sum().backward()
        yield x.grad, w.grad, flat


@scenario
def module_returns_hidden_and_flat(c):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(2, 2)

        def forward(self, x):
            h = self.fc(x)
            return h, h.view(-1)

    net = Net()
    f = c(net)
    for _ in range(2):
        h, flat = f(T.ones(2, 2))
        with T.no_grad():
            h.add_(1.0)
        (flat * flat).sum().backward()
        yield h, flat, net.fc.weight.grad


@in_eager
def view_of_an_argument(c):
    f, x = c(lambda x: x.view(-1)), T.ones(2, 2)
    for _ in range(2):
        f(x).add_(1.0)
        yield x


@scenario
def argument_itself(c):
    f, x = c(lambda x: (x, x * 2)), T.ones(2, 2)
    for _ in range(2):
        same, _ = f(x)
        same.add_(1.0)
        yield x, same is x


@in_eager
def view_of_a_closure(c):
    w = T.ones(2, 2)
    f = c(lambda x: w[0])
    for _ in range(2):
        f(T.ones(2)).add_(1.0)
        yield w


@scenario
def view_under_no_grad(c):
    def part(x):
        y = x * 2
        with T.no_grad():
            return y, y[0]

    f = c(part)
    for _ in range(2):
        y, row = f(T.ones(2, 2, requires_grad=True))
        yield y, row


@scenario
def constant_is_made_anew(c):
    f = c(lambda x: (T.zeros(2), x + 1))
    for _ in range(3):
        zeros, _ = f(T.ones(2))
        zeros.add_(1.0)
        yield zeros


@scenario
def result_changed_before_backward(c):
    f = c(lambda x: (x @ x).tanh())
    for _ in range(2):
        x = T.ones(2, 2, requires_grad=True)
        y = f(x)
        y.add_(1.0)
        try:
            y.sum().backward()
        except RuntimeError as error:
            yield "in-place" in str(error) or "inplace" in str(error), y


@scenario
def result_changed_in_a_way_that_backward_takes(c):
    f = c(lambda x: x * 2)
    for _ in range(2):
        x = T.ones(2, requires_grad=True)
        y = f(x)
        y.add_(1.0).mul_(3.0)
        y.sum().backward()
        yield x.grad, y


@in_eager
def attribute_of_a_result(c):
    def f(x):
        y = x * 2
        y.tag = 7
        return y

    f = c(f)
    for _ in range(2):
        yield f(T.ones(2)).tag


# Seeds and generators.


@in_eager
def seed_inside(c):
    def f(x):
        T.manual_seed(3)
        return x + T.randn(2)

    f = c(f)
    for _ in range(3):
        yield f(T.zeros(2))


@in_eager
def seed_inside_reaches_outside(c):
    def f(x):
        T.manual_seed(3)
        return x + 1

    f = c(f)
    for _ in range(2):
        yield f(T.zeros(2)), T.randn(2)


@in_eager
def generator_made_inside(c):
    f = c(lambda x: x + T.rand(3, generator=T.Generator().manual_seed(5)))
    for _ in range(3):
        yield f(T.zeros(3))


@in_eager
def generator_made_inside_without_a_seed(c):
    f = c(lambda x: x + T.rand(3, generator=T.Generator()))
    for _ in range(3):
        yield f(T.zeros(3))


@scenario
def default_generator(c):
    f = c(lambda x: x + T.randn(3))
    for _ in range(3):
        yield f(T.zeros(3))
        yield T.randn(1)
    T.manual_seed(4)
    yield f(T.zeros(3))


@scenario
def seed_between_calls(c):
    f = c(lambda x: F.dropout(x, 0.5))
    for seed in (1, 2, 1):
        T.manual_seed(seed)
        yield f(T.ones(8))


@in_eager
def generator_of_a_closure(c):
    generator = T.Generator().manual_seed(5)
    f = c(lambda x: x + T.rand(3, generator=generator))
    for _ in range(3):
        yield f(T.zeros(3))
    generator.manual_seed(5)
    yield f(T.zeros(3))


@in_eager
def closure_generator_is_seeded(c):
    generator = T.Generator().manual_seed(5)

    def f(x):
        generator.manual_seed(5)
        return x * 2

    f = c(f)
    for _ in range(3):
        yield f(T.zeros(3)), T.rand(2, generator=generator)


@in_eager
def fork_inside(c):
    def f(x):
        with T.random.fork_rng():
            T.manual_seed(4)
            y = x + T.randn(2)
        return y + T.randn(2)

    f = c(f)
    for _ in range(3):
        yield f(T.zeros(2))


@in_eager
def state_read_and_set_inside(c):
    def f(x):
        before = T.get_rng_state()
        y = x + T.randn(2)
        T.set_rng_state(before)
        return y, T.randn(2)

    f = c(f)
    for _ in range(3):
        yield f(T.zeros(2))


@in_eager
def seed_is_read(c):
    f = c(lambda x: x + T.initial_seed() % 97)
    for seed in (3, 4):
        T.manual_seed(seed)
        yield f(T.zeros(2))


@in_eager
def python_random(c):
    f = c(lambda x: x * random.random())
    for _ in range(3):
        yield f(T.ones(2))


@in_eager
def numpy_random(c):
    f = c(lambda x: x * float(np.random.rand()))  # noqa: NPY002
    for _ in range(3):
        yield f(T.ones(2))


@in_eager
def random_of_a_closure(c):
    own = random.Random(3)
    f = c(lambda x: x * own.random())
    for _ in range(3):
        yield f(T.ones(2))


@in_eager
def numpy_generator_of_a_closure(c):
    own = np.random.default_rng(3)
    f = c(lambda x: x * float(own.random()))
    for _ in range(3):
        yield f(T.ones(2))


# Globals and closures.

scale, table, flag, weight = 2.0, {"a": 1.0}, True, None
config = types.ModuleType("config")
config.k = 1.0


def set_global(name, value):
    return lambda: globals().__setitem__(name, value)


def restored(*names):
    """A decorator: puts globals back after a scenario."""

    def decorate(function):
        @functools.wraps(function)
        def run(c):
            before = {name: globals()[name] for name in names}
            try:
                yield from function(c)
            finally:
                globals().update(before)

        return run

    return decorate


@scenario
@restored("scale")
def global_number(c):
    return (yield from around(c(lambda x: x * scale), set_global("scale", 5.0)))


@scenario
@restored("scale")
def global_number_of_another_type(c):
    return (yield from around(c(lambda x: x.long() * scale), set_global("scale", 2)))


@scenario
@restored("scale")
def global_zero_sign(c):
    set_global("scale", 0.0)()
    f = c(lambda x: 1 / (x * scale))
    return (yield from around(f, set_global("scale", -0.0)))


@scenario
@restored("flag")
def global_flag(c):
    f = c(lambda x: x + 1 if flag else x - 1)
    return (yield from around(f, set_global("flag", False)))


@scenario
@restored("weight")
def global_tensor_replaced(c):
    set_global("weight", T.ones(3))()
    return (yield from around(c(lambda x: x * weight), set_global("weight", T.full((3,), 4.0))))


@scenario
@restored("weight")
def global_tensor_filled(c):
    set_global("weight", T.ones(3))()
    return (yield from around(c(lambda x: x * weight), lambda: weight.fill_(9.0)))


@scenario
@restored("silu")
def global_function_replaced(c):
    return (yield from around(c(lambda x: silu(x)), set_global("silu", T.tanh)))


def helper(x):
    return x * scale


@scenario
@restored("scale")
def global_of_a_helper(c):
    return (yield from around(c(lambda x: helper(x) + 1), set_global("scale", 6.0)))


@scenario
@restored("helper")
def helper_replaced(c):
    return (yield from around(c(lambda x: helper(x)), set_global("helper", lambda x: x - 1)))


@in_eager
@restored("scale")
def global_changed_inside(c):
    def f(x):
        global scale
        scale += 1
        return x * scale

    f = c(f)
    for _ in range(3):
        yield f(T.ones(2)), scale


@in_eager
def globals_by_name(c):
    f = c(lambda x: x * globals()["scale"])
    yield f(T.ones(2))
    before = scale
    globals()["scale"] = 5.0
    yield f(T.ones(2))
    globals()["scale"] = before


@scenario
def closure_number(c):
    k = 1

    def change():
        nonlocal k
        k = 5

    return (yield from around(c(lambda x: x * k), change))


@scenario
def closure_tensor_replaced(c):
    w = T.ones(3)

    def change():
        nonlocal w
        w = T.full((3,), 3.0)

    return (yield from around(c(lambda x: x * w), change))


@scenario
def closure_of_another_shape(c):
    w = T.ones(3)

    def change():
        nonlocal w
        w = T.ones(2, 3)

    return (yield from around(c(lambda x: x * w), change))


@in_eager
def closure_counter(c):
    count = 0

    def f(x):
        nonlocal count
        count += 1
        return x * count

    f = c(f)
    for _ in range(3):
        yield f(T.ones(2)), count


@scenario
def default_argument(c):
    def f(x, k=2):
        return x * k

    def change():
        f.__defaults__ = (7,)

    return (yield from around(c(f), change))


@scenario
def partial_function(c):
    k = {"by": 2}
    f = c(functools.partial(lambda x, how: x * how["by"], how=k))
    return (yield from around(f, lambda: k.update(by=3)))


@scenario
def module_of_its_own_global(c):
    before = config.k
    yield from around(c(lambda x: x * config.k), lambda: setattr(config, "k", 5.0))
    config.k = before


@scenario
def module_of_its_own_closure(c):
    own = types.ModuleType("own")
    own.k = 1.0
    return (yield from around(c(lambda x: x * own.k), lambda: setattr(own, "k", 5.0)))


@scenario
def module_as_an_attribute(c):
    own = types.SimpleNamespace(settings=types.ModuleType("own"))
    own.settings.k = 1.0
    f = c(lambda x: x * own.settings.k)
    return (yield from around(f, lambda: setattr(own.settings, "k", 5.0)))


@scenario
def module_as_an_argument(c):
    own = types.ModuleType("own")
    own.k = 1.0
    f = c(lambda x, settings: x * settings.k)
    return (yield from around(f, lambda: setattr(own, "k", 5.0), T.ones(3), own))


@scenario
def module_imported_inside(c):
    own = types.ModuleType("scenario_settings")
    own.k, sys.modules["scenario_settings"] = 1.0, own

    def f(x):
        import scenario_settings

        return x * scenario_settings.k

    yield from around(c(f), lambda: setattr(own, "k", 5.0))
    del sys.modules["scenario_settings"]


@scenario
def name_imported_inside(c):
    own = types.ModuleType("scenario_settings")
    own.k, sys.modules["scenario_settings"] = 1.0, own

    def f(x):
        from scenario_settings import k

        return x * k

    yield from around(c(f), lambda: setattr(own, "k", 5.0))
    del sys.modules["scenario_settings"]


# Names of libraries that are replaced.


def patched(module, name, new):
    """A scenario body: calls, with a name of a module replaced from the third call on."""

    def run(function):
        before = getattr(module, name)
        try:
            yield from around(function, lambda: setattr(module, name, new))
        finally:
            setattr(module, name, before)

    return run


@scenario
def patched_relu(c):
    return patched(T, "relu", T.tanh)(c(lambda x: T.relu(x)))


@scenario
def patched_functional_relu(c):
    return patched(F, "relu", lambda x: x - 1)(c(lambda x: F.relu(x)))


@scenario
def patched_name_of_a_package(c):
    return patched(nn.functional, "gelu", T.tanh)(c(lambda x: T.nn.functional.gelu(x)))


@scenario
def patched_pi(c):
    return patched(math, "pi", 3.0)(c(lambda x: x * math.pi))


@scenario
def patched_numpy(c):
    return patched(np, "e", 2.0)(c(lambda x: x * np.e))


@scenario
def arguments_of_the_program(c):
    before = list(sys.argv)
    yield from around(c(lambda x: x * len(sys.argv)), lambda: sys.argv.append("more"))
    sys.argv[:] = before


@scenario
def arguments_of_the_program_replaced(c):
    return patched(sys, "argv", ["a"] * 9)(c(lambda x: x * len(sys.argv)))


@scenario
def patched_module_imported_inside(c):
    def f(x):
        import math as m

        return x * m.tau

    return patched(math, "tau", 3.0)(c(f))


# Containers.

CONTENTS = {
    "list_item": ([1.0], lambda v: v.__setitem__(0, 5.0), lambda v: v[0]),
    "list_longer": ([1.0], lambda v: v.append(5.0), sum),
    "list_shorter": ([1.0, 2.0], lambda v: v.pop(), sum),
    "list_in_list": ([[1.0]], lambda v: v[0].append(3.0), lambda v: sum(v[0])),
    "list_sorted": ([3.0, 1.0], lambda v: v.sort(), lambda v: v[0]),
    "dict_value": ({"a": 1.0}, lambda v: v.update(a=5.0), lambda v: v["a"]),
    "dict_key_added": ({"a": 1.0}, lambda v: v.update(b=5.0), lambda v: sum(v.values())),
    "dict_key_gone": ({"a": 1.0, "b": 2.0}, lambda v: v.pop("b"), lambda v: v.get("b", 9.0)),
    "default_dict": (
        collections.defaultdict(float, a=1.0),
        lambda v: v.update(a=3.0),
        lambda v: v["a"],
    ),
    "ordered_dict": (
        collections.OrderedDict(a=1.0, b=2.0),
        lambda v: v.update(a=4.0),
        lambda v: v["a"],
    ),
    "counter": (collections.Counter("ab"), lambda v: v.update("a"), lambda v: v["a"]),
    "set_of_numbers": ({1.0}, lambda v: v.add(2.0), sum),
    "deque": (collections.deque([1.0]), lambda v: v.append(2.0), sum),
    "deque_rotated": (collections.deque([1.0, 2.0]), lambda v: v.rotate(), lambda v: v[0]),
    "numpy_array": (np.ones(2), lambda v: v.__setitem__(0, 5.0), lambda v: float(v[0])),
    "bytes_that_change": (bytearray(b"a"), lambda v: v.append(3), sum),
    "array_of_numbers": (array.array("d", [1.0]), lambda v: v.__setitem__(0, 4.0), sum),
    "tensors_in_a_list": ([T.ones(3)], lambda v: v.append(T.ones(3)), lambda v: sum(v)),
    "tuple_with_a_list": (([1.0],), lambda v: v[0].append(2.0), lambda v: sum(v[0])),
    "namespace": (types.SimpleNamespace(k=1.0), lambda v: setattr(v, "k", 5.0), lambda v: v.k),
    "chain_map": (
        collections.ChainMap({"a": 1.0}),
        lambda v: v.maps[0].update(a=3.0),
        lambda v: v["a"],
    ),
}


def containing(name, make, change, read):
    def as_closure(c):
        value = copy.deepcopy(make)
        return around(c(lambda x: x * read(value)), lambda: change(value))

    as_closure.__name__ = name
    return as_closure


for name, (value, change, read) in CONTENTS.items():
    scenario(containing(name, value, change, read))


@scenario
def mapping_proxy(c):
    values = {"a": 1.0}
    shown = types.MappingProxyType(values)
    return (yield from around(c(lambda x: x * shown["a"]), lambda: values.update(a=3.0)))


@scenario
def lists_in_a_deque(c):
    values = collections.deque([[1.0]])
    return (yield from around(c(lambda x: x * sum(values[0])), lambda: values[0].append(3.0)))


@scenario
def tensors_in_a_deque(c):
    values = collections.deque([T.ones(3)], maxlen=1)
    return (yield from around(c(lambda x: x * values[0]), lambda: values.append(T.zeros(3))))


@scenario
def objects_in_a_set(c):
    point = Point(1.0)
    values = {point}
    f = c(lambda x: x * sum(each.v for each in values))
    return (yield from around(f, set_attribute(point, "v", 5.0)))


@scenario
def objects_in_a_frozen_set(c):
    point = Point(1.0)
    values = frozenset([point])
    f = c(lambda x: x * sum(each.v for each in values))
    return (yield from around(f, set_attribute(point, "v", 5.0)))


@scenario
def list_as_an_argument(c):
    ks = [1.0, 2.0]
    return (yield from around(c(lambda x, ks: x * sum(ks)), lambda: ks.append(3.0), T.ones(3), ks))


@scenario
def dict_as_an_argument(c):
    ks = {"a": 1.0}
    f = c(lambda x, ks: x * ks["a"])
    return (yield from around(f, lambda: ks.update(a=3.0), T.ones(3), ks))


@in_eager
def list_appended_inside(c):
    seen = []

    def f(x):
        seen.append(1)
        return x * len(seen)

    f = c(f)
    for _ in range(3):
        yield f(T.ones(2)), len(seen)


@scenario
def cache_filled_inside(c):
    cache = {}

    def f(x):
        if "mask" not in cache:
            cache["mask"] = 3.0
        return x * cache["mask"]

    f = c(f)
    for _ in range(3):
        yield f(T.ones(2)), len(cache)
    cache["mask"] = 4.0
    yield f(T.ones(2))


@in_eager
def iterator_of_a_closure(c):
    numbers = itertools.count(1)
    f = c(lambda x: x * next(numbers))
    for _ in range(3):
        yield f(T.ones(2))


@in_eager
def generator_as_an_argument(c):
    f = c(lambda x, it: x * next(it))
    it = iter([1.0, 2.0, 3.0])
    for _ in range(3):
        yield f(T.ones(2), it)


# Objects.


class Color(enum.Enum):
    RED = 1
    BLUE = 2


class Point:
    unit = 1.0

    def __init__(self, v):
        self.v = v

    @property
    def twice(self):
        return self.v * 2

    @classmethod
    def of(cls, x):
        return x * cls.unit

    def __getattr__(self, name):
        if name == "computed":
            return self.v + 100
        raise AttributeError(name)


class Slotted:
    __slots__ = ("__hidden", "v")

    def __init__(self, v):
        self.v = self.__hidden = v

    def hidden(self, new=None):
        if new is not None:
            self.__hidden = new
        return self.__hidden


class SlottedMore(Slotted):
    __slots__ = ("w",)


class SlottedWithDict(Slotted):
    pass


@dataclasses.dataclass(slots=True)
class SlottedData:
    v: float = 1.0
    values: list = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Data:
    v: float = 1.0


def set_attribute(value, name, new):
    return lambda: setattr(value, name, new)


OBJECTS = {
    "attribute": (lambda: Point(1.0), "v", 5.0, lambda p: p.v),
    "property_of_an_object": (lambda: Point(1.0), "v", 5.0, lambda p: p.twice),
    "computed_attribute": (lambda: Point(1.0), "v", 5.0, lambda p: p.computed),
    "attribute_by_name": (lambda: Point(1.0), "v", 5.0, lambda p: getattr(p, "v")),  # noqa: B009
    "attribute_in_vars": (lambda: Point(1.0), "v", 5.0, lambda p: vars(p)["v"]),
    "attribute_added": (lambda: Point(1.0), "new", 5.0, lambda p: getattr(p, "new", 1.0)),
    "class_attribute_hidden": (lambda: Point(1.0), "unit", 5.0, lambda p: p.unit),
    "enumeration": (lambda: Point(Color.RED), "v", Color.BLUE, lambda p: p.v.value),
    "text": (lambda: Point("a"), "v", "bb", lambda p: len(p.v)),
    "data_class": (Data, "v", 5.0, lambda p: p.v),
    "slot": (lambda: Slotted(1.0), "v", 5.0, lambda p: p.v),
    "slot_of_a_base": (lambda: SlottedMore(1.0), "v", 5.0, lambda p: p.v),
    "slot_filled_later": (lambda: SlottedMore(1.0), "w", 5.0, lambda p: getattr(p, "w", 1.0)),
    "slot_beside_a_dict": (lambda: SlottedWithDict(1.0), "v", 5.0, lambda p: p.v),
    "dict_beside_a_slot": (lambda: SlottedWithDict(1.0), "w", 5.0, lambda p: getattr(p, "w", 1.0)),
    "slots_of_a_data_class": (SlottedData, "v", 5.0, lambda p: p.v),
    "object_replaced_in_an_object": (lambda: Point(Data(1.0)), "v", Data(5.0), lambda p: p.v.v),
}


def reading(name, make, attribute, new, read):
    def as_closure(c):
        value = make()
        return around(c(lambda x: x * read(value)), set_attribute(value, attribute, new))

    def as_argument(c):
        value = make()
        f = c(lambda x, p: x * read(p))
        return around(f, set_attribute(value, attribute, new), T.ones(3), value)

    as_closure.__name__, as_argument.__name__ = name, f"{name}_of_an_argument"
    return as_closure, as_argument


for name, row in OBJECTS.items():
    closure, argument = reading(name, *row)
    scenario(closure)
    if "slot" in name or name in ("attribute", "data_class"):
        scenario(argument)


@scenario
def private_slot(c):
    p = Slotted(1.0)
    return (yield from around(c(lambda x: x * p.hidden()), lambda: p.hidden(5.0)))


@scenario
def list_in_a_slot(c):
    p = SlottedData(values=[1.0])
    return (yield from around(c(lambda x: x * sum(p.values)), lambda: p.values.append(5.0)))


@in_eager
def slot_changed_inside(c):
    p = Slotted(1.0)

    def f(x):
        p.v += 1
        return x * p.v

    f = c(f)
    for _ in range(3):
        yield f(T.ones(2)), p.v


@in_eager
def slot_filled_inside(c):
    p = SlottedMore(1.0)

    def f(x):
        p.w = getattr(p, "w", 0) + 1
        return x * p.w

    f = c(f)
    for _ in range(3):
        yield f(T.ones(2)), p.w


@scenario
def class_attribute(c):
    yield from around(c(lambda x: Point.of(x)), lambda: setattr(Point, "unit", 5.0))
    Point.unit = 1.0


@scenario
def class_attribute_by_name(c):
    f = c(lambda x: x * getattr(Point, "unit"))  # noqa: B009
    yield from around(f, set_attribute(Point, "unit", 5.0))
    Point.unit = 1.0


@in_eager
def attribute_changed_inside(c):
    p = Point(1.0)

    def f(x):
        p.v += 1
        return x * p.v

    f = c(f)
    for _ in range(3):
        yield f(T.ones(2)), p.v


@scenario
def bound_method(c):
    class Model:
        k = 1.0

        def step(self, x):
            return x * self.k

    model = Model()
    return (yield from around(c(model.step), set_attribute(model, "k", 5.0)))


# Tensors: gradients, attributes, types, layouts.


@in_eager
def gradient_is_none(c):
    f, x = c(lambda x: x * (1.0 if x.grad is None else 0.0)), T.ones(2)
    yield f(x)
    x.grad = T.ones(2)
    yield f(x)
    x.grad = None
    yield f(x)


@in_eager
def gradient_of_a_weight_is_none(c):
    net = nn.Linear(2, 2)
    f = c(lambda x: x * 2 if net.weight.grad is None else x * 3)
    yield f(T.ones(2))
    net(T.ones(2)).sum().backward()
    yield f(T.ones(2))
    net.zero_grad()
    yield f(T.ones(2))


@in_eager
def gradient_replaced(c):
    f, x = c(lambda x: x + x.grad), T.ones(2)
    for k in (1.0, 5.0, 9.0):
        x.grad = T.full((2,), k)
        yield f(x)
        x.grad.add_(1.0)
        yield f(x)


@in_eager
def gradient_of_a_closure_replaced(c):
    w = T.ones(2)
    w.grad = T.ones(2)
    return (yield from around(c(lambda x: x[:2] + w.grad), set_attribute(w, "grad", T.zeros(2))))


@in_eager
def gradient_read_by_the_package(c):
    net = nn.Linear(2, 1)
    f = c(lambda x: x + nn.utils.clip_grad_norm_(net.parameters(), 1e9))
    for k in (1.0, 2.0, 3.0):
        net.zero_grad()
        net(T.full((2,), k)).sum().backward()
        yield f(T.ones(2))


@in_eager
def gradient_by_name(c):
    f, x = c(lambda x: x * (1.0 if getattr(x, "grad", None) is None else 0.0)), T.ones(2)
    return (yield from around(f, set_attribute(x, "grad", T.ones(2)), x))


@scenario
def tag_of_an_argument(c):
    f, x = c(lambda x: x * getattr(x, "tag", 1)), T.ones(2)
    yield from around(f, set_attribute(x, "tag", 5), x)
    yield from around(f, set_attribute(x, "tag", 6), x)
    yield f(T.ones(2))


@scenario
def list_at_an_argument(c):
    f, x = c(lambda x: x * sum(x.values)), T.ones(2)
    x.values = [1.0]
    return (yield from around(f, lambda: x.values.append(2.0), x))


@scenario
def tag_of_a_closure(c):
    w = T.ones(3)
    f = c(lambda x: x * w * getattr(w, "tag", 1))
    yield from around(f, set_attribute(w, "tag", 5))
    yield from around(f, set_attribute(w, "tag", 6))


@scenario
def tag_of_a_weight(c):
    net = nn.Linear(2, 2)
    net.weight.factor = 1.0
    f = c(lambda x: net(x) * net.weight.factor)
    return (yield from around(f, set_attribute(net.weight, "factor", 3.0), T.ones(2)))


@in_eager
def tag_set_inside(c):
    w = T.ones(3)

    def f(x):
        w.tag = getattr(w, "tag", 0) + 1
        return x * w.tag

    f = c(f)
    for _ in range(3):
        yield f(T.ones(3)), w.tag


@scenario
def type_of_an_argument(c):
    f = c(lambda x: x + 1 if x.dtype is T.float32 else x * 2)
    for dtype in (T.float32, T.float64, T.int64, T.float32):
        yield f(T.ones(2, dtype=dtype))


@scenario
def shape_of_an_argument(c):
    f = c(lambda x: x.sum() if x.shape[0] > 2 else x * 2)
    for n in (2, 3, 2, 3):
        yield f(T.ones(n))


@in_eager
def layout_of_an_argument(c):
    f = c(lambda x: x + 1 if x.is_contiguous() else x * 5)
    for x in (T.ones(2, 2), T.ones(2, 2).t(), T.ones(2, 4)[:, ::2]):
        yield f(x)


@in_eager
def strides_of_an_argument(c):
    f = c(lambda x: x * x.stride(0))
    for x in (T.ones(2, 3), T.ones(3, 2).t(), T.ones(4, 3)[::2]):
        yield f(x)


@scenario
def requires_grad_of_an_argument(c):
    f = c(lambda x: x * 2 if x.requires_grad else x * 3)
    for needs in (False, True, False):
        yield f(T.ones(2, requires_grad=needs))


@scenario
def requires_grad_of_a_weight(c):
    w = T.ones(3)
    f = c(lambda x: x * w * (2 if w.requires_grad else 3))
    return (yield from around(f, lambda: w.requires_grad_()))


@scenario
def weight_data_replaced(c):
    net = nn.Linear(2, 2)
    f = c(net)
    return (yield from around(f, set_attribute(net.weight, "data", T.ones(2, 2)), T.ones(2)))


@scenario
def weight_of_another_type(c):
    net = nn.Linear(2, 2)
    f = c(lambda x: net(x.to(net.weight.dtype)))
    return (yield from around(f, lambda: net.double(), T.ones(2)))


@scenario
def number_of_an_argument(c):
    f = c(lambda x, k: x * k)
    for k in (1, 1.0, True, 2, 0.0, -0.0):
        yield f(T.ones(2), k)


@in_eager
def value_decides(c):
    f = c(lambda x: x + 1 if x.sum() > 0 else x - 1)
    for k in (1.0, -1.0, 1.0):
        yield f(T.full((2,), k))


@scenario
def hook_of_an_argument(c):
    f = c(lambda x: x * 2)
    for k in (1.0, 3.0):
        x, seen = T.ones(2, requires_grad=True), []
        x.register_hook(lambda grad, k=k: grad * k)
        f(x).sum().backward()
        yield x.grad, seen


# Modes.


@scenario
def grad_mode(c):
    f, x = c(lambda x: x * 2 if T.is_grad_enabled() else x * 3), T.ones(2, requires_grad=True)
    yield f(x)
    with T.no_grad():
        yield f(x)
    yield f(x)


@scenario
def inference_mode(c):
    f, x = c(lambda x: x * 2), T.ones(2, requires_grad=True)
    yield f(x)
    with T.inference_mode():
        yield f(x).is_inference() if hasattr(x, "is_inference") else f(x)
    yield f(x)


@scenario
def no_grad_inside(c):
    def f(x):
        with T.no_grad():
            y = x * 2
        return y + x

    f = c(f)
    for _ in range(2):
        x = T.ones(2, requires_grad=True)
        f(x).sum().backward()
        yield x.grad


@scenario
def autocast_around(c):
    f, x = c(lambda x: x @ x), T.ones(2, 2)
    yield f(x)
    with T.autocast("cpu", dtype=T.float16):
        yield f(x)
    yield f(x)


@scenario
def default_type(c):
    f = c(lambda x: x + T.zeros(2))
    for dtype in (T.float32, T.float64, T.float32):
        T.set_default_dtype(dtype)
        try:
            yield f(T.ones(2, dtype=T.int64))
        finally:
            T.set_default_dtype(T.float32)


# Edits of modules.


def net_scenario(change, make=None):
    make = make or (lambda: nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2)))

    def run(c):
        T.manual_seed(2)
        net = make()
        return around(c(net), lambda: change(net), T.ones(2, 2))

    return run


class Gate(nn.Module):
    def __init__(self):
        super().__init__()
        self.k, self.on, self.extra = 1.0, True, None
        self.register_buffer("mask", T.ones(2))
        self.parts = nn.ModuleList([nn.Identity()])
        self.weights = nn.ParameterDict({"a": nn.Parameter(T.ones(2))})

    def forward(self, x):
        for part in self.parts:
            x = part(x)
        x = x * self.k * self.mask * self.weights["a"]
        x = x + 1 if self.on else x - 1
        return x if self.extra is None else self.extra(x)


EDITS = {
    "layer_replaced": (lambda n: n.__setitem__(1, nn.Tanh()), None),
    "layer_appended": (lambda n: n.append(nn.Tanh()), None),
    "layer_removed": (lambda n: n.__delitem__(2), None),
    "weight_replaced": (lambda n: setattr(n[0], "weight", nn.Parameter(T.ones(2, 2))), None),
    "weight_filled": (lambda n: nn.init.zeros_(n[0].weight), None),
    "bias_removed": (lambda n: setattr(n[0], "bias", None), None),
    "state_loaded": (
        lambda n: n.load_state_dict({k: v * 0 + 1 for k, v in n.state_dict().items()}),
        None,
    ),
    "frozen": (lambda n: n.requires_grad_(False), None),
    "forward_hook": (lambda n: n[0].register_forward_hook(lambda m, a, y: y * 2), None),
    "forward_pre_hook": (lambda n: n.register_forward_pre_hook(lambda m, a: (a[0] * 2,)), None),
    "forward_replaced": (lambda n: setattr(n[1], "forward", lambda x: x * 9), None),
    "net_in_double": (lambda n: n.to(T.float32), None),
    "slope_of_a_layer": (
        lambda n: setattr(n[1], "negative_slope", 0.5),
        lambda: nn.Sequential(nn.Linear(2, 2), nn.LeakyReLU()),
    ),
    "training_flag": (lambda n: n.eval(), lambda: nn.Sequential(nn.BatchNorm1d(2))),
    "number_of_a_module": (lambda n: setattr(n, "k", 3.0), Gate),
    "flag_of_a_module": (lambda n: setattr(n, "on", False), Gate),
    "buffer_replaced": (lambda n: setattr(n, "mask", T.zeros(2)), Gate),
    "buffer_filled": (lambda n: n.mask.fill_(4.0), Gate),
    "child_set": (lambda n: setattr(n, "extra", nn.Tanh()), Gate),
    "list_of_modules_longer": (lambda n: n.parts.append(nn.Tanh()), Gate),
    "parameter_in_a_dict": (lambda n: n.weights.__setitem__("a", nn.Parameter(T.zeros(2))), Gate),
}
for name, (change, make) in EDITS.items():
    run = net_scenario(change, make)
    run.__name__ = name
    scenario(run)


@scenario
def dropout_in_training_and_out(c):
    net = nn.Dropout(0.5)
    return (yield from around(c(lambda x: net(x)), lambda: net.eval(), T.ones(8)))


@scenario
def hook_removed(c):
    net = nn.Linear(2, 2)
    handle = net.register_forward_hook(lambda m, a, y: y * 2)
    return (yield from around(c(net), lambda: handle.remove(), T.ones(2)))


@scenario
def running_statistics(c):
    net = nn.BatchNorm1d(2)
    f = c(net)
    for k in (1.0, 2.0, 3.0):
        y = f(T.arange(4.0).reshape(2, 2) * k)
        yield y.detach().round(decimals=4), net.running_mean, net.num_batches_tracked


@scenario
def training_steps(c):
    net = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 1))
    f, optimizer = c(net), T.optim.SGD(net.parameters(), 0.1)
    for _ in range(3):
        optimizer.zero_grad()
        loss = f(T.ones(3, 2)).square().mean()
        loss.backward()
        optimizer.step()
        yield round(loss.item(), 5)


@in_eager
def module_counts_its_calls(c):
    class Count(nn.Module):
        def __init__(self):
            super().__init__()
            self.calls = 0

        def forward(self, x):
            self.calls += 1
            return x * self.calls

    net = Count()
    f = c(net)
    for _ in range(3):
        yield f(T.ones(2)), net.calls


# Writes into what is given, which may share memory.


@scenario
def argument_written(c):
    f, x = c(lambda x: x.add_(1.0) * 2), T.ones(2)
    for _ in range(3):
        yield f(x), x


@scenario
def arguments_that_share(c):
    f = c(lambda a, b: (a.add_(1.0), b * 2)[1])
    for make in (lambda: (T.ones(2), T.ones(2)), lambda: ((x := T.ones(2)), x.view(-1))):
        for _ in range(2):
            a, b = make()
            yield f(a, b), a, b


@scenario
def one_argument_twice(c):
    f, x = c(lambda a, b: a.add_(b)), T.ones(2)
    for _ in range(2):
        yield f(x, T.ones(2)), x
        yield f(x, x), x


@scenario
def rows_of_an_argument_written(c):
    def f(x):
        x[0] = 5.0
        x[:, 1].mul_(2.0)
        return x.sum()

    f, x = c(f), T.ones(2, 2)
    for _ in range(3):
        yield f(x), x


@scenario
def view_of_an_argument_written(c):
    f, base = c(lambda x: x.mul_(2.0) + 1), T.ones(4)
    for _ in range(2):
        yield f(base[::2]), base


@scenario
def closure_written(c):
    state = T.zeros(2)
    f = c(lambda x: state.add_(x) * 1)
    for _ in range(3):
        yield f(T.ones(2)), state


@scenario
def list_of_tensors_written(c):
    states = [T.zeros(2), T.zeros(2)]

    def f(x):
        for number, state in enumerate(states):
            state.add_(x * (number + 1))
        return states[0] + states[1]

    f = c(f)
    for _ in range(3):
        yield f(T.ones(2)), states


@in_eager
def closures_that_share_written(c):
    base = T.zeros(4)
    part = base[:2]
    f = c(lambda x: (part.add_(x), base * 1)[1])
    for _ in range(3):
        yield f(T.ones(2)), base


@scenario
def result_written_by_the_program(c):
    f, x = c(lambda x: x * 1), T.ones(2)
    for _ in range(2):
        f(x).add_(5.0)
        yield x


# The world outside.


@in_eager
def printed(c):
    def f(x):
        print("called", file=out)
        return x * 2

    out = io.StringIO()
    f = c(f)
    for _ in range(3):
        yield f(T.ones(2)), out.getvalue()


@in_eager
def written_to_a_stream(c):
    out = io.StringIO()
    f = c(lambda x: (out.write("called"), x * 2)[1])
    for _ in range(3):
        yield f(T.ones(2)), out.getvalue()


def clock_stops(names):
    """Times differ between two runs: what is compared is that they differ between two calls."""

    def run(c):
        f = c(lambda x: x * 0 + names() % 1e6)
        before = f(T.ones(1, dtype=T.float64)).item()
        time.sleep(0.002)
        yield f(T.ones(1, dtype=T.float64)).item() > before
        yield ("end",)

    return run


for name, clock in {
    "time": time.time,
    "monotonic": time.monotonic,
    "performance_counter": time.perf_counter,
    "nanoseconds": lambda: time.perf_counter_ns() / 1e9,
}.items():
    run = clock_stops(clock)
    run.__name__ = name
    in_eager(run)


def with_a_file(function):
    """A scenario body: a file's text is 1, 1, 5."""

    def run(c):
        path = pathlib.Path(os.environ["SCENARIOS"], function.__name__)
        f = c(functools.partial(function, path=path))
        for text in "115":
            path.write_text(text)
            yield f(T.ones(2))
        path.unlink()

    run.__name__ = function.__name__
    return in_eager(run)


@with_a_file
def file_read(x, path):
    with open(path) as file:
        return x * float(file.read())


@with_a_file
def file_read_by_pathlib(x, path):
    return x * float(path.read_text())


@with_a_file
def file_read_by_numpy(x, path):
    return x * float(np.loadtxt(path))


@with_a_file
def file_read_by_number(x, path):
    number = os.open(path, os.O_RDONLY)
    try:
        return x * float(os.read(number, 9))
    finally:
        os.close(number)


@in_eager
def files_listed(c):
    folder = pathlib.Path(os.environ["SCENARIOS"], "listed")
    folder.mkdir()
    f = c(lambda x: x * len(os.listdir(folder)))
    for number in range(3):
        yield f(T.ones(2))
        (folder / str(number)).touch()
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()


@in_eager
def file_exists(c):
    path = pathlib.Path(os.environ["SCENARIOS"], "exists")
    f = c(lambda x: x * 2 if os.path.exists(path) else x * 3)
    for _ in range(2):
        yield f(T.ones(2))
    path.touch()
    yield f(T.ones(2))
    path.unlink()


@in_eager
def folder_of_the_process(c):
    before = os.getcwd()
    f = c(lambda x: x * len(os.getcwd()))
    for path in (before, "/", before):
        os.chdir(path)
        yield f(T.ones(2))


@in_eager
def open_file_read(c):
    file = io.StringIO("123")
    f = c(lambda x: x * float(file.read(1)))
    for _ in range(3):
        yield f(T.ones(2))


@in_eager
def context_variable(c):
    variable = contextvars.ContextVar("variable", default=1.0)
    f = c(lambda x: x * variable.get())
    yield f(T.ones(2))
    variable.set(5.0)
    yield f(T.ones(2))


@in_eager
def thread_of_a_call(c):
    f = c(lambda x: x * (2 if threading.current_thread() is threading.main_thread() else 3))
    found = [f(T.ones(2))]
    thread = threading.Thread(target=lambda: found.append(f(T.ones(2))))
    thread.start(), thread.join()
    yield found
    yield f(T.ones(2))


@in_eager
def values_of_a_thread(c):
    local = threading.local()
    local.k = 1.0

    def in_thread():
        local.k = 5.0
        found.append(f(T.ones(2)))

    f = c(lambda x: x * local.k)
    found = [f(T.ones(2))]
    thread = threading.Thread(target=in_thread)
    thread.start(), thread.join()
    yield found
    yield f(T.ones(2))


@in_eager
def number_of_the_thread(c):
    f = c(lambda x: x * (threading.get_ident() % 1000))
    yield f(T.ones(2))
    yield f(T.ones(2))


@scenario
def error_of_the_program(c):
    def f(x, k):
        if k < 0:
            raise ValueError("negative")
        return x * k

    f = c(f)
    for k in (1, -1, 2):
        try:
            yield f(T.ones(2), k)
        except ValueError as error:
            yield str(error)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("SCENARIOS", str(tmp_path))


@pytest.mark.parametrize("name", SCENARIOS)
def test_scenario(name):
    T.compiler.reset()
    made = []

    def compiled(function):
        made.append(T.compile(function, backend="numpy"))
        return made[-1]

    function = SCENARIOS[name]
    expected = outcomes(function, lambda function: function)
    assert len(expected) > 1
    assert not isinstance(expected[-1], str), "a scenario that fails in eager"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert outcomes(function, compiled) == expected
    graphs = sum(each.compiled.count for each in made)
    assert (graphs == 0) == (name in IN_EAGER), [each.compiled.log for each in made]
