"""autocast and GradScaler, on every device: which type an operation runs in, which type a gradient
arrives in, casts that are kept, and the course of the scale."""

import gc
import pickle
import threading
import warnings

import numpy as np
import pytest

import tinytorch
from tinytorch import amp, autocast, bfloat16, float16, float32, nn
from tinytorch.autograd.modes import FunctionMode
from tinytorch.core.state import open_modes


class Casts(FunctionMode):
    """Counts the casts that reach the Functions."""

    count = 0

    def call(self, function, args):
        self.count += function.__name__ == "Cast"
        return function.apply(*args)


def numbers(*shape, device):
    rng = np.random.default_rng(0)
    return tinytorch.tensor(rng.standard_normal(shape).astype("float32")).to(device)


def on(device, dtype=float16, **options):
    return autocast(tinytorch.device(device).type, dtype, **options)


def test_products_run_in_half_the_bits_and_losses_do_not(device):
    x, w = numbers(4, 3, device=device), numbers(3, 5, device=device)
    with on(device):
        y = x @ w
        loss = nn.functional.mse_loss(y, numbers(4, 5, device=device))
        assert (x + x).dtype is float32
    assert (y.dtype, loss.dtype) == (float16, float32)
    expected = x.half().float().cpu().numpy() @ w.half().float().cpu().numpy()
    np.testing.assert_allclose(y.float().cpu().numpy(), expected, rtol=1e-3, atol=1e-3)
    assert (x @ w).dtype is float32 and not open_modes


@pytest.mark.parametrize("name", ["exp", "log", "softmax", "sum", "cumsum", "log_softmax"])
def test_lists_of_cpu_and_of_other_devices(name, device):
    x = numbers(4, 3, device=device).abs().half()
    options = () if name in ("exp", "log", "sum") else (-1,)
    with on(device):
        found = getattr(x, name)(*options).dtype
    assert found is (float16 if device == "cpu" else float32)


def test_mixed_operands_and_their_gradients(device):
    x, w = numbers(4, 3, device=device).half(), numbers(5, 3, device=device).requires_grad_()
    b = numbers(5, device=device).requires_grad_()
    with pytest.raises(RuntimeError, match="same dtype"):
        nn.functional.linear(x, w, b)
    with on(device):
        y = nn.functional.linear(x, w, b)
    y.float().sum().backward()
    assert y.dtype is float16 and w.grad.dtype is b.grad.dtype is float32
    expected = np.tile(x.float().cpu().numpy().sum(0), (5, 1))
    np.testing.assert_allclose(w.grad.cpu().numpy(), expected, rtol=2e-3, atol=1e-3)


def test_float64_and_integers_are_left_alone(device):
    x = numbers(3, 3, device=device).double()
    with on(device):
        assert (x @ x).dtype is tinytorch.float64
        assert (x.long() @ x.long()).dtype is tinytorch.int64


def test_nesting(device, strict_device):
    x, type = numbers(3, 3, device=device), tinytorch.device(device).type
    outer = on(device)
    with outer:
        assert tinytorch.is_autocast_enabled(type)
        with on(device, enabled=False):
            assert (x @ x).dtype is float32 and not tinytorch.is_autocast_enabled(type)
            with outer:
                assert (x @ x).dtype is float16
            assert (x @ x).dtype is float32
        assert (x @ x).dtype is float16
        with autocast("cpu" if type != "cpu" else strict_device, float16):  # another type of device
            assert (x @ x).dtype is float16
    assert (x @ x).dtype is float32


def test_inner_type_wins(device):
    pytest.importorskip("ml_dtypes")
    x, type = numbers(3, 3, device=device), tinytorch.device(device).type
    with on(device), on(device, bfloat16):
        assert tinytorch.get_autocast_dtype(type) is bfloat16
        assert (x @ x).dtype is bfloat16
    assert tinytorch.get_autocast_dtype(type) is (bfloat16 if type == "cpu" else float16)


def test_decorator_and_threads(device):
    x, seen = numbers(3, 3, device=device), []

    @on(device)
    def product():
        return x @ x

    assert product().dtype is float16 and product.__name__ == "product"
    with on(device):
        thread = threading.Thread(target=lambda: seen.append((x @ x).dtype))
        thread.start()
        thread.join()
    assert seen == [float32]


def test_a_parameter_is_cast_once(device):
    w, x = numbers(3, 3, device=device).requires_grad_(), numbers(4, 3, device=device)
    for options, expected in ({}, 3 + 1), ({"cache_enabled": False}, 3 + 3):
        with Casts() as casts, on(device, **options):
            y = [x @ w for _ in range(3)]  # x is cast three times, w once or three times
        assert casts.count == expected
        sum(y).float().sum().backward()
    np.testing.assert_allclose(
        w.grad.cpu().numpy(), 6 * np.tile(x.cpu().numpy().sum(0), (3, 1)).T, rtol=1e-2, atol=1e-2
    )


