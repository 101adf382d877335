"""Optimizers: groups, closures, hooks, state, and the chunks that they run on."""

import copy

import numpy as np
import pytest

import tinytorch
from tinytorch import nn, optim, tensor
from tinytorch.core.device import backends
from tinytorch.optim.flat import chunk_slices

EVERY = [
    (optim.SGD, {"lr": 0.1}),
    (optim.SGD, {"lr": 0.1, "momentum": 0.9, "dampening": 0.3, "weight_decay": 0.1}),
    (optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True, "maximize": True}),
    (optim.Adam, {"lr": 0.1}),
    (optim.Adam, {"lr": 0.1, "weight_decay": 0.1}),
    (optim.AdamW, {"lr": 0.1, "maximize": True}),
    (optim.RMSprop, {"lr": 0.01, "momentum": 0.5, "weight_decay": 0.1}),
    (optim.Adagrad, {"lr": 0.1, "lr_decay": 0.1, "initial_accumulator_value": 0.1}),
    (optim.Adadelta, {"lr": 0.5, "rho": 0.8, "weight_decay": 0.1}),
    (optim.Adamax, {"lr": 0.1, "weight_decay": 0.1}),
]
IDS = [f"{cls.__name__}-{'-'.join(options)}" for cls, options in EVERY]


def parameters(device="cpu", dtype=tinytorch.float32):
    rng = np.random.default_rng(0)
    shapes = [(3, 4), (), (0, 2), (210, 200), (5,)]
    return [
        tensor(rng.normal(size=shape), dtype=dtype, device=device, requires_grad=True)
        for shape in shapes
    ]


def run(cls, options, params, steps=3, seed=1):
    opt = cls(params, **options)
    rng = np.random.default_rng(seed)
    for _ in range(steps):
        for p in params:
            p.grad = tensor(rng.normal(size=tuple(p.shape)), dtype=p.dtype, device=p.device)
        opt.step()
    return opt


@pytest.mark.parametrize(("cls", "options"), EVERY, ids=IDS)
def test_each_device_computes_the_same_and_keeps_the_type(cls, options, device):
    for dtype in (tinytorch.float32, tinytorch.float64):
        here, there = parameters(dtype=dtype), parameters(device, dtype)
        run(cls, options, here)
        opt = run(cls, options, there)
        for a, b in zip(here, there, strict=True):
            assert b.dtype is dtype and b.device == tinytorch.device(device)
            np.testing.assert_allclose(b.detach().cpu().numpy(), a.detach().numpy(), rtol=1e-5)
        kept = [v for s in opt.state.values() for k, v in s.items() if k != "step"]
        assert all(v.dtype is dtype and v.device == tinytorch.device(device) for v in kept)


@pytest.mark.parametrize(("cls", "options"), EVERY, ids=IDS)
def test_gaps_in_memory_and_the_size_of_chunks_change_nothing(cls, options, monkeypatch):
    plain, gaps, small = parameters(), parameters(), parameters()
    gaps[3] = tensor(np.asfortranarray(gaps[3].detach().numpy()), requires_grad=True)
    gaps[3] = tinytorch.as_tensor(gaps[3].detach().numpy().T.copy()).T.requires_grad_()
    assert not gaps[3].is_contiguous()
    run(cls, options, plain)
    run(cls, options, gaps)
    monkeypatch.setattr(backends["cpu"], "chunk_elements", 48)
    monkeypatch.setattr(optim.flat, "few_elements", 4)
    run(cls, options, small)
    for a, b, c in zip(plain, gaps, small, strict=True):
        np.testing.assert_allclose(b.detach().numpy(), a.detach().numpy(), rtol=1e-6)
        np.testing.assert_allclose(c.detach().numpy(), a.detach().numpy(), rtol=1e-6)


@pytest.mark.parametrize(("cls", "options"), EVERY, ids=IDS)
def test_a_saved_state_continues_as_if_nothing_had_happened(cls, options):
    whole, halves = parameters(), parameters()
    first = run(cls, options, whole, 3)
    saved = copy.deepcopy(run(cls, options, halves, 3).state_dict())
    second = cls(halves, **{**options, "lr": 7.0})
    second.load_state_dict(saved)
    assert second.param_groups[0]["lr"] == options["lr"]
    for opt, params in ((first, whole), (second, halves)):
        for p in params:
            p.grad = tinytorch.ones_like(p)
        opt.step()
    for a, b in zip(whole, halves, strict=True):
        assert (a == b).all()


def test_chunks_cover_everything_once():
    for size in (0, 1, 15, 16, 17, 32, 33, 100):
        chunks = chunk_slices(size, 32)
        assert all(0 < chunk.stop - chunk.start <= 32 for chunk in chunks)
        assert [i for chunk in chunks for i in range(size)[chunk]] == list(range(size))
        assert len(chunk_slices(size, None)) == (size > 0)


