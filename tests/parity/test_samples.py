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
OTHER_DTYPES = {name: getattr(torch, name) for name in ("float16", "bfloat16", "uint8", "int32")}
TOTAL = (torch.float32, torch.float64)  # in whose samples no element comes twice
TOLERANCES = {
    "float32": (2e-5, 2e-5),
    "float64": (1e-7, 1e-7),
    "float16": (4e-3, 4e-3),
    "bfloat16": (3e-2, 3e-2),
}
OPERATIONS = samples.operations()


def flat(value):
    """The leaves of nested tuples and lists."""
    if isinstance(value, (tuple, list)):
        return [leaf for item in value for leaf in flat(item)]
    return [value]


def assert_same(ours, theirs, values=True, loose=1):
    """Compares type, shape and, with `values`, the values, to `loose` times the tolerance."""
    assert type(ours) is tinytorch.Tensor or not isinstance(theirs, torch.Tensor), type(ours)
    if not isinstance(theirs, torch.Tensor):
        both = [x for x in (ours, theirs) if isinstance(x, float)]
        assert ours == theirs or (len(both) == 2 and np.allclose(*both, equal_nan=True))
        return
    dtype = str(theirs.dtype).removeprefix("torch.")
    assert (ours.dtype.name, tuple(ours.shape)) == (dtype, tuple(theirs.shape))
    if values:
        rtol, atol = (loose * tolerance for tolerance in TOLERANCES.get(dtype, (0, 0)))
        if dtype == "bfloat16":
            ours, theirs = ours.float(), theirs.float()
        np.testing.assert_allclose(
            ours.numpy(force=True),
            theirs.detach().numpy(force=True),
            rtol=rtol,
            atol=atol,
            equal_nan=True,
        )


def assert_same_gradients(ours, theirs, pairs, loose=1):
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
        if theirs is None and mine is not None and not mine.any():
            continue  # zeros, where PyTorch leaves the gradient out
        assert (mine is None) == (theirs is None), "one of the two has no gradient"
        if mine is not None:
            assert_same(mine, theirs, loose=loose)


def cases(dtypes):
    for op in OPERATIONS:
        for name, dtype in dtypes.items():
            if dtype in op.dtypes:
                yield pytest.param(op, dtype, id=f"{name_of(op)}-{name}")


def run_samples(op, dtype, function, reference, most=samples.MOST):
    """Compares `function` with `reference` on every sample, and says on which one it differs."""
    gradients = dtype in DTYPES.values() and dtype.is_floating_point and op.supports_autograd
    done, loose = 0, samples.LOOSE.get(op.name, 1)
    for number, sample in enumerate(samples.samples_of(op, dtype, gradients, most)):
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
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # PyTorch may warn, so may we
                ours = flat(function(*args, **kwargs))
            assert len(ours) == len(theirs)
            for x, y in zip(ours, theirs, strict=True):
                tied = op.name in samples.UNSTABLE and dtype not in TOTAL
                index = isinstance(y, torch.Tensor) and y.dtype == torch.int64
                values = op.name not in samples.RANDOM and not (tied and index)
                assert_same(x, y, values, loose)
            if pairs and gradients and op.name not in samples.RANDOM:
                assert_same_gradients(ours, theirs, pairs, loose)
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


@pytest.mark.parametrize("op, dtype", list(cases(DTYPES)))
def test_samples(op, dtype):
    run_samples(op, dtype, samples.find(op.name), op.op)


@pytest.mark.parametrize("op, dtype", list(cases(OTHER_DTYPES)))
def test_other_dtypes(op, dtype):
    reference = op.op
    if op.name in samples.ROUNDED_OFTEN and dtype.itemsize == 2:

        def reference(*args, **kwargs):
            args = [x.float() if isinstance(x, torch.Tensor) else x for x in args]
            return op.op(*args, **kwargs).to(dtype)

    run_samples(op, dtype, samples.find(op.name), reference, samples.FEW)


@pytest.mark.parametrize("op", [op for op in OPERATIONS if op.method_variant], ids=name_of)
def test_methods(op):
    """What PyTorch has as a method is a method, and gives the same; so do the other names."""
    name = getattr(op.method_variant, "__name__", "<lambda>")
    dtype = torch.float64 if torch.float64 in op.dtypes else torch.int64
    for alias in op.aliases:
        if "." not in alias.name:
            assert hasattr(tinytorch, alias.name), f"{op.name} is also called {alias.name}"
            assert not alias.method_variant or hasattr(tinytorch.Tensor, alias.name)
    if name != "<lambda>":
        method = getattr(tinytorch.Tensor, name)
        run_samples(op, dtype, method, op.method_variant, samples.FEW)


def second_gradients(grad, outs, inputs, weights):
    """The gradients of the gradients of `outs`, both times with weights. What is no tensor of the
    graph, or has no gradient, counts as zero."""
    options = {"create_graph": True, "allow_unused": True}
    outs = [(y, w) for y, w in zip(outs, weights, strict=True) if y.requires_grad]
    first = grad([y for y, _ in outs], inputs, [w for _, w in outs], **options)
    first = [(g, x) for g, x in zip(first, inputs, strict=True) if g is not None]
    first = [(g, x) for g, x in first if g.requires_grad]
    if not first:
        return [None] * len(inputs)
    weights = [x.detach() for _, x in first]
    return grad([g for g, _ in first], inputs, weights, allow_unused=True)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "op",
    [op for op in OPERATIONS if op.supports_gradgrad and op.name != "as_strided"],
    ids=name_of,
)
def test_second_derivatives(op):
    """The gradients of the gradients."""
    done = 0
    float64 = torch.float64 in op.dtypes and op.name not in samples.RANDOM
    for sample in samples.samples_of(op, torch.float64, True, samples.FEW) if float64 else ():
        try:
            args, kwargs, pairs = carry_sample(sample)
            theirs = flat(op.op(sample.input, *sample.args, **sample.kwargs))
            theirs = [y if y.is_floating_point() else y.double() for y in theirs]
            torch.manual_seed(2)
            weights = [torch.randn_like(y) for y in theirs]
            expected = second_gradients(torch.autograd.grad, theirs, [x for x, _ in pairs], weights)
        except (Unsupported, NotImplementedError, RuntimeError, AttributeError):
            continue  # PyTorch itself has no such derivative
        found = second_gradients(
            tinytorch.autograd.grad,
            flat(samples.find(op.name)(*args, **kwargs)),
            [x for _, x in pairs],
            [carry_tensor(weight) for weight in weights],
        )
        for mine, theirs, (x, _) in zip(found, expected, pairs, strict=True):
            zero = np.zeros(x.shape)
            np.testing.assert_allclose(
                zero if mine is None else mine.numpy(force=True),
                zero if theirs is None else theirs.numpy(force=True),
                rtol=1e-6,
                atol=1e-7,
                err_msg=str(sample.summary()),
            )
            done += 1
    if not done:
        pytest.skip("nothing that PyTorch differentiates twice")


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


@pytest.mark.filterwarnings("ignore")
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
            op.op(sample.input, *sample.args, **sample.kwargs)
            continue  # PyTorch itself takes it
        except wrong.error_type:
            pass
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
