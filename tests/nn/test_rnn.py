"""Recurrent layers, their cells and nn.utils.rnn, on each device; PyTorch is in tests/parity."""

import warnings

import numpy as np
import pytest

import tinytorch
from tests.derivatives import second_derivatives
from tinytorch import nn, tensor
from tinytorch.autograd import gradcheck, gradgradcheck
from tinytorch.nn.utils import rnn


def numbers(*shape, device="cpu", seed=0):
    array = np.random.default_rng(seed).normal(size=shape)
    return tensor(array, device=device, requires_grad=True)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def plain_step(kind, x, y, h, c=None):
    """One time step in NumPy, from the two products."""
    if kind == "GRU":
        (xr, xz, xn), (yr, yz, yn) = np.split(x, 3, -1), np.split(y, 3, -1)
        z, n = sigmoid(xz + yz), np.tanh(xn + sigmoid(xr + yr) * yn)
        return (1 - z) * n + z * h, None
    if kind == "LSTM":
        i, f, g, o = np.split(x + y, 4, -1)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        return sigmoid(o) * np.tanh(c), c
    return (np.tanh(x + y) if kind == "RNN" else np.maximum(x + y, 0)), None


def plain(kind, net, x, states, reverse=False, layer=0):
    """One direction of one layer in NumPy: outputs, last states."""
    end = "_reverse" if reverse else ""
    w_ih, w_hh, b_ih, b_hh = (
        getattr(net, f"{name}_l{layer}{end}").numpy(force=True)
        for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    )
    (h, c), outputs = (*states, None)[:2], []
    for row in x[::-1] if reverse else x:
        h, c = plain_step(kind, row @ w_ih.T + b_ih, h @ w_hh.T + b_hh, h, c)
        outputs.append(h)
    return np.stack(outputs[::-1] if reverse else outputs), h, c


KINDS = {"RNN": nn.RNN, "relu": nn.RNN, "LSTM": nn.LSTM, "GRU": nn.GRU}


def make(kind, *args, device="cpu", **options):
    tinytorch.manual_seed(0)
    if kind == "relu":
        options["nonlinearity"] = "relu"
    return KINDS[kind](*args, **options).double().to(device)


def as_states(kind, *states):
    return states if kind == "LSTM" else states[0]


def flat(out, last):
    return (out, *(last if isinstance(last, tuple) else (last,)))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("reverse", [False, True])
def test_a_layer_against_numpy(device, kind, reverse):
    net = make(kind, 2, 3, bidirectional=True, device=device)
    x, states = numbers(4, 5, 2, device=device), [numbers(2, 5, 3, seed=s) for s in (1, 2)]
    out, last = net(x, as_states(kind, *(s.to(device) for s in states)))
    given = [s[int(reverse)].numpy(force=True) for s in states[: 1 + (kind == "LSTM")]]
    expected, h, c = plain(kind, net, x.numpy(force=True), given, reverse)
    half = out.numpy(force=True)[..., 3:] if reverse else out.numpy(force=True)[..., :3]
    np.testing.assert_allclose(half, expected)
    last = last if kind == "LSTM" else (last,)
    for found, wanted in zip(last, (h, c), strict=False):
        np.testing.assert_allclose(found[int(reverse)].numpy(force=True), wanted)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("options", [{}, {"bidirectional": True, "bias": False}], ids=str)
def test_derivatives(device, kind, packed, options):
    net = make(kind, 2, 2, device=device, **options)
    x = numbers(3, 2, 2, device=device)
    directions = 1 + net.bidirectional
    states = [numbers(directions, 2, 2, device=device, seed=s) for s in (1, 2)]
    states = states if kind == "LSTM" else states[:1]

    def run(x, *values):
        for (name, _), value in zip(list(net.named_parameters()), values, strict=False):
            del net._parameters[name]
            net.__dict__[name] = value
        given = values[-len(states) :]
        try:
            inputs = rnn.pack_padded_sequence(x, [3, 2]) if packed else x
            out, last = net(inputs, as_states(kind, *given))
            return flat(out.data if packed else out, last)
        finally:
            for name, param in params.items():
                net.__dict__.pop(name, None)
                net._parameters[name] = param

    params = dict(net._parameters)
    weights = [p.detach().requires_grad_() for p in net.parameters()]
    assert gradcheck(run, (x, *weights, *states))
    assert second_derivatives(run, (x, *weights, *states))