def test_a_step_is_a_write_that_saved_tensors_notice():
    w = tensor([2.0], requires_grad=True)
    y = w * w
    w.grad = tensor([1.0])
    optim.SGD([w], lr=0.1).step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()


def test_groups_have_options_of_their_own():
    a, b, c = (tensor([1.0], requires_grad=True) for _ in range(3))
    opt = optim.SGD([{"params": [a]}, {"params": b, "lr": 1.0}], lr=0.1)
    opt.add_param_group({"params": [c], "lr": 0.0})
    for p in (a, b, c):
        p.grad = tensor([1.0])
    opt.step()
    assert [round(p.item(), 6) for p in (a, b, c)] == [0.9, 0.0, 1.0]
    with pytest.raises(ValueError, match="more than one parameter group"):
        opt.add_param_group({"params": [a]})


def test_named_parameters_keep_their_names():
    net = nn.Linear(2, 3)
    opt = optim.Adam(net.named_parameters())
    assert opt.state_dict()["param_groups"][0]["param_names"] == ["weight", "bias"]


def test_what_has_no_gradient_does_not_move():
    a, b = tensor([1.0], requires_grad=True), tensor([1.0], requires_grad=True)
    opt = optim.Adam([a, b], lr=0.1)
    for number in range(4):
        a.grad, b.grad = tensor([1.0]), tensor([1.0]) if number % 2 else None
        opt.step()
    assert (opt.state[a]["step"].item(), opt.state[b]["step"].item()) == (4.0, 2.0)
    assert a.item() == pytest.approx(0.6) and b.item() == pytest.approx(0.8)


def test_a_step_count_set_by_the_program_counts():
    p = tinytorch.ones(1, requires_grad=True)
    optimizer = optim.Adam([p], lr=0.1)
    for grad in (1.0, 3.0):  # the second step is bias-corrected as the one that the count says
        p.grad = tensor([grad])
        if grad == 3.0:
            optimizer.state[p]["step"].fill_(9.0)
        optimizer.step()
    mean, square = 0.9 * 0.1 * 1.0 + 0.1 * 3.0, 0.999 * 0.001 * 1.0 + 0.001 * 9.0
    mean, square = mean / (1 - 0.9**10), square / (1 - 0.999**10)
    assert p.item() == pytest.approx(1 - 0.1 - 0.1 * mean / (square**0.5 + 1e-8), abs=1e-6)
    assert optimizer.state[p]["step"].item() == 10


@pytest.mark.parametrize("options", [{}, {"momentum": 0.5}], ids=str)
def test_a_parameter_listed_twice_moves_twice(options):
    p = tinytorch.ones(2, requires_grad=True)
    with pytest.warns(UserWarning, match="duplicate"):
        optimizer = optim.SGD([p, p], lr=0.25, **options)
    p.grad = tensor([1.0, 2.0])
    optimizer.step()
    # Momentum: the second move finds 1 and 2 there, and goes 1.5 times as far.
    moves = 2.5 if options else 2.0
    assert p.tolist() == [1 - 0.25 * moves, 1 - 0.5 * moves]


def test_zero_grad():
    a = tensor([1.0], requires_grad=True)
    opt = optim.SGD([a])
    opt.zero_grad()
    assert a.grad is None
    held = a.grad = tensor([3.0])
    opt.zero_grad(set_to_none=False)
    assert a.grad.tolist() == [0.0] and held.tolist() == [0.0]  # in the same memory
    a.grad.add_(1)
    assert held.tolist() == [1.0]


def test_closure_and_hooks():
    w, calls = tensor([4.0], requires_grad=True), []
    opt = optim.SGD([w], lr=0.25)
    handle = opt.register_step_pre_hook(lambda opt, args, kwargs: calls.append("before"))
    opt.register_step_post_hook(lambda opt, args, kwargs: calls.append("after"))

    def closure():
        calls.append("closure")
        opt.zero_grad()
        loss = (w * w).sum()
        loss.backward()
        return loss

    assert opt.step(closure).item() == 16.0
    assert w.item() == 2.0
    handle.remove()
    opt.step(closure)
    assert calls == ["before", "closure", "after", "closure", "after"]


def test_the_state_is_one_flat_array_and_a_replaced_one_is_taken_in():
    params = parameters()
    opt = run(optim.Adam, {}, params)
    states = [opt.state[p]["exp_avg"] for p in params if p.numel() < 1000]
    assert len(states) > 1 and len({id(s.array.base) for s in states}) == 1
    opt.state[params[0]]["exp_avg"] = tinytorch.zeros(3, 4)
    opt.step()
    assert (opt.state[params[0]]["exp_avg"] != 0).any()


