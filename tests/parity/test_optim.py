"""Every optimizer that tinytorch has, with the options of PyTorch's own table of optimizers: the
parameters agree after ten steps, the state goes both ways, and what is refused there is refused."""

import copy
import inspect
import pickle
import re
import warnings

import numpy as np
import pytest

import tinytorch
from tinytorch.optim.optimizer import NOT_SUPPORTED

torch = pytest.importorskip("torch", reason="PyTorch is not installed", exc_type=ImportError)

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torch.testing._internal.common_optimizers import optim_db

INFOS = {
    info.optim_cls.__name__: info
    for info in optim_db
    if hasattr(tinytorch.optim, info.optim_cls.__name__)
    and info.optim_cls.__name__ != "LBFGS"  # it needs a closure: test_lbfgs.py
}
SHAPES = [(3, 4), (5,), (), (2, 1, 3), (200, 200), (0, 3)]  # one larger than a piece, one empty


def options(name):
    """The options of PyTorch's table that tinytorch has too."""
    known = inspect.signature(getattr(tinytorch.optim, name)).parameters
    for config in INFOS[name].optim_inputs_func(device="cpu"):
        kwargs = config.kwargs
        if set(kwargs) <= set(known) and not any(map(kwargs.get, NOT_SUPPORTED)):
            yield kwargs


CASES = [(name, kwargs) for name in sorted(INFOS) for kwargs in options(name)]


def twins(dtype, seed=0):
    rng = np.random.default_rng(seed)
    arrays = [rng.normal(size=shape).astype(dtype) for shape in SHAPES]
    ours = [tinytorch.tensor(array, requires_grad=True) for array in arrays]
    theirs = [torch.tensor(array, requires_grad=True) for array in arrays]
    return ours, theirs, rng


def set_gradients(ours, theirs, rng):
    for mine, other in zip(ours, theirs, strict=True):
        g = np.asarray(rng.normal(size=mine.shape), dtype=mine.numpy(force=True).dtype)
        mine.grad, other.grad = tinytorch.tensor(g), torch.tensor(g)


def assert_same(ours, theirs):
    for mine, other in zip(ours, theirs, strict=True):
        assert mine.dtype.name == str(other.dtype).removeprefix("torch.")
        np.testing.assert_allclose(
            mine.detach().numpy(), other.detach().numpy(), rtol=1e-5, atol=1e-6
        )


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("name", "kwargs"), CASES, ids=str)
def test_ten_steps(name, kwargs, dtype):
    ours, theirs, rng = twins(dtype)
    mine = getattr(tinytorch.optim, name)(ours, **carry(kwargs, tinytorch))
    other = getattr(torch.optim, name)(theirs, **kwargs)
    for _ in range(10):
        set_gradients(ours, theirs, rng)
        mine.step()
        other.step()
        assert_same(ours, theirs)


def carry(value, to):
    """The tensors of a state_dict of one library as those of the other."""
    if isinstance(value, (torch.Tensor, tinytorch.Tensor)):
        return to.tensor(value.detach().numpy().copy())
    if isinstance(value, dict):
        return {k: carry(v, to) for k, v in value.items()}
    return type(value)(carry(v, to) for v in value) if isinstance(value, (list, tuple)) else value


@pytest.mark.parametrize(("name", "kwargs"), CASES, ids=str)
def test_state_goes_both_ways(name, kwargs):
    ours, theirs, rng = twins("float32")
    mine = getattr(tinytorch.optim, name)(ours, **carry(kwargs, tinytorch))
    other = getattr(torch.optim, name)(theirs, **kwargs)
    for _ in range(3):
        set_gradients(ours, theirs, rng)
        other.step()
    with torch.no_grad(), tinytorch.no_grad():
        for a, b in zip(ours, theirs, strict=True):
            a.copy_(tinytorch.tensor(b.numpy()))
    mine.load_state_dict(carry(other.state_dict(), tinytorch))
    set_gradients(ours, theirs, rng)
    mine.step()
    other.step()
    assert_same(ours, theirs)
    other.load_state_dict(carry(mine.state_dict(), torch))
    set_gradients(ours, theirs, rng)
    mine.step()
    other.step()
    assert_same(ours, theirs)


