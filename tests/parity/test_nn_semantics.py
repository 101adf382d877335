"""What programs do with modules, line for line in PyTorch and here: the same answer, or an error of
the same type. Each entry is a function of the package; numbers are compared to six digits."""

import copy
import pickle
import re
import warnings
from collections import OrderedDict, namedtuple

import pytest

import tinytorch

torch = pytest.importorskip("torch", reason="PyTorch is not installed", exc_type=ImportError)


def shown(value):
    """A value as text, without what differs between the packages by name only."""
    if isinstance(value, (torch.Tensor, tinytorch.Tensor)):
        numbers = [round(x, 6) for x in value.detach().reshape(-1).double().tolist()]
        dtype = str(value.dtype).rpartition(".")[2]
        return f"{numbers} {tuple(value.shape)} {dtype} {value.requires_grad}"
    if isinstance(value, (list, tuple)):
        return [shown(item) for item in value]
    return re.sub(r"\b(tiny)?torch\.", "", repr(value))


def outcome(function, package):
    try:
        return shown(function(package))
    except Exception as error:
        return type(error)


def row(t):
    return t.nn.Sequential(OrderedDict(a=t.nn.Linear(2, 2), b=t.nn.ReLU()))


def then(net, *changes):
    """The network after the changes."""
    for change in changes:
        change(net)
    return net


def buffered(t):
    net = t.nn.Module()
    net.register_buffer("kept", t.ones(1))
    net.register_buffer("scratch", t.ones(1), persistent=False)
    net.register_buffer("none", None)
    return net


def filled(t):
    """Linear(1, 1) with weight 2 and bias 3, and a gradient."""
    net = t.nn.Linear(1, 1)
    with t.no_grad():
        net.weight.fill_(2.0)
        net.bias.fill_(3.0)
    net(t.ones(1, 1)).sum().backward()
    return net


def uninitialised(t, name, value):
    def init(self):
        setattr(self, name, value)

    return type("Early", (t.nn.Module,), {"__init__": init})()


def with_older_name(t, way):
    """A network whose part finds its weight under an older name: by the method that loads, by a
    hook, or by a hook of the older kind."""

    def rename(state_dict, prefix, *rest):
        if prefix + "w" in state_dict:
            state_dict[prefix + "weight"] = state_dict.pop(prefix + "w")

    class Renaming(t.nn.Linear):
        def __init__(self):
            super().__init__(1, 1)
            if way == "hook":
                self.register_load_state_dict_pre_hook(lambda module, *given: rename(*given))
            if way == "old hook":
                self._register_load_state_dict_pre_hook(rename)

        def _load_from_state_dict(self, *given):
            if way == "method":
                rename(*given)
            super()._load_from_state_dict(*given)

    net, state = t.nn.Sequential(Renaming()), {"0.w": t.ones(1, 1), "0.bias": t.ones(1)}
    return net.load_state_dict(state), net[0].weight, list(state)


def with_more_state(t):
    """The keys of a network with parts that keep more, or less, than others."""

    class More(t.nn.Linear):
        def _save_to_state_dict(self, destination, prefix, keep_vars):
            super()._save_to_state_dict(destination, prefix, keep_vars)
            destination[prefix + "more"] = self.bias

    class Less(t.nn.Linear):
        def state_dict(self, *args, **kwargs):
            state = super().state_dict(*args, **kwargs)
            del state[kwargs.get("prefix", "") + "bias"]
            return state

    return list(t.nn.Sequential(More(1, 1), Less(1, 1)).state_dict()), list(Less(1, 1).state_dict())


def hooked(t, output):
    """What a backward hook sees, and what arrives, where forward returns output(x)."""

    class Part(t.nn.Module):
        def forward(self, x):
            return output(x)

    part, seen, x = Part(), [], t.ones(1, requires_grad=True)
    part.register_full_backward_hook(lambda module, gets, gives: seen.append(shown([gets, gives])))
    y = part(x)
    sum(y.values() if isinstance(y, dict) else y).backward()
    return seen, x.grad, type(y).__name__


Pair = namedtuple("Pair", ["a", "b"])

