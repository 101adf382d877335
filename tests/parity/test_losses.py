"""The arguments of losses, their gradients, and the names of their nodes, as in PyTorch."""

import inspect
import itertools
import warnings

import numpy as np
import pytest

import tinytorch

torch = pytest.importorskip("torch", reason="PyTorch is not installed", exc_type=ImportError)


def x(t):
    return t.tensor([[0.2, 0.7], [0.6, 0.4]], requires_grad=True)


def truth(t):
    return t.tensor([[1.0, 0.0], [0.0, 0.5]])


def classes(t):
    return t.tensor([0, 1])


INPUTS = {
    "mse_loss": (truth,),
    "l1_loss": (truth,),
    "smooth_l1_loss": (truth,),
    "binary_cross_entropy": (truth,),
    "binary_cross_entropy_with_logits": (truth,),
    "kl_div": (truth,),
    "cross_entropy": (classes,),
    "nll_loss": (classes,),
}
MODULES = {
    "mse_loss": "MSELoss",
    "l1_loss": "L1Loss",
    "smooth_l1_loss": "SmoothL1Loss",
    "binary_cross_entropy": "BCELoss",
    "binary_cross_entropy_with_logits": "BCEWithLogitsLoss",
    "kl_div": "KLDivLoss",
    "cross_entropy": "CrossEntropyLoss",
    "nll_loss": "NLLLoss",
}


def outcome(function):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        value = function()
    value = value.tolist() if hasattr(value, "tolist") else value
    return value, {warning.category for warning in caught}


@pytest.mark.parametrize("name", INPUTS)
def test_arguments(name):
    """PyTorch's without size_average and reduce; behind their places, only by name."""

    def names(t, name):
        parameters = inspect.signature(getattr(t, name)).parameters
        return [p for p in parameters if p not in ("size_average", "reduce", "weight")]

    assert names(tinytorch.nn.functional, name) == names(torch.nn.functional, name)
    assert names(tinytorch.nn, MODULES[name]) == names(torch.nn, MODULES[name])
    inputs = [make(tinytorch) for make in INPUTS[name]]
    for wrong in ((None, False), (None, None, "sum")):
        with pytest.raises(TypeError):
            getattr(tinytorch.nn.functional, name)(x(tinytorch), *inputs, *wrong)
    with pytest.raises(TypeError):
        getattr(tinytorch.nn, MODULES[name])(None, None, "sum")
    with pytest.raises(ValueError, match="reduction"):
        getattr(tinytorch.nn.functional, name)(x(tinytorch), *inputs, reduction="max")


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("name", sorted(INPUTS.keys() - {"kl_div"}))
def test_names_of_nodes(name, reduction):
    def node(t):
        inputs = [make(t) for make in INPUTS[name]]
        return getattr(t.nn.functional, name)(x(t), *inputs, reduction=reduction).grad_fn.name()

    assert node(tinytorch) == node(torch)


@pytest.mark.parametrize("weight", [None, [2.0, 0.5]])
@pytest.mark.parametrize("target", [[0, -1, 1], [-1, -1, -1]])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_rows_that_do_not_count(weight, target, reduction, smoothing):
    """Neither in the loss nor in its gradients, the second ones included."""

    def call(t):
        logits = t.tensor([[0.2, 0.7], [3.0, -1.0], [0.6, 0.4]], requires_grad=True)
        loss = t.nn.functional.cross_entropy(
            logits,
            t.tensor(target),
            weight=None if weight is None else t.tensor(weight),
            ignore_index=-1,
            reduction=reduction,
            label_smoothing=smoothing,
        )
        (first,) = t.autograd.grad(loss.sum(), logits, create_graph=True)
        (second,) = t.autograd.grad((first * first).sum(), logits)
        return [loss.tolist(), first.tolist(), second.tolist()]

    for ours, theirs in zip(call(tinytorch), call(torch), strict=True):
        ours, theirs = torch.tensor(ours), torch.tensor(theirs)
        assert ours.allclose(theirs, atol=1e-6, equal_nan=True)