@pytest.mark.parametrize("kind", KINDS)
def test_layers_dropout_and_forms_of_the_input(kind):
    net = make(kind, 2, 3, 2, dropout=0.5)
    x = numbers(4, 5, 2)
    out, last = net(x)
    assert out.shape == (4, 5, 3) and flat(out, last)[1].shape == (2, 5, 3)
    assert not np.allclose(out.detach().numpy(), net(x)[0].detach().numpy())  # dropout
    net.eval()
    out = net(x)[0].detach().numpy()
    np.testing.assert_array_equal(out, net(x)[0].detach().numpy())
    first = plain(kind, net, x.detach().numpy(), [np.zeros((5, 3))] * 2)[0]
    expected = plain(kind, net, first, [np.zeros((5, 3))] * 2, layer=1)[0]
    np.testing.assert_allclose(out, expected)
    net.batch_first = True
    turned = net(x.transpose(0, 1))[0].detach().numpy()
    np.testing.assert_allclose(turned.swapaxes(0, 1), out)
    alone, last = net(x[:, 0])
    np.testing.assert_allclose(alone.detach().numpy(), out[:, 0])
    assert flat(alone, last)[1].shape == (2, 3)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bidirectional", [False, True])
def test_packed_sequences_are_as_each_alone(device, kind, bidirectional):
    net = make(kind, 2, 3, 2, bidirectional=bidirectional, device=device)
    sequences = [numbers(n, 2, device=device, seed=n) for n in (2, 4, 1)]
    states = [numbers(2 * (1 + bidirectional), 3, 3, device=device, seed=s) for s in (7, 8)]
    out, last = net(rnn.pack_sequence(sequences, False), as_states(kind, *states))
    found, last = rnn.unpack_sequence(out), flat(0, last)[1:]
    for i, sequence in enumerate(sequences):
        own, own_last = net(sequence[:, None], as_states(kind, *(s[:, i : i + 1] for s in states)))
        np.testing.assert_allclose(found[i].numpy(force=True), own[:, 0].numpy(force=True))
        for mine, theirs in zip(last, flat(0, own_last)[1:], strict=True):
            np.testing.assert_allclose(
                mine[:, i : i + 1].numpy(force=True), theirs.numpy(force=True)
            )


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_types_are_kept(dtype):
    pytest.importorskip("ml_dtypes")
    dtype = getattr(tinytorch, dtype)
    for kind in KINDS:
        net = make(kind, 4, 8).to(dtype)
        out, last = net(tinytorch.randn(3, 2, 4).to(dtype))
        assert all(x.dtype is dtype for x in flat(out, last))
        out.sum().backward()
        assert all(p.grad.dtype is dtype for p in net.parameters())


def test_unused_outputs_and_frozen_weights():
    net = make("LSTM", 2, 3)
    x = numbers(4, 1, 2)
    net.weight_hh_l0.requires_grad_(False)
    net(x)[1][1].sum().backward()  # only the last cell state
    assert net.weight_hh_l0.grad is None and x.grad.shape == x.shape
    with tinytorch.no_grad():
        assert not net(x)[0].requires_grad


def test_one_tensor_in_two_roles():
    net = make("RNN", 3, 3, bias=False)
    weight = net.weight_ih_l0
    x = numbers(4, 2, 3)

    def run(w):
        from tinytorch.nn.modules.rnn_loops import TanhLoop

        rows = [slice(2 * t, 2 * t + 2) for t in range(4)]
        start = tinytorch.zeros(2, 3, dtype=tinytorch.float64)
        return TanhLoop.apply(x.detach().flatten(0, 1), w, w, None, None, rows, start)[0]

    weight = weight.detach().requires_grad_()
    assert gradcheck(run, (weight,)) and gradgradcheck(run, (weight,))
    # The slow way, which can be differentiated again, counts no gradient twice.
    for tied in (run, lambda w: run(w.T * 2)):
        fast, slow = (
            tinytorch.autograd.grad(tied(weight).sum(), weight, create_graph=again)[0]
            for again in (False, True)
        )
        np.testing.assert_allclose(slow.detach().numpy(), fast.numpy())


