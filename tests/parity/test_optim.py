"""Every optimizer that tinytorch has, with the options of PyTorch's own table of optimizers: the
parameters agree after ten steps, the state goes both ways, and what is refused there is refused."""

import inspect
import warnings

import numpy as np
import pytest

import tinytorch

torch = pytest.importorskip("torch", reason="PyTorch is not installed", exc_type=ImportError)

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torch.testing._internal.common_optimizers import optim_db

INFOS = {
    info.optim_cls.__name__: info
    for info in optim_db
    if hasattr(tinytorch.optim, info.optim_cls.__name__)
}
SHAPES = [(3, 4), (5,), (), (2, 1, 3), (200, 200), (0, 3)]  # one larger than a piece, one empty


def options(name):
    """The options of PyTorch's table that tinytorch has too."""
    known = inspect.signature(getattr(tinytorch.optim, name)).parameters
    for config in INFOS[name].optim_inputs_func(device="cpu"):
        kwargs = {
            k: v.item() if isinstance(v, torch.Tensor) else v for k, v in config.kwargs.items()
        }
        if set(kwargs) <= set(known) and kwargs not in [seen for seen in given[name]]:
            given[name].append(kwargs)
            yield kwargs


given = {name: [] for name in INFOS}
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
    mine = getattr(tinytorch.optim, name)(ours, **kwargs)
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
    return [carry(v, to) for v in value] if isinstance(value, list) else value


@pytest.mark.parametrize(("name", "kwargs"), CASES, ids=str)
def test_state_goes_both_ways(name, kwargs):
    ours, theirs, rng = twins("float32")
    mine = getattr(tinytorch.optim, name)(ours, **kwargs)
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
        if not set(config.kwargs) <= set(known):
            continue
        if "Tensor" in config.desc or "tensor(" in repr(config.kwargs):
            continue  # options that are tensors are for capturable and compiled optimizers
        made = {}  # a tensor that stands twice in PyTorch's list stands twice in ours
        params = carry_leaves(config.params, made)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                ours(params, **config.kwargs)
            except Exception as raised:
                assert type(raised) is error.error_type, (config.desc, raised)
            else:
                assert error.error_type is UserWarning and caught, config.desc
        compared += 1
    assert compared


@pytest.mark.parametrize("name", sorted(INFOS))
def test_text(name):
    ours, theirs, _ = twins("float32")
    lines = repr(getattr(torch.optim, name)(theirs)).split("\n")
    shown = {line.split(":")[0] for line in repr(getattr(tinytorch.optim, name)(ours)).split("\n")}
    # PyTorch also shows the options that say how to run it on a GPU.
    assert repr(getattr(tinytorch.optim, name)(ours)).split("\n") == [
        line for line in lines if line.split(":")[0] in shown
    ]