SHAPES = [(4, 3), (3,), (2, 3, 2), (2, 3, 2, 2)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("kind", ["classes", "probabilities", "any numbers"])
def test_cross_entropy_with_all_its_arguments(shape, kind):
    """The loss and the first and second derivative, also those of a target."""
    rng = np.random.default_rng(0)
    logits = rng.normal(size=shape)
    if kind == "classes":
        target = rng.integers(0, 3, (*shape[:1], *shape[2:]) if shape[1:] else ())
        ignored = (-100, int(target.reshape(-1)[0]))
    else:
        powers = np.exp(rng.normal(size=shape))
        target = powers / powers.sum(int(len(shape) > 1), keepdims=True)
        target, ignored = (target if kind == "probabilities" else target * 3 - 1), (-100,)
    cotangents = rng.normal(size=(3, *shape))

    def call(t, weight, ignore_index, reduction, smoothing):
        x, truth = t.tensor(logits, requires_grad=True), t.tensor(target)
        inputs = [x, truth.requires_grad_()] if kind != "classes" else [x]
        loss = t.nn.functional.cross_entropy(
            x,
            truth,
            weight=None if weight is None else t.tensor(weight, dtype=t.float64),
            ignore_index=ignore_index,
            reduction=reduction,
            label_smoothing=smoothing,
        )
        g = t.tensor(cotangents[0].reshape(-1)[: loss.numel()].reshape(loss.shape))
        first = t.autograd.grad(loss, inputs, g, create_graph=True)
        parts = zip(first, cotangents[1:], strict=False)
        total = sum((part * t.tensor(cotangent)).sum() for part, cotangent in parts)
        second = t.autograd.grad(total, inputs, allow_unused=True)
        return [None if value is None else value.tolist() for value in (loss, *first, *second)]

    options = itertools.product(
        (None, [2.0, 0.5, 0.0], [1.0, 3.0, 0.25]), ignored, ("mean", "sum", "none"), (0.0, 0.3, 1.0)
    )
    for given in options:
        ours, theirs = call(tinytorch, *given), call(torch, *given)
        for mine, other in zip(ours, theirs, strict=True):
            mine, other = (np.zeros(()) if part is None else part for part in (mine, other))
            np.testing.assert_allclose(
                *np.broadcast_arrays(mine, other), rtol=1e-9, atol=1e-12, err_msg=str(given)
            )


def test_a_weight_with_a_gradient_is_refused():
    for t in (torch, tinytorch):
        with pytest.raises(RuntimeError):
            t.nn.functional.cross_entropy(x(t), classes(t), t.ones(2, requires_grad=True))


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_a_weight_with_a_gradient_beside_probabilities(reduction, smoothing):
    def call(t):
        weight = t.tensor([2.0, 0.5], dtype=t.float64, requires_grad=True)
        options = {"reduction": reduction, "label_smoothing": smoothing}
        loss = t.nn.functional.cross_entropy(x(t), truth(t), weight, **options)
        (first,) = t.autograd.grad(loss.sum(), weight)
        return loss.tolist(), first.tolist(), str(loss.dtype).split(".")[1]

    (loss, first, dtype), theirs = call(tinytorch), call(torch)
    assert loss == pytest.approx(theirs[0]) and first == pytest.approx(theirs[1])
    assert dtype == theirs[2] == "float64"


@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (2, 3, 4), (2, 3, 4, 5)])
@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_a_dimension_that_nobody_gave(name, shape):
    def call(t):
        x = t.arange(float(torch.Size(shape).numel())).reshape(shape)
        return outcome(lambda: getattr(t.nn.functional, name)(x))

    (ours, caught), (theirs, expected) = call(tinytorch), call(torch)
    assert torch.tensor(ours).allclose(torch.tensor(theirs))
    assert caught == expected == {UserWarning}
    assert repr(tinytorch.nn.Softmax()) == repr(torch.nn.Softmax()) == "Softmax(dim=None)"


@pytest.mark.parametrize("name", ["mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"])
def test_shapes_that_are_broadcast(name):
    def call(t):
        column = t.tensor([[0.2], [3.0]], requires_grad=True)
        row = t.tensor([0.7, 0.1, -2.0], requires_grad=True)
        loss, caught = outcome(lambda: getattr(t.nn.functional, name)(column, row))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            getattr(t.nn.functional, name)(column, row, reduction="sum").backward()
        return [loss, *column.grad.reshape(-1).tolist(), *row.grad.tolist()], caught

    (ours, caught), (theirs, expected) = call(tinytorch), call(torch)
    assert ours == pytest.approx(theirs, abs=1e-6) and caught == expected == {UserWarning}


@pytest.mark.parametrize("name", ["elu", "gelu", "silu", "softplus"])
def test_names_of_curves(name):
    def node(t):
        return getattr(t.nn.functional, name)(x(t)).grad_fn.name()

    assert node(tinytorch) == node(torch)