@pytest.mark.parametrize("name", ["RNNCell", "LSTMCell", "GRUCell"])
def test_cells_are_steps_of_layers(device, name):
    tinytorch.manual_seed(0)
    cell = getattr(nn, name)(2, 3).double().to(device)
    layer = make(name.removesuffix("Cell"), 2, 3, device=device)
    layer.load_state_dict({f"{k}_l0": v for k, v in cell.state_dict().items()})
    x, state, outputs = numbers(4, 5, 2, device=device), None, []
    for row in x:
        state = cell(row, state)
        outputs.append(state[0] if name == "LSTMCell" else state)
    expected = layer(x)[0].numpy(force=True)
    np.testing.assert_allclose(tinytorch.stack(outputs).numpy(force=True), expected)
    alone = cell(x[0, 0])
    np.testing.assert_allclose(
        flat(0, alone)[1].numpy(force=True), expected[0, 0], rtol=1e-6, atol=1e-12
    )
    check = (lambda x, w: cell(x)) if name != "LSTMCell" else (lambda x, w: cell(x)[0])
    assert gradgradcheck(lambda x: check(x, None), (x[0].detach().requires_grad_(),))


def test_names_and_first_numbers():
    tinytorch.manual_seed(0)
    net = nn.LSTM(4, 9, 2, bidirectional=True)
    names = [name for name, _ in net.named_parameters()]
    assert names[:4] == ["weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"]
    assert names[4] == "weight_ih_l0_reverse" and names[8] == "weight_ih_l1" and len(names) == 16
    assert net.weight_ih_l1.shape == (36, 18)
    tinytorch.manual_seed(0)
    for name in names:  # drawn in this order
        drawn = tinytorch.empty(net.get_parameter(name).shape).uniform_(-1 / 3, 1 / 3)
        np.testing.assert_array_equal(net.get_parameter(name).detach().numpy(), drawn.numpy())
    assert [len(weights) for weights in net.all_weights] == [4] * 4
    assert net.flatten_parameters() is None
    assert net._flat_weights_names == list(net.state_dict())
    expected = "LSTM(4, 9, num_layers=2, bidirectional=True)"
    assert repr(net) == expected and repr(nn.RNNCell(2, 3, nonlinearity="relu")) == (
        "RNNCell(2, 3, nonlinearity=relu)"
    )


REFUSED = [
    (TypeError, lambda: nn.LSTM(2, 3.0)),
    (TypeError, lambda: nn.LSTM(2, 3, 1, 1)),
    (ValueError, lambda: nn.GRU(0, 3)),
    (ValueError, lambda: nn.GRU(2, 3, dropout=2)),
    (ValueError, lambda: nn.RNN(2, 3, nonlinearity="sin")),
    (NotImplementedError, lambda: nn.LSTM(2, 3, proj_size=2)),
    (ValueError, lambda: nn.LSTM(2, 3)(tinytorch.zeros(1, 1, 1, 2))),
    (RuntimeError, lambda: nn.LSTM(2, 3)(tinytorch.zeros(4, 1, 5))),
    (ValueError, lambda: nn.LSTM(2, 3)(tinytorch.zeros(4, 1, 2).double())),
    (RuntimeError, lambda: nn.LSTM(2, 3)(tinytorch.zeros(0, 1, 2))),
    (RuntimeError, lambda: nn.GRU(2, 3)(tinytorch.zeros(4, 1, 2), tinytorch.zeros(1, 3))),
    (RuntimeError, lambda: nn.GRU(2, 3)(tinytorch.zeros(4, 1, 2), tinytorch.zeros(1, 2, 3))),
    (ValueError, lambda: nn.LSTMCell(2, 3)(tinytorch.zeros(1, 1, 2))),
    (RuntimeError, lambda: nn.RNNCell(2, 3)(tinytorch.zeros(1, 2), tinytorch.zeros(2, 3))),
    (RuntimeError, lambda: nn.RNNCell(2, 3, nonlinearity="sin")(tinytorch.zeros(1, 2))),
    (RuntimeError, lambda: rnn.pack_padded_sequence(tinytorch.zeros(4, 2), [1, 2])),
    (RuntimeError, lambda: rnn.pack_padded_sequence(tinytorch.zeros(4, 2), [5, 2])),
    (RuntimeError, lambda: rnn.pack_padded_sequence(tinytorch.zeros(4, 2), [3])),
    (RuntimeError, lambda: rnn.pad_sequence([])),
    (RuntimeError, lambda: rnn.pad_sequence([tinytorch.zeros(2)], padding_side="top")),
    (
        ValueError,
        lambda: rnn.pad_packed_sequence(rnn.pack_sequence([tinytorch.zeros(3)]), False, 0, 2),
    ),
]