def test_what_is_cast_without_a_graph_is_not_kept(device):
    w, x = numbers(3, 3, device=device).requires_grad_(), numbers(4, 3, device=device)
    with on(device):
        with tinytorch.no_grad():
            x @ w
        y = x @ w
    y.float().sum().backward()
    assert w.grad is not None
    with on(device), pytest.raises(RuntimeError, match="same dtype"):
        with on(device, enabled=False):
            x.half() @ w
    with on(device):  # two passes in one block go through the same cast
        (x @ w).float().sum().backward()
        (x @ w).float().sum().backward()


def test_settings_are_restored_after_an_error(device):
    x = numbers(3, 3, device=device)
    with pytest.raises(ZeroDivisionError), on(device):
        raise ZeroDivisionError
    assert (x @ x).dtype is float32 and not open_modes


def test_weighted_means_stay_in_float32(device):
    x = numbers(1, 2, 5, 5, device=device)
    for function in (
        lambda x: nn.functional.adaptive_avg_pool2d(x, 3),
        lambda x: nn.functional.interpolate(x, (7, 7), mode="bilinear"),
    ):
        with on(device):
            found = function(x)
        np.testing.assert_array_equal(found.cpu().numpy(), function(x).cpu().numpy())


def test_arguments_of_autocast(monkeypatch):
    with pytest.raises(ValueError, match="Expected `device_type` of type `str`"):
        autocast(float16)
    with pytest.raises(RuntimeError, match="device type"):
        autocast("nowhere")
    with pytest.warns(UserWarning, match="Disabling"):
        assert not autocast("cpu", float32).enabled
    if not tinytorch.cuda.is_available():
        with pytest.warns(UserWarning, match="CUDA is not available"):
            assert not autocast("cuda").enabled
    monkeypatch.setattr(bfloat16, "numpy", None)
    with pytest.raises(RuntimeError, match="ml_dtypes"):
        autocast("cpu")
    assert not autocast("cpu", enabled=False).enabled


def test_names_below_cuda():
    with pytest.warns(FutureWarning, match="cuda.amp.autocast"), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        assert tinytorch.cuda.amp.autocast(dtype=bfloat16).device_type == "cuda"
    with pytest.warns(FutureWarning, match="cuda.amp.GradScaler"), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        tinytorch.cuda.amp.GradScaler(init_scale=4.0)


