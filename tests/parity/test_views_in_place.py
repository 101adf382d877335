"""Small random programs of views and in-place writes: the gradient is PyTorch's, or an error."""

import random

import numpy as np
import pytest

import tinytorch
from tinytorch.ops import reduction, shape, storage  # noqa: F401  (attach their methods)

torch = pytest.importorskip("torch", reason="PyTorch is not installed")


def random_view(rng, y):
    """A function that makes a view, fit for the tensor y."""
    dim = rng.randrange(y.ndim) if y.ndim else 0
    size = y.shape[dim] if y.ndim else 0
    kind = rng.choice(["transpose", "reshape", "narrow", "unfold", "as_strided", "select", "more"])
    if not size or kind == "more" or y.ndim == 4:
        return lambda z: z.unsqueeze(0) if z.ndim < 4 else z
    if kind == "transpose":
        return lambda z: z.transpose(dim, -1)
    if kind == "reshape":
        return lambda z: z.reshape(-1)
    start = rng.randrange(size)
    length = rng.randrange(size - start) + 1
    step = rng.choice([1, length, length + 1])
    if kind == "narrow":
        return lambda z: z.narrow(dim, start, length)
    if kind == "select":
        return lambda z: z.select(dim, start)
    if kind == "unfold":
        return lambda z: z.unfold(dim, length, step)
    sizes = tuple(rng.choice([1, 2, 3]) for _ in range(rng.randrange(1, 3)))
    stride = tuple(rng.choice([1, 2, 3, 4, 6]) for _ in sizes)
    offset = rng.choice([None, 0, 1, 3])
    return lambda z: z.as_strided(sizes, stride, offset)


def overlaps(y):
    """Whether two elements of a PyTorch tensor lie on one place, which PyTorch does not look at."""
    places = torch.arange(y.untyped_storage().size() // y.element_size())
    places = places.as_strided(y.shape, y.stride(), y.storage_offset()).reshape(-1)
    return len(set(places.tolist())) < y.numel()


def run(library, start, seed):
    """One random program. Returns the gradient, and the last tensor. RuntimeError where refused."""
    rng = random.Random(seed)
    x = library.tensor(start, requires_grad=True)
    tensors = [x.T * 2 if rng.random() < 0.3 else x * 2]
    for _ in range(rng.randrange(3, 9)):
        chosen = tensors[rng.randrange(len(tensors))]
        if rng.random() < 0.6:
            tensors.append(random_view(rng, chosen)(chosen))
        else:
            if library is torch and overlaps(chosen):
                raise RuntimeError("PyTorch would write twice to one place")
            number = rng.choice([2.0, 0.5])
            chosen.mul_(number) if rng.random() < 0.5 else chosen.add_(number)
    last = tensors[rng.randrange(len(tensors))]
    ((last * last).sum() + (tensors[0] * 3).sum()).backward()
    return x.grad.tolist(), last.tolist()


def test_random_programs_get_pytorchs_gradients():
    equal = 0
    for seed in range(600):
        start = np.random.default_rng(seed).standard_normal((3, 4))
        try:
            ours = run(tinytorch, start, seed)
        except RuntimeError:
            continue  # refused: never a wrong gradient
        gradient, last = run(torch, start, seed)
        np.testing.assert_allclose(ours[0], gradient, err_msg=f"seed {seed}")
        np.testing.assert_allclose(ours[1], last, err_msg=f"seed {seed}")
        equal += 1
    assert equal > 300
