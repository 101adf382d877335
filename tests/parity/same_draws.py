"""PyTorch that draws the random numbers of tinytorch, for a process that does nothing else.

With the same seed a program then starts from the same weights and sees the same data in the same
order, so that all its results can be compared. From tinytorch come uniform and normal numbers,
integers, permutations, what `multinomial` draws, and dropout. The rest is PyTorch's own: also the
bounds of an initialization, and the order in which a DataLoader draws.
"""

import contextlib
import io
import multiprocessing
import sys
import warnings

import numpy as np
import torch
import torch._dynamo  # noqa: F401 (an optimizer imports it, in two seconds)

import tinytorch
from steps.companion import contract
from tests.parity import ranks

DRAWING = ("rand", "randn", "randint", "randperm", "multinomial")
FILLING = ("uniform_", "normal_")


def demo(path, text, own, library, double=True):
    """The contract's Run of the text of a step, on "torch" or (with "") by itself.

    PyTorch, `__main__`, standard input and sys.argv are others in this process afterwards.
    """
    if "fork" in multiprocessing.get_all_start_methods():  # a worker finds this process's PyTorch
        multiprocessing.set_start_method("fork", force=True)
    printed = io.StringIO()
    sys.stdin, sys.argv = io.StringIO(text), [path]
    before = torch.random.default_generator.get_state()
    if library == "torch":
        share()
    failed = ""
    with contextlib.redirect_stdout(printed), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            contract.main(path, own, library, [], double)
        except Exception as error:
            failed = f"{type(error).__name__}: {error}"
    if not torch.equal(before, torch.random.default_generator.get_state()):
        failed = failed or "PyTorch has drawn numbers of its own"
    return contract.Run(printed.getvalue().splitlines(), failed)


def share():
    """From now on PyTorch draws from tinytorch's generators, and has its simulate."""
    ranks.install()
    torch.set_default_dtype = for_both(torch.set_default_dtype)
    for name in DRAWING:
        setattr(torch, name, drawing(getattr(tinytorch, name)))
    for name in FILLING:
        setattr(torch.Tensor, name, filling(getattr(tinytorch.Tensor, name)))
    torch.Tensor.random_ = a_seed
    torch.nn.functional.dropout = dropout
    torch.utils.data.dataset.randperm = torch.randperm  # it has imported the name
    torch.manual_seed = tinytorch.manual_seed
    torch.Generator = tinytorch.Generator
    for module in (torch, torch.random):
        module.get_rng_state = lambda: theirs(tinytorch.get_rng_state())
        module.set_rng_state = lambda state: tinytorch.set_rng_state(ours(state))


def for_both(set_default_dtype):
    """set_default_dtype of PyTorch, for what tinytorch draws too."""

    def set_both(dtype):
        set_default_dtype(dtype)
        tinytorch.set_default_dtype(getattr(tinytorch, str(dtype).removeprefix("torch.")))

    return set_both


def ours(tensor):
    return tinytorch.tensor(tensor.detach().numpy())


def theirs(tensor):
    return torch.from_numpy(np.array(tensor.numpy()))


def drawing(function):
    """A function of tinytorch that returns random numbers, for PyTorch's tensors."""

    def draw(*args, generator=None, requires_grad=False):
        args = [ours(each) if isinstance(each, torch.Tensor) else each for each in args]
        if generator is torch.default_generator:  # the default of random_split
            generator = None
        return theirs(function(*args, generator=generator)).requires_grad_(requires_grad)

    return draw


def filling(method):
    """A method of tinytorch's tensors that fills them, for PyTorch's."""

    def fill(self, *args, generator=None):
        values = tinytorch.zeros(tuple(self.shape))
        method(values, *args, generator=generator)
        return self.copy_(theirs(values))

    return fill


def a_seed(self, generator=None):
    """random_: a DataLoader draws its seeds so."""
    return self.fill_(tinytorch.randint(1 << 62, (), generator=generator).item())


def dropout(input, p=0.5, training=True, inplace=False):  # noqa: A002 (PyTorch's name)
    return input * (torch.rand(*input.shape) >= p) / (1 - p) if training and p else input
