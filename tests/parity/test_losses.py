"""The arguments of losses in PyTorch's order, with those of before 2018; the names of nodes."""

import inspect
import warnings

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
    "triplet_margin_loss": (truth, x),
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
    "triplet_margin_loss": "TripletMarginLoss",
}
OLD = [
    {"size_average": False},
    {"size_average": True, "reduction": "sum"},
    {"reduce": False},
    {"size_average": False, "reduce": True},
]


def outcome(function):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        value = function()
    value = value.tolist() if hasattr(value, "tolist") else value
    return value, {warning.category for warning in caught}


@pytest.mark.parametrize("options", OLD, ids=str)
@pytest.mark.parametrize("name", INPUTS)
def test_old_arguments(name, options):
    def call(t):
        inputs = [make(t) for make in INPUTS[name]]
        return outcome(lambda: getattr(t.nn.functional, name)(x(t), *inputs, **options))

    def module(t):
        return outcome(lambda: getattr(t.nn, MODULES[name])(**options).reduction)

    (ours, caught), (theirs, expected) = call(tinytorch), call(torch)
    assert torch.tensor(ours).allclose(torch.tensor(theirs), atol=1e-6)
    assert caught == expected == {UserWarning}
    assert module(tinytorch) == module(torch)


@pytest.mark.parametrize("name", INPUTS)
def test_places_of_the_arguments(name):
    def places(t, name):
        return [p for p in inspect.signature(getattr(t, name)).parameters if p != "weight"]

    assert places(tinytorch.nn.functional, name) == places(torch.nn.functional, name)
    assert places(tinytorch.nn, MODULES[name]) == places(torch.nn, MODULES[name])


def test_by_place():
    def call(t):
        F = t.nn.functional
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return [
                F.binary_cross_entropy(x(t), truth(t), None, False).item(),
                F.cross_entropy(x(t), classes(t), None, None, 1, None, "sum", 0.1).item(),
                F.nll_loss(x(t), classes(t), t.ones(2), None, 1).item(),
                t.nn.CrossEntropyLoss(t.ones(2), None, -1, None, "sum", 0.5).label_smoothing,
                t.nn.SmoothL1Loss(None, None, "sum", 0.5).beta,
                t.nn.MSELoss(reduction="elementwise_mean")(x(t), truth(t)).item(),
            ]

    assert call(tinytorch) == pytest.approx(call(torch))


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("name", [*sorted(INPUTS.keys() - {"kl_div", "triplet_margin_loss"})])
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


def test_a_weight_with_a_gradient_is_refused():
    for t in (torch, tinytorch):
        with pytest.raises(RuntimeError):
            t.nn.functional.cross_entropy(x(t), classes(t), t.ones(2, requires_grad=True))


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


@pytest.mark.parametrize("name", ["elu", "celu", "gelu", "silu", "softplus", "hardtanh", "relu6"])
def test_names_of_curves(name):
    def node(t):
        return getattr(t.nn.functional, name)(x(t)).grad_fn.name()

    assert node(tinytorch) == node(torch)