def carry_leaves(value, made):
    """PyTorch's parameters, also in lists and groups, as leaves of tinytorch."""
    if isinstance(value, torch.Tensor):
        leaf = tinytorch.tensor(value.detach().numpy().copy(), requires_grad=True)
        return made.setdefault(id(value), leaf)
    if isinstance(value, dict):
        return {k: carry_leaves(v, made) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(carry_leaves(v, made) for v in value)
    return value


@pytest.mark.parametrize("name", sorted(INFOS))
def test_errors(name):
    ours = getattr(tinytorch.optim, name)
    known = inspect.signature(ours).parameters
    compared = 0
    for error in INFOS[name].optim_error_inputs_func(device="cpu", dtype=torch.float32):
        config = error.optimizer_error_input
        if not set(config.kwargs) <= set(known) or config.kwargs.get("foreach"):
            continue  # foreach changes nothing here
        if config.desc == "betas must be either both floats or both Tensors":
            continue  # here they may be of both kinds
        made = {}  # a tensor that stands twice in PyTorch's list stands twice in ours
        params = carry_leaves(config.params, made)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                ours(params, **carry(config.kwargs, tinytorch))
            except Exception as raised:
                assert type(raised) is error.error_type, (config.desc, raised)
                assert re.search(error.error_regex, str(raised)), (config.desc, raised)
            else:
                assert error.error_type is UserWarning and caught, config.desc
        compared += 1
    assert compared


@pytest.mark.parametrize("name", sorted(INFOS))
def test_signature(name):
    ours, theirs = (
        inspect.signature(getattr(library.optim, name)).parameters.values()
        for library in (tinytorch, torch)
    )
    assert [(p.name, p.default, p.kind) for p in ours] == [
        (p.name, p.default, p.kind) for p in theirs
    ]


@pytest.mark.parametrize("name", sorted(INFOS))
def test_text(name):
    ours, theirs, _ = twins("float32")
    mine, other = getattr(tinytorch.optim, name)(ours), getattr(torch.optim, name)(theirs)
    assert repr(mine) == repr(other)
    assert mine.defaults == other.defaults
    assert mine.state_dict()["param_groups"] == other.state_dict()["param_groups"]


@pytest.mark.parametrize(("name", "kwargs"), CASES, ids=str)
def test_the_state_has_the_same_names_in_the_same_order(name, kwargs):
    ours, theirs, rng = twins("float32")
    mine = getattr(tinytorch.optim, name)(ours, **carry(kwargs, tinytorch))
    other = getattr(torch.optim, name)(theirs, **kwargs)
    set_gradients(ours, theirs, rng)
    mine.step()
    other.step()
    a, b = mine.state_dict()["state"], other.state_dict()["state"]
    assert {i: list(state) for i, state in a.items()} == {i: list(state) for i, state in b.items()}


def programs(library):
    """What programs do with optimizers, apart from steps: {what: what came out}."""
    seen = {}

    def adam():
        params = [library.ones(2, requires_grad=True) for _ in range(2)]
        return params, library.optim.Adam(params)

    def step(optimizer):
        for param in optimizer.param_groups[0]["params"]:
            param.grad = library.ones(2)
        optimizer.step()
        return [round(x, 6) for x in optimizer.param_groups[0]["params"][0].tolist()]

    _, optimizer = adam()
    step(optimizer)
    seen["a copy goes on"] = step(copy.deepcopy(optimizer))
    seen["pickled"] = len(pickle.loads(pickle.dumps(optimizer)).state)
    old = copy.deepcopy(optimizer.state_dict())
    for group in old["param_groups"]:
        for name in ("maximize", "foreach", "fused", "differentiable", "capturable"):
            del group[name]
    for state in old["state"].values():
        state["step"] = state["step"].item()
    _, optimizer = adam()
    optimizer.load_state_dict(old)
    seen["an old file"] = step(optimizer), optimizer.state_dict()["state"][0]["step"].item()
    calls = []
    optimizer.register_step_pre_hook(lambda opt, args, kwargs: calls.append((len(args), kwargs)))
    optimizer.register_step_post_hook(lambda opt, args, kwargs: calls.append(len(args)))
    optimizer.register_state_dict_pre_hook(lambda opt: calls.append("saves"))
    optimizer.register_state_dict_post_hook(lambda opt, saved: {**saved, "epoch": 1})
    optimizer.register_state_dict_post_hook(
        lambda opt, saved: calls.append(list(saved)), prepend=True
    )
    optimizer.register_load_state_dict_pre_hook(lambda opt, saved: calls.append(sorted(saved)))
    optimizer.register_load_state_dict_post_hook(lambda opt: calls.append("loaded"))
    step(optimizer)
    optimizer.load_state_dict(optimizer.state_dict())
    seen["hooks"] = calls

    class Signs(library.optim.Optimizer):
        def __init__(self, params, lr):
            super().__init__(params, {"lr": lr})

        @library.no_grad()
        def step(self, closure=None):
            for param in self.param_groups[0]["params"]:
                param.add_(param.grad.sign(), alpha=-self.param_groups[0]["lr"])
                self.state[param]["moves"] = self.state[param].get("moves", 0) + 1

    own = Signs([library.ones(2, requires_grad=True)], 0.5)
    scheduler = library.optim.lr_scheduler.ExponentialLR(own, 0.5)
    step(own)
    scheduler.step()
    seen["an optimizer of one's own"] = step(own), own.state_dict()
    group = {"params": library.ones(1, requires_grad=True), "lr": 0.5}
    own.add_param_group(group)
    seen["the group is the one that was given"] = group is own.param_groups[1], group["lr"]
    net = library.nn.Linear(1, 2)
    named = library.optim.SGD(net.named_parameters(), lr=0.5)
    seen["names"] = repr(named), named.state_dict()["param_groups"][0]["param_names"]
    seen["a closure's number"] = named.step(lambda: 3.5)
    fixed = library.ones(2)
    fixed.grad = library.ones(2)
    library.optim.SGD([fixed], lr=0.5).step()
    seen["without requires_grad"] = fixed.tolist()
    heavy = library.optim.SGD([library.ones(2, requires_grad=True)], momentum=0.5)
    seen["before the first step"] = heavy.state_dict()["state"]
    step(heavy)
    heavy.zero_grad()
    heavy.step()
    seen["after a step without gradients"] = step(heavy)
    for cls in (library.optim.SGD, library.optim.Adam, library.optim.Adagrad):
        with pytest.warns(UserWarning, match="duplicate parameters"):
            twice = cls([library.ones(2, requires_grad=True)] * 2, lr=0.125)
        seen[f"{cls.__name__}, one that stands there twice"] = step(twice), step(twice)
    params, optimizer = adam()
    step(optimizer), step(optimizer)
    with library.no_grad():
        optimizer.state[params[1]]["step"].zero_()
        optimizer.state[params[0]]["exp_avg"].zero_()
    step(optimizer)
    seen["counted anew"] = [
        (round(param[0].item(), 6), optimizer.state[param]["step"].item()) for param in params
    ]
    refused = []
    for answer in (5, (1,), (1, 2, 3)):
        _, optimizer = adam()
        optimizer.register_step_pre_hook(lambda *args, answer=answer: answer)
        with pytest.raises(Exception) as raised:
            step(optimizer)
        refused.append(raised.type)
    seen["hooks that answer something else"] = refused
    return seen


def test_programs():
    ours, theirs = programs(tinytorch), programs(torch)
    for what, value in theirs.items():
        assert ours[what] == value, what