def course(scaler, gradients, device="cpu"):
    """The scale after each step, and the parameter; its gradients are given."""
    w = tinytorch.zeros(2).to(device).requires_grad_()
    optimizer, scales = tinytorch.optim.SGD([w], lr=1.0), []
    for gradient in gradients:
        scaler.scale((w * gradient).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        scales.append(scaler.get_scale())
    return scales, w.detach().cpu().tolist()


def test_course_of_the_scale(device):
    scaler = amp.GradScaler(tinytorch.device(device).type, 8.0, growth_interval=2)
    inf, nan = float("inf"), float("nan")
    scales, w = course(scaler, [1.0, 1.0, inf, nan, 1.0, inf, 1.0, 1.0], device)
    assert scales == [8.0, 16.0, 8.0, 4.0, 4.0, 2.0, 2.0, 4.0]
    assert w == [-5.0, -5.0]  # the skipped steps moved nothing


def test_scaler_with_clipping_and_lists(device):
    w = tinytorch.tensor([3.0, 4.0]).to(device).requires_grad_()
    optimizer = tinytorch.optim.SGD([w], lr=1.0)
    scaler = amp.GradScaler(tinytorch.device(device).type, 1024.0)
    first, [second] = scaler.scale(((w * w).sum() / 2, [w.sum() * 0]))
    (first + second).backward()
    np.testing.assert_array_equal(w.grad.cpu().numpy(), [3072.0, 4096.0])
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_([w], 1.0)
    scaler.step(optimizer)
    np.testing.assert_allclose(w.detach().cpu().numpy(), [2.4, 3.2], rtol=1e-6)


def test_a_loss_of_halves_is_scaled_in_float32(device):
    loss = tinytorch.tensor([0.25]).half().to(device)
    scaler = amp.GradScaler(tinytorch.device(device).type)  # 2**16 is inf in float16
    for found, dtype in ((scaler.scale(loss), float16), (scaler.scale(loss[0]), float32)):
        assert (found.item(), found.dtype) == (16384.0, dtype)


def test_mistakes_with_the_scaler():
    w = tinytorch.ones(2).requires_grad_()
    optimizer, scaler = tinytorch.optim.SGD([w], lr=1.0), amp.GradScaler("cpu")
    for method in (scaler.step, scaler.unscale_):
        with pytest.raises(AssertionError, match="_scale is None"):
            method(optimizer)
    with pytest.raises(AssertionError, match="_scale is None"):
        scaler.update()
    scaler.scale(w.sum())
    with pytest.raises(AssertionError, match="for this optimizer"):
        scaler.step(optimizer)
    scaler = amp.GradScaler("cpu")
    loss = scaler.scale(w.sum())
    with pytest.raises(AssertionError, match="prior to update"):
        scaler.update()
    loss.backward()
    scaler.unscale_(optimizer)
    with pytest.raises(RuntimeError, match="already been called on this optimizer"):
        scaler.unscale_(optimizer)
    scaler.step(optimizer)
    with pytest.raises(RuntimeError, match="step.. has already been called"):
        scaler.step(optimizer)
    with pytest.raises(RuntimeError, match="after step"):
        scaler.unscale_(optimizer)
    with pytest.raises(RuntimeError, match="Closure"):
        scaler.step(optimizer, closure=lambda: 0)
    with pytest.raises(ValueError, match="must be a Tensor"):
        scaler.scale(1.0)
    half = tinytorch.ones(2, dtype=float16).requires_grad_()
    scaler.scale(half.sum() * 0).backward()
    with pytest.raises(ValueError, match="FP16"):
        scaler.unscale_(tinytorch.optim.SGD([half], lr=1.0))
    with pytest.raises(AssertionError, match="growth"):
        amp.GradScaler("cpu", growth_factor=1.0)
    with pytest.raises(AssertionError, match="backoff"):
        amp.GradScaler("cpu", backoff_factor=1.0)


def test_a_new_scale():
    scaler = amp.GradScaler("cpu")
    scaler.scale(tinytorch.ones(1))
    scaler.update(3.0)
    assert scaler.get_scale() == 3.0
    scaler.update(tinytorch.tensor(5.0))
    assert scaler.get_scale() == 5.0
    for wrong in (tinytorch.ones(2), tinytorch.ones(1).requires_grad_()):
        with pytest.raises(AssertionError, match="new_scale"):
            scaler.update(wrong)


def test_state_of_the_scaler():
    scaler = amp.GradScaler("cpu", 8.0, 3.0, 0.25, 7)
    course(scaler, [1.0, 1.0])
    state = scaler.state_dict()
    assert state == {
        "scale": 8.0,
        "growth_factor": 3.0,
        "backoff_factor": 0.25,
        "growth_interval": 7,
        "_growth_tracker": 2,
    }
    other = amp.GradScaler("cpu")
    other.load_state_dict(state)
    assert other.state_dict() == state == pickle.loads(pickle.dumps(scaler)).state_dict()
    assert course(other, [1.0] * 5)[0] == [8.0] * 4 + [24.0]
    with pytest.raises(RuntimeError, match="empty"):
        other.load_state_dict({})


def test_a_scaler_that_is_off():
    scaler = amp.GradScaler("cpu", enabled=False)
    assert course(scaler, [1.0, 1.0]) == ([1.0, 1.0], [-2.0, -2.0])
    assert scaler.state_dict() == {} and not scaler.is_enabled()
    scaler.load_state_dict({})


def test_a_training_overflows_skips_and_recovers(device):
    """The first scale is far too large: steps are skipped until it fits, and the loss falls."""
    tinytorch.manual_seed(0)
    type = tinytorch.device(device).type
    model = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1)).to(device)
    optimizer = tinytorch.optim.SGD(model.parameters(), lr=0.1)
    scaler = amp.GradScaler(type, 2.0**24, growth_interval=20)
    x = numbers(64, 4, device=device)
    target = x[:, :1] * x[:, 1:2]
    losses, scales = [], []
    for _ in range(60):
        optimizer.zero_grad()
        with autocast(type, float16):
            loss = nn.functional.mse_loss(model(x), target)
        before = model[0].weight.detach().clone()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scale = scaler.get_scale()
        scaler.update()
        skipped = scaler.get_scale() < scale
        assert skipped == tinytorch.equal(before, model[0].weight.detach())
        losses.append(loss.item())
        scales.append(scaler.get_scale())
    assert min(scales) < 2.0**22 and scales[-1] > min(scales)
    assert all(np.isfinite(losses)) and losses[-1] < 0.8 * losses[0]


def test_an_optimizer_that_is_gone_is_not_taken_for_a_new_one():
    weight = tinytorch.ones(2, requires_grad=True)
    scaler = tinytorch.amp.GradScaler("cpu")
    for _ in range(10):
        gc.collect()  # the next optimizer may lie where the last one lay in memory
        weight.grad = None
        scaler.scale(weight.sum()).backward()
        scaler.unscale_(tinytorch.optim.SGD([weight], lr=0.1))
        assert weight.grad.tolist() == [1.0, 1.0]
