"""What programs of other people use: older names and arguments, operands of NumPy, settings."""

import io
import operator
import pickle
import warnings
from argparse import Namespace
from fractions import Fraction

import numpy as np
import pytest

import tinytorch

torch = pytest.importorskip("torch", reason="PyTorch is not installed", exc_type=ImportError)

BOTH = torch, tinytorch


def same(function):
    """function(torch), after a check that function(tinytorch) is the same."""
    theirs, ours = function(torch), function(tinytorch)
    assert ours == theirs
    return theirs


ARRAYS = [np.array([1.5, 2.0, 3.0]), np.array([1, 2, 3], np.float32), np.array([3, 1, 2])]


@pytest.mark.parametrize("array", ARRAYS, ids=lambda array: str(array.dtype))
@pytest.mark.parametrize("name", "add sub mul truediv floordiv mod pow ipow isub".split())
@pytest.mark.parametrize("dtype", ["float32", "float64", "int64"])
@pytest.mark.filterwarnings("ignore:__array_wrap__")
def test_an_array_as_the_other_operand(name, array, dtype):
    """The values. (PyTorch lets NumPy find the type: float32 and int64 are float64 there.)"""
    if name[0] == "i" and (dtype == "int64" or array.dtype == np.float64):
        return  # the result would not fit into the tensor
    call = getattr(operator, name)
    results = [call(lib.tensor([4, 5, 6], dtype=getattr(lib, dtype)), array) for lib in BOTH]
    np.testing.assert_allclose(results[1].numpy(), results[0].numpy(), rtol=1e-6)
    if array.dtype.kind == "f" and dtype.startswith("float"):
        assert str(results[1].dtype).split(".")[1] == str(results[0].dtype).split(".")[1]


SCHEDULERS = {
    "StepLR": (3,),
    "MultiStepLR": ([2, 5, 5],),
    "ExponentialLR": (0.9,),
    "CosineAnnealingLR": (7, 0.1),
    "LambdaLR": (lambda epoch: 1 / (1 + epoch),),
    "LinearLR": (0.2,),
    "ConstantLR": (0.3, 3),
    "PolynomialLR": (5, 2.0),
    "CosineAnnealingWarmRestarts": (3, 2),
    "OneCycleLR": (1.0, 20),
}


@pytest.mark.parametrize("name", SCHEDULERS)
@pytest.mark.filterwarnings("ignore:The epoch parameter", "ignore:.*was not necessary")
def test_the_epoch_may_be_given(name):
    def rates(lib):
        optimizer = lib.optim.SGD([lib.zeros(1, requires_grad=True)], lr=0.5)
        scheduler, seen = getattr(lib.optim.lr_scheduler, name)(optimizer, *SCHEDULERS[name]), []
        for epoch in (7, 0, 3, None, 5, 2, None):
            optimizer.step()
            scheduler.step(epoch)
            seen.append((scheduler.last_epoch, scheduler.get_last_lr()[0]))
        return seen

    np.testing.assert_allclose(rates(tinytorch), rates(torch), rtol=1e-12)


def test_a_given_epoch_is_warned_about():
    for lib in BOTH:
        optimizer = lib.optim.SGD([lib.zeros(1, requires_grad=True)], lr=0.5)
        scheduler = lib.optim.lr_scheduler.StepLR(optimizer, 3)
        optimizer.step()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            scheduler.step(2)
        (warning,) = caught
        assert str(warning.message).startswith("The epoch parameter in `scheduler.step()` was not")