@pytest.mark.parametrize("number", range(len(REFUSED)))
def test_what_is_refused(number):
    error, call = REFUSED[number]
    with pytest.raises(error):
        call()


def test_dropout_of_one_layer_warns():
    with pytest.warns(UserWarning, match="between layers"):
        nn.GRU(2, 3, dropout=0.5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        nn.GRU(2, 3, 2, dropout=0.5)


def test_pad_and_pack(device):
    sequences = [tinytorch.arange(n, device=device) for n in (2, 4, 1)]
    padded = rnn.pad_sequence(sequences, batch_first=True, padding_value=-1)
    assert padded.tolist() == [[0, 1, -1, -1], [0, 1, 2, 3], [0, -1, -1, -1]]
    left = rnn.pad_sequence(sequences, padding_side="left")
    assert left[:, 0].tolist() == [0, 0, 0, 1] and str(left.device) == device
    lengths = tensor([2, 4, 1])
    packed = rnn.pack_padded_sequence(padded, lengths, True, enforce_sorted=False)
    assert packed.data.tolist() == [0, 0, 0, 1, 1, 2, 3]
    assert packed.batch_sizes.tolist() == [3, 2, 1, 1]
    assert packed.sorted_indices.tolist() == [1, 0, 2] == packed.unsorted_indices.tolist()
    again, found = rnn.pad_packed_sequence(packed, True, -1, total_length=5)
    assert again[:, :4].tolist() == padded.tolist() and again[:, 4].tolist() == [-1] * 3
    assert found.tolist() == lengths.tolist()
    assert [x.tolist() for x in rnn.unpad_sequence(padded, lengths, True)] == [
        x.tolist() for x in rnn.unpack_sequence(packed)
    ]
    assert packed.to(packed.data.dtype) is packed
    assert packed.float().data.dtype is tinytorch.float32 and not packed.is_cuda


def test_batch_sizes_are_on_the_cpu(strict_device):
    with pytest.raises(ValueError, match="CPU"):
        rnn.PackedSequence(tinytorch.zeros(1), tensor([1], device=strict_device))


def test_padding_is_differentiable(device):
    x = numbers(4, 3, 2, device=device)

    def there_and_back(x):
        packed = rnn.pack_padded_sequence(x, [2, 4, 1], enforce_sorted=False)
        return packed.data * packed.data, rnn.pad_packed_sequence(packed)[0]

    assert gradcheck(there_and_back, (x,)) and gradgradcheck(there_and_back, (x,))


@pytest.mark.parametrize("frozen", ["bias_ih_l0", "bias_hh_l0"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_frozen_bias_leaves_the_other_its_gradient(kind, frozen):
    net = make(kind, 3, 2)
    x = numbers(4, 2, 3)
    wanted = tinytorch.autograd.grad(net(x)[0].square().sum(), list(net.parameters()))
    getattr(net, frozen).requires_grad_(False)
    net(x)[0].square().sum().backward()
    for (name, param), expected in zip(net.named_parameters(), wanted, strict=True):
        if name == frozen:
            assert param.grad is None
        else:
            np.testing.assert_allclose(param.grad.numpy(), expected.numpy())
