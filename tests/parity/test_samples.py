"""Every operation that tinytorch has, on PyTorch's samples: values, shapes, dtypes, gradients, and
the types of errors. `pytest tests/parity -k "sum"` looks at one."""

import warnings

import numpy as np
import pytest

import tinytorch

torch = pytest.importorskip("torch", reason="PyTorch is not installed", exc_type=ImportError)

from tests.parity import samples  # noqa: E402  (it imports PyTorch)
from tests.parity.samples import Unsupported, carry_sample, carry_tensor, name_of  # noqa: E402

DTYPES = {
    "float32": torch.float32,
    "float64": torch.float64,
    "int64": torch.int64,
    "bool": torch.bool,
}
TOLERANCES = {"float32": (2e-5, 2e-5), "float64": (1e-7, 1e-7)}
OPERATIONS = samples.operations()


def flat(value):
    """The leaves of nested tuples and lists."""
    if isinstance(value, (tuple, list)):
        return [leaf for item in value for leaf in flat(item)]
    return [value]


def assert_same(ours, theirs, values=True):
    assert type(ours) is tinytorch.Tensor or not isinstance(theirs, torch.Tensor), type(ours)
    if not isinstance(theirs, torch.Tensor):
        both = [x for x in (ours, theirs) if isinstance(x, float)]
        assert ours == theirs or (len(both) == 2 and np.allclose(*both, equal_nan=True))
        return
    dtype = str(theirs.dtype).removeprefix("torch.")
    assert (ours.dtype.name, tuple(ours.shape)) == (dtype, tuple(theirs.shape))
    if values:
        rtol, atol = TOLERANCES.get(dtype, (0, 0))
        if dtype == "bfloat16":
            ours, theirs = ours.float(), theirs.float()
        np.testing.assert_allclose(
            ours.numpy(force=True),
            theirs.detach().numpy(force=True),
            rtol=rtol,
            atol=atol,
            equal_nan=True,
        )


def assert_same_gradients(ours, theirs, pairs):
    """The gradients of all outputs, weighted with the same random numbers, for all inputs."""
    outs = [
        (x, y)
        for x, y in zip(ours, theirs, strict=True)
        if isinstance(y, torch.Tensor) and y.requires_grad
    ]
    for x, _ in outs:
        assert x.requires_grad, "a gradient should flow to an output"
    if not outs:
        return
    torch.manual_seed(1)
    weights = [torch.randn(y.shape, dtype=y.dtype) for _, y in outs]
    try:
        expected = torch.autograd.grad(
            [y for _, y in outs], [t for t, _ in pairs], weights, allow_unused=True
        )
    except NotImplementedError:
        return  # a derivative that PyTorch lacks
    found = tinytorch.autograd.grad(
        [x for x, _ in outs],
        [t for _, t in pairs],
        [carry_tensor(weight) for weight in weights],
        allow_unused=True,
    )
    for mine, theirs in zip(found, expected, strict=True):
        if mine is None and theirs is not None and theirs.numel() == 0:
            continue  # the gradient of nothing
        assert (mine is None) == (theirs is None), "one of the two has no gradient"
        if mine is not None:
            assert_same(mine, theirs)


def cases():
    for op in OPERATIONS:
        for name, dtype in DTYPES.items():
            if dtype in op.dtypes:
                yield pytest.param(op, dtype, id=f"{name_of(op)}-{name}")


def run_samples(op, dtype, function, reference):
    """Compares `function` with `reference` on every sample, and says on which one it differs."""
    gradients = dtype.is_floating_point and op.supports_autograd
    done = 0
    for number, sample in enumerate(samples.samples_of(op, dtype, gradients)):
        try:
            args, kwargs, pairs = carry_sample(sample)
        except Unsupported as reason:
            samples.left_out[str(reason)] += 1
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                theirs = flat(reference(sample.input, *sample.args, **sample.kwargs))
            except (RuntimeError, TypeError) as error:
                if op.op is reference:
                    continue  # a sample that PyTorch itself cannot run on this machine
                with pytest.raises(type(error)):
                    function(*args, **kwargs)
                done += 1
                continue
        try:
            ours = flat(function(*args, **kwargs))
            assert len(ours) == len(theirs)
            for x, y in zip(ours, theirs, strict=True):
                tied = op.name in samples.UNSTABLE and not dtype.is_floating_point
                index = isinstance(y, torch.Tensor) and y.dtype == torch.int64
                assert_same(x, y, op.name not in samples.RANDOM and not (tied and index))
            if pairs and gradients and op.name not in samples.RANDOM:
                assert_same_gradients(ours, theirs, pairs)
        except Exception as error:
            refused = [why for part, why in samples.REFUSED.items() if part in str(error)]
            if refused:
                samples.left_out[refused[0]] += 1
                continue
            raise AssertionError(f"sample {number}: {sample.summary()}\n{error}") from error
        done += 1
    samples.compared[op.name] += done
    if not done:
        pytest.skip("no sample without something that tinytorch leaves out")


@pytest.mark.parametrize("op, dtype", list(cases()))
def test_samples(op, dtype):
    run_samples(op, dtype, samples.find(op.name), op.op)


def in_place_cases():
    for op in OPERATIONS:
        name = getattr(op.inplace_variant, "__name__", "")
        if not hasattr(tinytorch.Tensor, name) or op.name in samples.RANDOM:
            continue
        for dtype in ("float64", "int64"):
            if DTYPES[dtype] in op.dtypes:
                yield pytest.param(op, name, DTYPES[dtype], id=f"{name_of(op)}-{dtype}")


@pytest.mark.parametrize("op, name, dtype", list(in_place_cases()))
def test_in_place(op, name, dtype):
    """On a clone, so that the tensor written to is no leaf; errors as PyTorch raises them."""
    run_samples(
        op,
        dtype,
        lambda x, *args, **kwargs: getattr(x.clone(), name)(*args, **kwargs),
        lambda x, *args, **kwargs: getattr(x.clone(), name)(*args, **kwargs),
    )


@pytest.mark.parametrize("op", OPERATIONS, ids=name_of)
def test_errors(op):
    """What PyTorch refuses, tinytorch refuses with the same type of exception."""
    done = 0
    for number, wrong in enumerate(samples.error_samples_of(op)):
        sample = wrong.sample_input
        try:
            args, kwargs, _ = carry_sample(sample, op.name.startswith("__"))
        except Unsupported as reason:
            samples.left_out[str(reason)] += 1
            continue
        try:
            result = samples.find(op.name)(*args, **kwargs)
        except wrong.error_type:
            done += 1
            continue
        except Exception as error:
            result = error
        raise AssertionError(
            f"wrong input {number}: {sample.summary()}\nshould raise {wrong.error_type} "
            f"({wrong.error_regex}), but gave {result!r}"
        )
    if not done:
        pytest.skip("PyTorch lists no wrong input that tinytorch could be given")