SWITCHES = [
    (a, b) for a in (None, True, False) for b in (None, True, False) if (a, b) != (None,) * 2
]
PAIRS = {
    "mse_loss": "MSELoss",
    "l1_loss": "L1Loss",
    "smooth_l1_loss": "SmoothL1Loss",
    "binary_cross_entropy": "BCELoss",
    "binary_cross_entropy_with_logits": "BCEWithLogitsLoss",
    "kl_div": "KLDivLoss",
    "nll_loss": "NLLLoss",
    "cross_entropy": "CrossEntropyLoss",
    "margin_ranking_loss": "MarginRankingLoss",
    "cosine_embedding_loss": "CosineEmbeddingLoss",
    "triplet_margin_loss": "TripletMarginLoss",
}


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("size_average, reduce", SWITCHES)
def test_losses_take_size_average_and_reduce(name, size_average, reduce):
    def losses(lib):
        x, y = lib.tensor([[0.2, 0.7], [0.6, 0.4]]), lib.tensor([[1.0, 0.0], [0.0, 0.5]])
        target = {
            "nll_loss": (lib.tensor([0, 1]),),
            "cross_entropy": (lib.tensor([0, 1]),),
            "cosine_embedding_loss": (y, lib.tensor([1.0, -1.0])),
            "margin_ranking_loss": (y, y.sign()),
            "triplet_margin_loss": (y, y + 0.3),
        }.get(name, (y,))
        found, said = [], []
        for call in (
            lambda: getattr(lib.nn.functional, name)(
                x, *target, size_average=size_average, reduce=reduce
            ),
            lambda: getattr(lib.nn, PAIRS[name])(size_average=size_average, reduce=reduce)(
                x, *target
            ),
        ):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                found.append(call().numpy())
            said.append(
                {str(each.message) for each in caught if "size_average" in str(each.message)}
            )
        return found, said

    (theirs, they_say), (ours, we_say) = losses(torch), losses(tinytorch)
    for a, b in zip(theirs, ours, strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-6)
    assert we_say == they_say and all(len(each) == 1 for each in we_say)


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_register_backward_hook_sees_what_arrives_at_the_output():
    def seen(lib):
        found = []
        net = lib.nn.Sequential(lib.nn.Linear(2, 3), lib.nn.Tanh())
        for each in net.parameters():
            each.data.fill_(0.5)
        handle = net[1].register_backward_hook(
            lambda module, given, arrived: found.append((given[0].tolist(), arrived[0].tolist()))
        )
        x = lib.tensor([[1.0, 2.0]])
        net(x).sum().backward()
        handle.remove()
        net(x).sum().backward()
        return np.array(found)

    np.testing.assert_allclose(seen(tinytorch), seen(torch), rtol=1e-6)
    with pytest.warns(FutureWarning, match="register_full_backward_hook"):
        tinytorch.nn.Linear(2, 3).register_backward_hook(print)


def test_shifts():
    def results(lib):
        x, bytes_ = lib.tensor([1, 2, 5]), lib.tensor([100, -100], dtype=lib.int8)
        changed = x.clone()
        changed <<= 1
        changed.bitwise_right_shift_(2)
        found = [
            x << 2,
            x >> 1,
            2 << x,
            100 >> x,
            x << x,
            x << 70,
            x >> -1,
            bytes_ << 1,
            bytes_ >> 9,
        ]
        found += [lib.bitwise_left_shift(x, 2), lib.bitwise_right_shift(9, x), changed]
        return [(each.tolist(), str(each.dtype).split(".")[1]) for each in found]

    same(results)
    for lib in BOTH:
        with pytest.raises(NotImplementedError):
            lib.tensor([1.5]) << 1
        with pytest.raises(TypeError):
            lib.tensor([1]) << None


@pytest.mark.parametrize("name", ["std_mean", "var_mean"])
def test_a_spread_along_an_axis(name):
    def results(lib):
        x = lib.tensor([[1.0, 2.0, 4.0], [0.0, 3.0, 3.5]])
        return [each.tolist() for each in getattr(lib, name)(x, axis=1, keepdim=True)]

    np.testing.assert_allclose(results(tinytorch), results(torch), rtol=1e-6)


class Config:
    def __init__(self, width):
        self.width = width


def test_safe_globals():
    for lib in BOTH:
        file = io.BytesIO()
        state = {"a": lib.ones(2), "args": Namespace(lr=0.1), "c": [Config(3)], "f": Fraction(1, 3)}
        lib.save({**state, "kind": Config}, file)

        def load(lib=lib, file=file):
            file.seek(0)
            return lib.load(file, weights_only=True)

        with pytest.raises(pickle.UnpicklingError):
            load()
        with lib.serialization.safe_globals([Namespace, Config]):
            assert {Namespace, Config} <= set(lib.serialization.get_safe_globals())
            with pytest.raises(pickle.UnpicklingError, match="Fraction"):
                load()
            lib.serialization.add_safe_globals([(Fraction, "fractions.Fraction")])
            found = load()
            assert found["args"] == Namespace(lr=0.1) and found["f"] == Fraction(1, 3)
            assert type(found["c"][0]) is Config and found["c"][0].width == 3
            assert found["kind"] is Config and found["a"].tolist() == [1.0, 1.0]
        assert Config not in lib.serialization.get_safe_globals()
        with pytest.raises(pickle.UnpicklingError):
            load()
    # What is not allowed stays so: an object that calls something else, or takes other attributes.
    file = io.BytesIO()
    tinytorch.save({"c": Config(3), "evil": Evil()}, file)
    file.seek(0)
    with tinytorch.serialization.safe_globals([Config]):
        with pytest.raises(pickle.UnpicklingError, match="print"):
            tinytorch.load(file)


class Evil:
    def __reduce__(self):
        return print, ("the file has called print",)