NETS = {
    "an older name": lambda t: with_older_name(t, "method"),
    "an older name, by a hook": lambda t: with_older_name(t, "hook"),
    "an older name, by an older hook": lambda t: with_older_name(t, "old hook"),
    "an older name, unknown": lambda t: with_older_name(t, "none"),
    "more state": with_more_state,
    "hook on a tuple": lambda t: hooked(t, lambda x: (x * 2, x * 3)),
    "hook on a named tuple": lambda t: hooked(t, lambda x: Pair(x * 2, x * 3)),
    "no hook on a list": lambda t: hooked(t, lambda x: [x * 2, x * 3]),
    "no hook on a dict": lambda t: hooked(t, lambda x: {"a": x * 2}),
    "of another type": lambda t: list(filled(t).type(t.float64).state_dict().values()),
    "to empty": lambda t: filled(t).to_empty(device="cpu").weight.shape,
    "applied to each tensor": lambda t: then(filled(t), lambda n: n._apply(lambda x: x * 2)).weight,
    "numbers are no attributes": lambda t: [n for n in dir(row(t)[:1]) if n in ("0", "a")],
    "keys": lambda t: list(row(t).state_dict(prefix="x.")),
    "state into": lambda t: list(row(t).state_dict(destination=OrderedDict(x=1))),
    "load nothing": lambda t: row(t).load_state_dict({}, strict=False),
    "load nothing, strictly": lambda t: row(t).load_state_dict({}),
    "load too much": lambda t: filled(t).load_state_dict({"x": 1}, strict=False),
    "load a wrong shape": lambda t: filled(t).load_state_dict({"weight": t.ones(2)}, strict=False),
    "load no mapping": lambda t: filled(t).load_state_dict([1]),
    "load other types": lambda t: (
        then(
            filled(t),
            lambda n: n.load_state_dict(
                {"weight": t.ones(1, 1).double(), "bias": t.tensor([4])}, strict=True
            ),
        ).bias
    ),
    "load frozen": lambda t: (
        then(
            filled(t).requires_grad_(False),
            lambda n: n.load_state_dict({"weight": t.ones(1, 1), "bias": t.ones(1)}, assign=True),
        ).weight
    ),
    "buffers": lambda t: [
        list(buffered(t).state_dict()),
        [n for n, _ in buffered(t).named_buffers()],
    ],
    "buffer to parameter": lambda t: [
        name
        for name, _ in then(
            buffered(t), lambda n: setattr(n, "kept", t.nn.Parameter(t.ones(1)))
        ).named_parameters()
    ],
    "buffer to number": lambda t: setattr(buffered(t), "kept", 3),
    "buffer to tensor": lambda t: list(
        then(buffered(t), lambda n: setattr(n, "kept", t.zeros(1))).state_dict()
    ),
    "no bias": lambda t: then(filled(t), lambda n: setattr(n, "bias", None)),
    "no module": lambda t: then(row(t), lambda n: setattr(n, "b", None)),
    "module over parameter": lambda t: setattr(filled(t), "bias", t.nn.ReLU()),
    "name taken": lambda t: filled(t).register_buffer("in_features", t.ones(1)),
    "delete": lambda t: then(filled(t), lambda n: delattr(n, "bias")),
    "delete nothing": lambda t: delattr(filled(t), "nothing"),
    "too early, module": lambda t: uninitialised(t, "x", t.nn.ReLU()),
    "too early, number": lambda t: uninitialised(t, "x", 3).x,
    "get": lambda t: [row(t).get_submodule("b"), row(t).get_parameter("a.weight").shape],
    "get no module": lambda t: row(t).get_submodule("a.weight"),
    "get no buffer": lambda t: row(t).get_buffer("a.weight"),
    "tied": lambda t: [
        [name for name, _ in net.named_modules(remove_duplicate=once)]
        for net in [t.nn.Sequential(*[t.nn.ReLU()] * 2)]
        for once in (True, False)
    ],
    "prefix": lambda t: [name for name, _ in row(t).named_parameters(prefix="net")],
    "to a type": lambda t: filled(t).to(t.float64).weight.grad,
    "to integers": lambda t: filled(t).to(t.int64),
    "to like": lambda t: filled(t).to(t.ones(1, dtype=t.float64)).weight,
    "frozen": lambda t: filled(t).requires_grad_(False)(t.ones(1, 1)),
    "zero_grad": lambda t: then(filled(t), lambda n: n.zero_grad(set_to_none=False)).weight.grad,
    "copy": lambda t: [copy.deepcopy(filled(t)).weight, copy.deepcopy(filled(t)).weight.grad],
    "pickle": lambda t: pickle.loads(pickle.dumps(filled(t))).weight,
    "parameter": lambda t: t.nn.Parameter(t.ones(2)),
    "parameter, empty": lambda t: t.nn.Parameter(),
    "parameter of a result": lambda t: t.nn.Parameter(t.ones(2, requires_grad=True) * 2).is_leaf,
    "integer parameter": lambda t: t.nn.Parameter(t.tensor([1]), requires_grad=False),
    "a result is a tensor": lambda t: type(t.nn.Parameter(t.ones(2)) * 2).__name__,
    "Sequential": lambda t: then(
        t.nn.Sequential(t.nn.ReLU(), t.nn.GELU()),
        lambda n: n.append(t.nn.Tanh()),
        lambda n: n.insert(0, t.nn.Identity()),
        lambda n: n.extend([t.nn.ReLU()]),
        lambda n: n.pop(1),
        lambda n: n.__setitem__(0, t.nn.Sigmoid()),
        lambda n: n.__delitem__(1),
    ),
    "Sequential, a part": lambda t: [row(t)[:1], row(t)[-1], row(t) + row(t), row(t).b],
    "Sequential, outside": lambda t: row(t)[2],
    "Sequential, a name": lambda t: row(t)["a"],
    "Sequential, none": lambda t: t.nn.Sequential()(3),
    "ModuleList": lambda t: then(
        t.nn.ModuleList([t.nn.ReLU(), t.nn.ReLU(), t.nn.Tanh()]),
        lambda n: n.insert(1, t.nn.Identity()),
        lambda n: n.__delitem__(slice(0, 1)),
        lambda n: n.pop(-1),
        lambda n: n.__iadd__([t.nn.ReLU(), t.nn.ReLU()]),
    ),
    "ModuleList, called": lambda t: t.nn.ModuleList([t.nn.ReLU()])(t.ones(1)),
    "ModuleList, no list": lambda t: t.nn.ModuleList([]).extend(3),
    "ModuleDict": lambda t: then(
        t.nn.ModuleDict([["a", t.nn.ReLU()]]),
        lambda n: n.update({"b": t.nn.Tanh(), "a": t.nn.Identity()}),
        lambda n: n.__setitem__("c", t.nn.ReLU()),
        lambda n: n.pop("a"),
    ),
    "ModuleDict, a method": lambda t: t.nn.ModuleDict({"keys": t.nn.ReLU()}),
    "ModuleDict, a dot": lambda t: t.nn.ModuleDict({"a.b": t.nn.ReLU()}),
    "empty are false": lambda t: [bool(t.nn.ModuleList([])), bool(t.nn.ModuleDict({}))],
    "Linear, nothing in": lambda t: t.nn.Linear(3, 2, False)(t.ones(0, 3)),
    "Linear, by place": lambda t: t.nn.Linear(3, 2, True, "cpu", t.float64).bias.dtype,
    "Linear, unknown": lambda t: t.nn.Linear(3, 2, size=1),
    "Dropout of integers": lambda t: t.nn.functional.dropout(t.ones(4, dtype=t.int64)),
    "Dropout of all": lambda t: t.nn.functional.dropout(t.tensor([1.0, float("inf")]), 1.0),
}