@pytest.mark.parametrize("shape", [(2, 3), (8, 4, 3), (4, 1), (3,)])
@pytest.mark.parametrize(("cls", "options"), EVERY[1:], ids=IDS[1:])
def test_the_state_of_a_parameter_of_another_shape_is_refused(cls, options, shape):
    saved = run(cls, options, [tensor(np.ones((4, 3)), requires_grad=True)]).state_dict()
    p = tensor(np.ones(shape), requires_grad=True)
    opt = cls([p], **options)
    opt.load_state_dict(saved)
    p.grad = tensor(np.ones(shape))
    with pytest.raises(RuntimeError, match=r"the shape \[4, 3\]"):
        opt.step()
    np.testing.assert_array_equal(p.detach().numpy(), np.ones(shape))


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda p: optim.SGD(p), TypeError),
        (lambda p: optim.SGD([]), ValueError),
        (lambda p: optim.SGD([1.0]), TypeError),
        (lambda p: optim.SGD({p}), None),
        (lambda p: optim.SGD([{"params": {p}}]), TypeError),
        (lambda p: optim.SGD([p * 2]), ValueError),
        (lambda p: optim.SGD([p], lr=-1), ValueError),
        (lambda p: optim.SGD([p], lr=float("nan")), ValueError),
        (lambda p: optim.SGD([p], nesterov=True), ValueError),
        (lambda p: optim.Adam([p], betas=(1.0, 0.5)), ValueError),
        (lambda p: optim.Adam([p], eps=-1), ValueError),
        (lambda p: optim.AdamW([p], weight_decay=-1), ValueError),
        (lambda p: optim.RMSprop([p], momentum=-1), ValueError),
        (lambda p: optim.Adagrad([p], lr_decay=-1), ValueError),
        (lambda p: optim.Adadelta([p], rho=1.1), ValueError),
        (lambda p: optim.Adamax([p], betas=(0.9, 1.0)), ValueError),
        (lambda p: optim.Adam([p], amsgrad=True), RuntimeError),
        (lambda p: optim.RMSprop([p], centered=True), RuntimeError),
        (lambda p: optim.Optimizer([p], {}).add_param_group([p]), TypeError),
        (lambda p: optim.SGD([("w", p), p]), ValueError),
        (lambda p: optim.SGD([p]).load_state_dict({"state": {}, "param_groups": []}), ValueError),
    ],
)
def test_errors(make, error):
    p = tensor([1.0], requires_grad=True)
    if error is None:
        make(p)
    else:
        with pytest.raises(error):
            make(p)


def test_the_base_class_says_what_is_missing():
    p = tensor([1.0], requires_grad=True)
    p.grad = tensor([1.0])
    with pytest.raises(NotImplementedError, match="update"):
        optim.Optimizer([p], {}).step()


@pytest.mark.parametrize(
    "name", ["SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "Adadelta", "Adamax"]
)
def test_switches_of_pytorchs_implementations_change_nothing(name):
    p = tinytorch.ones(3, requires_grad=True)
    getattr(tinytorch.optim, name)([p], foreach=False, differentiable=False)
    with pytest.raises(RuntimeError, match="differentiable"):
        getattr(tinytorch.optim, name)([p], differentiable=True)
    with pytest.raises(TypeError, match="learning_rate"):
        getattr(tinytorch.optim, name)([p], learning_rate=0.1)


def test_gradients_cut_element_by_element(device):
    p = tensor([1.0, 2.0, 3.0], device=device, requires_grad=True)
    p.grad = tensor([-5.0, 0.5, 5.0], device=device)
    assert nn.utils.clip_grad_value_([p, tensor([1.0])], 2.0) is None
    assert p.grad.tolist() == [-2.0, 0.5, 2.0]


def test_the_old_name_of_clipping_warns(device):
    p = tensor([3.0, 4.0], device=device, requires_grad=True)
    p.grad = tensor([3.0, 4.0], device=device)
    with pytest.warns(FutureWarning, match="clip_grad_norm_"):
        assert nn.utils.clip_grad_norm([p], max_norm=1.0).item() == 5.0
    assert p.grad.norm().item() == pytest.approx(1.0, abs=1e-5)


def test_a_vector_becomes_the_parameters(device):
    layer = nn.Linear(3, 2, device=device)
    vector = nn.utils.parameters_to_vector(layer.parameters()).detach() * 2
    before = layer.weight.detach().clone(), layer.bias
    assert nn.utils.vector_to_parameters(vector, layer.parameters()) is None
    assert tinytorch.equal(layer.weight, 2 * before[0])
    assert layer.bias is before[1]
    vector.zero_()  # their memory, as in PyTorch
    assert not layer.weight.any()
    with pytest.raises(TypeError, match="list"):
        nn.utils.vector_to_parameters([1.0], layer.parameters())
