"""Recurrent layers against PyTorch's: values, both derivatives, state dicts both ways."""

import itertools
import warnings

import numpy as np
import pytest

import tinytorch

torch = pytest.importorskip("torch", reason="PyTorch is not installed", exc_type=ImportError)

KINDS = ["RNN", "LSTM", "GRU"]
FORMS = ["batch", "unbatched", "packed", "unsorted"]
LENGTHS = {"packed": [4, 3, 1], "unsorted": [2, 4, 3]}
OPTIONS = [
    dict(zip(("num_layers", "bidirectional", "batch_first", "bias"), values, strict=True))
    for values in itertools.product([1, 2], [False, True], [False, True], [True, False])
]


def run(t, kind, options, form, x, states, weights):
    """Outputs, gradients and gradients of a sum of squares of gradients, and the module."""
    net = getattr(t.nn, kind)(2, 3, **options).double()
    if weights is not None:
        net.load_state_dict({name: t.tensor(value) for name, value in weights.items()})
    utils, first = t.nn.utils.rnn, options["batch_first"]
    x = t.tensor(x).requires_grad_()
    states = [t.tensor(s).requires_grad_() for s in states]
    lengths, inputs = LENGTHS.get(form), x
    if lengths:
        inputs = utils.pack_padded_sequence(x, t.tensor(lengths), first, form == "packed")
    out, last = net(inputs, tuple(states) if kind == "LSTM" else states[0])
    if lengths:
        out = utils.pad_packed_sequence(out, first)[0]
    outputs, rng = [out, *(last if kind == "LSTM" else (last,))], np.random.default_rng(3)

    def mix(values):
        return sum((v * t.tensor(rng.normal(size=tuple(v.shape)))).sum() for v in values)

    leaves = [x, *states, *net.parameters()]
    grads = t.autograd.grad(mix(outputs), leaves, create_graph=True)
    second = t.autograd.grad(mix([g * g for g in grads]), leaves, allow_unused=True)
    found = [*outputs, *grads, *(g for g in second if g is not None)]
    return [value.detach().numpy() for value in found], net


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", KINDS)
def test_values_and_two_derivatives(kind, form):
    rng = np.random.default_rng(0)
    for options in OPTIONS:
        if kind == "RNN":
            options = {**options, "nonlinearity": "relu" if options["batch_first"] else "tanh"}
        shape = (3, 4, 2) if options["batch_first"] else (4, 3, 2)
        batch = () if form == "unbatched" else (3,)
        x = rng.normal(size=(4, 2) if form == "unbatched" else shape)
        rows = options["num_layers"] * (1 + options["bidirectional"])
        states = [rng.normal(size=(rows, *batch, 3)) for _ in range(1 + (kind == "LSTM"))]
        expected, net = run(torch, kind, options, form, x, states, None)
        weights = {name: value.numpy() for name, value in net.state_dict().items()}
        found, ours = run(tinytorch, kind, options, form, x, states, weights)
        assert repr(ours) == repr(net)
        for mine, theirs in zip(found, expected, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-7, atol=1e-9, err_msg=str(options))


@pytest.mark.parametrize("name", [*KINDS, "RNNCell", "LSTMCell", "GRUCell"])
@pytest.mark.parametrize("bias", [True, False])
def test_state_dicts_go_both_ways(name, bias, tmp_path):
    options = {"bias": bias}
    if name in KINDS:
        options |= {"num_layers": 2, "bidirectional": True}
    theirs = getattr(torch.nn, name)(2, 3, **options)
    ours = getattr(tinytorch.nn, name)(2, 3, **options)
    torch.save(theirs.state_dict(), tmp_path / "theirs.pt")
    tinytorch.save(ours.state_dict(), tmp_path / "ours.pt")
    mine = {key: value.clone() for key, value in ours.state_dict().items()}
    assert not ours.load_state_dict(tinytorch.load(tmp_path / "theirs.pt")).missing_keys
    for key, value in theirs.state_dict().items():
        np.testing.assert_array_equal(ours.state_dict()[key].numpy(), value.numpy())
    assert str(theirs.load_state_dict(torch.load(tmp_path / "ours.pt"))) == (
        "<All keys matched successfully>"
    )
    for key, value in theirs.state_dict().items():
        np.testing.assert_array_equal(mine[key].numpy(), value.numpy())


def call(function, *args, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return function(*args, **options)


ERRORS = {
    "float size": lambda t: t.nn.LSTM(2, 3.0),
    "dropout": lambda t: t.nn.LSTM(2, 3, 2, dropout=True),
    "nonlinearity": lambda t: t.nn.RNN(2, 3, nonlinearity="sin"),
    "4D": lambda t: t.nn.LSTM(2, 3)(t.zeros(1, 1, 1, 2)),
    "size": lambda t: t.nn.GRU(2, 3)(t.zeros(4, 1, 5)),
    "type": lambda t: t.nn.LSTM(2, 3)(t.zeros(4, 1, 2).double()),
    "no time": lambda t: t.nn.LSTM(2, 3)(t.zeros(0, 1, 2)),
    "hidden": lambda t: t.nn.GRU(2, 3)(t.zeros(4, 1, 2), t.zeros(1, 2, 3)),
    "hidden type": lambda t: t.nn.GRU(2, 3)(t.zeros(4, 1, 2), t.zeros(1, 1, 3).double()),
    "cell state": lambda t: t.nn.LSTM(2, 3)(t.zeros(4, 1, 2), (t.zeros(1, 1, 3), t.zeros(1, 1, 4))),
    "cell 3D": lambda t: t.nn.LSTMCell(2, 3)(t.zeros(1, 1, 2)),
    "cell hidden": lambda t: t.nn.RNNCell(2, 3)(t.zeros(1, 2), t.zeros(2, 3)),
    "unsorted": lambda t: t.nn.utils.rnn.pack_padded_sequence(t.zeros(4, 2), [1, 2]),
    "length 0": lambda t: t.nn.utils.rnn.pack_padded_sequence(t.zeros(4, 2), [2, 0]),
    "lengths": lambda t: t.nn.utils.rnn.pack_padded_sequence(t.zeros(4, 2), [3]),
    "none": lambda t: t.nn.utils.rnn.pad_sequence([]),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name):
    with pytest.raises(Exception) as theirs:
        call(ERRORS[name], torch)
    with pytest.raises(theirs.type):
        call(ERRORS[name], tinytorch)


def test_packed_sequences_have_the_same_fields():
    def pack(t):
        return t.nn.utils.rnn.pack_sequence([t.arange(3), t.arange(4), t.arange(3)], False)

    theirs, ours = pack(torch), pack(tinytorch)
    for mine, theirs_ in zip(ours, theirs, strict=True):
        assert mine.tolist() == theirs_.tolist()
    assert ours._fields == theirs._fields