F_CASES = {
    "bce, integers": lambda F, t: F.binary_cross_entropy(t.tensor([0.5]), t.tensor([1])),
    "bce, two types": lambda F, t: F.binary_cross_entropy(t.tensor([0.5]), t.ones(1).double()),
    "bce, nan": lambda F, t: F.binary_cross_entropy(t.tensor([float("nan")]), t.ones(1)),
    "bce logits, integers": lambda F, t: F.binary_cross_entropy_with_logits(
        t.tensor([0.5]), t.tensor([1])
    ),
    "bce logits, two types": lambda F, t: F.binary_cross_entropy_with_logits(
        t.tensor([0.5]), t.ones(1).double()
    ),
    "mse, two types": lambda F, t: F.mse_loss(t.tensor([0.5]), t.tensor([1])),
    "mse, integers": lambda F, t: F.mse_loss(t.tensor([5]), t.tensor([1])),
    "l1, integers": lambda F, t: F.l1_loss(t.tensor([5]), t.tensor([1]), reduction="sum"),
    "mse, shapes": lambda F, t: F.mse_loss(t.ones(2), t.ones(3)),
    "huber, delta": lambda F, t: F.huber_loss(t.ones(2), t.ones(2), delta=0.0),
    "ce, half": lambda F, t: F.cross_entropy(t.ones(2, 3).half(), t.tensor([0, 1])).dtype,
    "ce, int32": lambda F, t: F.cross_entropy(t.ones(2, 3), t.tensor([0, 1]).int()),
    "ce, integers": lambda F, t: F.cross_entropy(t.ones(2, 3).long(), t.tensor([0, 1])),
    "ce, float classes": lambda F, t: F.cross_entropy(t.ones(2, 3), t.tensor([0.0, 1.0])),
    "ce, nothing": lambda F, t: F.cross_entropy(t.ones(0, 3), t.ones(0).long()),
    "ce, no classes": lambda F, t: F.cross_entropy(t.ones(0, 0), t.ones(0).long()),
    "ce, all ignored": lambda F, t: F.cross_entropy(t.ones(2, 3), t.tensor([-100, -100])),
    "ce, weights": lambda F, t: F.cross_entropy(t.ones(2, 3), t.tensor([0, 1]), t.ones(2)),
    "ce, images": lambda F, t: F.cross_entropy(t.ones(2, 3, 4), t.ones(2, 4).long()),
    "nll, a row": lambda F, t: F.nll_loss(t.tensor([-1.0, -2.0]), t.tensor(1)),
    "nll, batches": lambda F, t: F.nll_loss(t.ones(2, 3), t.tensor([0])),
    "kl, shapes": lambda F, t: F.kl_div(t.ones(2), t.ones(3)),
    "cosine": lambda F, t: F.cosine_similarity(t.ones(1, 2), t.tensor([[1.0, 0.0], [0.0, 0.0]])),
    "normalize": lambda F, t: F.normalize(t.tensor([[3.0, 4.0], [0.0, 0.0]]), p=1),
    "one_hot": lambda F, t: F.one_hot(t.tensor([[0], [2]])),
    "one_hot, none": lambda F, t: F.one_hot(t.ones(0).long()),
    "one_hot, float": lambda F, t: F.one_hot(t.ones(1)),
    "prelu, slopes": lambda F, t: F.prelu(t.ones(2, 2), t.ones(3)),
    "relu_": lambda F, t: F.relu_(t.tensor([-1.0, 1.0])),
    "elu of a leaf": lambda F, t: F.elu(t.ones(1, requires_grad=True), inplace=True),
    "gelu of a list": lambda F, t: F.gelu([1.0]),
    "softmax of integers": lambda F, t: F.softmax(t.ones(2).long(), 0),
}

# The slope where a curve has a bend, and beyond.
BENDS = {
    "leaky_relu": lambda F, x: F.leaky_relu(x),
    "elu": lambda F, x: F.elu(x),
    "smooth_l1_loss": lambda F, x: F.smooth_l1_loss(x, x.detach() * 0, reduction="none"),
    "huber_loss": lambda F, x: F.huber_loss(x, x.detach() * 0, reduction="none", delta=3.0),
    "l1_loss": lambda F, x: F.l1_loss(x, x.detach() * 0, reduction="none"),
}


def compare(function):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert outcome(function, tinytorch) == outcome(function, torch)


@pytest.mark.parametrize("name", NETS)
def test_modules(name):
    compare(NETS[name])


@pytest.mark.parametrize("name", F_CASES)
def test_functions(name):
    compare(lambda t: F_CASES[name](t.nn.functional, t))


@pytest.mark.parametrize("name", BENDS)
def test_slopes_at_bends(name):
    def slopes(t):
        x = t.tensor([-7.0, -3.0, -1.0, 0.0, 1.0, 3.0, 6.0, 7.0], requires_grad=True)
        BENDS[name](t.nn.functional, x).sum().backward()
        return x.grad

    compare(slopes)
